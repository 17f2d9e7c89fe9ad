"""``%ranks``: what each rank is doing, or died of."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import UsageError
from ..model import Facts
from .arguments import words
from .base import Call, Context, Look, Magic, RankView, Say, Steps
from .wording import aligned, megabytes

_HELP = """\
%ranks

A table of the ranks:
  rank        its number
  pid         its process
  start       how that was started: `fork` (from a warm interpreter: quick) or `spawn`
  state       idle, busy, starting or dead
  last cell   how many seconds its last cell took (%timing has more)
  CPU         seconds of CPU time since it was started, of its child processes too
  RSS         its resident memory, without child processes (pages that it shares with other
              ranks, such as those of libraries, count in each)
  GPU         memory on NVIDIA devices that it and its child processes hold; only where there is
              a driver. `-`: nothing, or the driver does not tell (as in many containers)
  exit cause  what a dead rank died of

`%restart dead` brings back dead ranks.
"""

_GPU = "GPU"
_HEAD = ("rank", "pid", "start", "state", "last cell", "CPU", "RSS", _GPU, "exit cause")
_LEFT = frozenset({"start", "state", "exit cause"})  # texts; numbers are aligned to the right


def _ranks(call: Call, context: Context) -> Steps:
    if words(call.args):
        raise UsageError("%ranks takes no arguments", "`%rank SPEC EXPR` runs code on some ranks")
    facts: Facts = yield Look(usage=True)
    yield Say(table(context.world, facts))


def table(world: Sequence[RankView], facts: Facts) -> str:
    """One line per rank under a head, columns aligned."""
    columns = _HEAD if facts.gpu_memory is not None else tuple(h for h in _HEAD if h != _GPU)
    rows = [columns, *(_row(view, facts) for view in world)]
    return aligned(rows, _LEFT)


def _row(view: RankView, facts: Facts) -> tuple[str, ...]:
    dead = view.state == "dead"
    rss = None if dead else facts.rss.get(view.rank)
    cpu = None if dead else facts.cpu.get(view.rank)
    return (
        str(view.rank),
        "-" if view.pid is None else str(view.pid),
        view.start or "-",
        view.state,
        "-" if view.seconds is None else f"{view.seconds:.2f} s",
        "-" if cpu is None else f"{cpu:.1f} s",
        "-" if rss is None else megabytes(rss),
        *_gpu(view, facts),
        view.cause if dead else "",
    )


def _gpu(view: RankView, facts: Facts) -> tuple[str, ...]:
    """No column where there is no driver."""
    if facts.gpu_memory is None:
        return ()
    used = None if view.state == "dead" else facts.gpu_memory.get(view.rank)
    return ("-" if used is None else megabytes(used),)


MAGICS = (Magic("ranks", "line", "a table of the ranks", _HELP, _ranks),)
