"""``%processes``: how many ranks there are.  It starts them itself and says what it did."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from ..errors import UsageError
from ..model import Facts, Rank, Settings
from ..outputs import OutputPolicy
from . import viewing
from .arguments import Arguments, did_you_mean, expand, parse, words
from .base import (
    ON_ERROR,
    Ask,
    Call,
    Context,
    Look,
    Magic,
    OnError,
    Option,
    Prepare,
    Say,
    Start,
    StartReport,
    Steps,
)
from .resize import resize
from .survivors import (
    back,
    details,
    down,
    line,
    require_no_jax,
    serving,
    ties,
    took,
)
from .viewing import Viewing
from .wording import MB, count, listed, megabytes, name_ranks

RANK_MEMORY = 40 * MB  # resident memory of a fresh ipykernel rank, measured
WITHOUT_GPU = 2  # ranks of `auto`
MOST = 4096  # ranks on one machine: above, a typing error
OURS = frozenset(  # set by us, differently on each rank
    ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "JAX_PROCESS_ID", "JAX_NUM_PROCESSES"]
)
_USAGE = f"""\
%processes N|auto [--keep|--fresh] [--kernel NAME] [--env K=V …] [--preload MODULE,…]
                  [--on-error wait|stop]
                  {viewing.USAGE}"""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_HELP = f"""\
{_USAGE}

Run every cell from here on on N ranks: N processes, each an ordinary kernel. Starts them and waits.

  N               how many; `auto`: one per visible GPU, or {WITHOUT_GPU} where there is none
  --keep          grow or shrink: ranks below N keep their memory and their numbers, missing ones
                  are started, those from N on are stopped
  --fresh         restart the ranks even if N of them are alive; their memory is lost
  --env K=V       a variable for the environment of the ranks to be started; may be repeated
  --preload M,…   import modules once, before the ranks are forked: `--preload torch,jax` makes
                  `import torch` instant and its memory shared. Environment variables that such a
                  module reads when it is imported must be set by --env, not in a cell
  --kernel NAME   the kernelspec that the ranks run, of the same language: another environment
  --on-error      what the others do when a rank fails: `wait` lets them go on, `stop` interrupts
                  those still running 5 s later (the default where nobody can answer: nbclient,
                  papermill, nbconvert)
{viewing.HELP}

N alive ranks already: nothing happens. Some of N dead: only those are started again, the others
keep their memory. Another N: the old ranks stop and their memory is cleared, unless --keep is
given. `%processes` alone says how many there are.

--keep is refused while a rank is busy or jax.distributed is live. Afterwards every rank has the
new WORLD_SIZE, MASTER_PORT and so on in its environment; what was copied from there before is
stale, and process groups must be made anew on all ranks.

It counts before the first other statement of a cell; the rest of the cell runs on the new ranks.
{{expr}} and $name are the values of Python expressions on rank 0: %processes {{processes}}.
SPMD_PROCESSES in the environment wins over N (the same notebook: 8 here, 2 in CI),
SPMD_MAX_PROCESSES caps it.

Examples:
  %processes 4
  %processes auto --env OMP_NUM_THREADS=2
  %processes 4 --fresh --on-error stop
  %processes 8 --keep
  %processes 8 --preload torch

See also: %restart, %ranks, %rank, %%rank.
"""

_ON_ERROR_TEXT: dict[OnError, str] = {
    "wait": "on error the other ranks go on",
    "stop": "on error ranks still running 5 s later are interrupted",
}


@dataclass(frozen=True, slots=True)
class _Options:
    """``size``: None if not named."""

    size: int | Literal["auto"] | None = None
    fresh: bool = False
    keep: bool = False
    env: dict[str, str] = field(default_factory=dict)
    on_error: OnError | None = None
    kernel: str | None = None
    preload: tuple[str, ...] = ()
    view: Viewing = field(default_factory=Viewing)

    @property
    def asks_for_ranks(self) -> bool:
        named = self.size is not None or self.kernel is not None
        return named or self.fresh or self.keep or bool(self.env or self.preload)

    def moves(self, context: Context) -> bool:
        """The ranks shall run another kernelspec than they do."""
        return self.kernel not in (None, context.kernel)


def _processes(call: Call, context: Context) -> Steps:
    options = yield from _read(call, context)
    if not options.asks_for_ranks:
        yield from _only_settings(options, context)
        return
    facts: Facts = yield Look(options.moves(context), options.view.log_dir or "")
    if options.kernel is not None and options.moves(context):
        _require_kernel(options.kernel, facts, context.settings)
    asked, why = _asked(options, context, facts)
    size, notes = _decide(asked, why, context.settings)
    policy, shown = viewing.decide(options.view, context.policy, size, context.settings, facts)
    report = yield from _bring_about(size, options, context, facts, policy)
    parts = [report[0], *notes, *report[1:]]
    if options.on_error:
        parts.append(_set_on_error(options.on_error, context))
    context.set_policy(policy)
    yield Say(line([*parts, *shown]))


def _only_settings(options: _Options, context: Context) -> Steps:
    """The ranks stay as they are."""
    parts: list[str] = []
    if options.on_error:
        parts.append(_set_on_error(options.on_error, context))
    if options.view:
        facts: Facts = yield Look(folder=options.view.log_dir or "")
        policy, shown = viewing.decide(
            options.view, context.policy, len(context.world) or 1, context.settings, facts
        )
        context.set_policy(policy)
        parts += shown
    yield Say(line(parts) if parts else _present(context))


def _bring_about(
    size: int, options: _Options, context: Context, facts: Facts, policy: OutputPolicy
) -> Generator[Ask | Prepare | Start, Any, list[str]]:
    """The ranks that are missing; what to say about it, the main thing first."""
    dead = down(context)
    anew = options.fresh or options.moves(context)
    same = size == len(context.world) and not anew
    if same and not dead:
        return _already(context, options)
    if same:
        return (yield from _revive(size, options, context, facts, policy))
    if options.keep and context.world:
        staying = [rank for rank in serving(context) if rank < size]
        require_memory(size - len(staying), facts.memory_available)
        return (yield from resize(size, options.env, context, policy, _devices(facts)))
    alive = len(context.world) - len(dead)
    require_memory(size, _with_freed(facts))
    yield from _prepare(size, options)
    report = yield Start(size, options.env, kernel=options.kernel, preload=options.preload)
    parts = _started(report, took(report, policy, "in"), size, alive, facts)
    return [parts[0], *_preloaded(options), *parts[1:]]


def _revive(
    size: int, options: _Options, context: Context, facts: Facts, policy: OutputPolicy
) -> Generator[Ask | Start, Any, list[str]]:
    """The dead come back; the others stay."""
    dead, kept = down(context), serving(context)
    require_memory(len(dead), facts.memory_available, dead)
    found = yield from ties(kept, context)
    require_no_jax(found, dead)
    report = yield Start(size, keep=True)
    return back(report, took(report, policy, "after"), kept, found) + _notes(context, options)


def _prepare(size: int, options: _Options) -> Generator[Prepare, str, None]:
    """Before the old ranks go: if it fails, nothing is lost. Raises `UsageError`."""
    if options.preload and (
        problem := (yield Prepare(options.preload, size, options.env, options.kernel))
    ):
        raise UsageError(
            f"--preload: {problem}",
            "the ranks are as they were; leave it out, or install what is missing where they run",
        )


def _preloaded(options: _Options) -> list[str]:
    return [f"preloaded {listed(list(options.preload))}"] if options.preload else []


# ---------------------------------------------------------------- reading


def _read(call: Call, context: Context) -> Generator[Ask, Any, _Options]:
    given = yield from expand(words(call.args), context)
    arguments = parse(given, PROCESSES)
    _require_one_wish(arguments)
    return _Options(
        _size(arguments),
        "--fresh" in arguments.values,
        "--keep" in arguments.values,
        dict(map(_variable, arguments.values.get("--env", ()))),
        next((known for known in ON_ERROR if known == arguments.last("--on-error")), None),
        arguments.last("--kernel"),
        _modules(arguments.values.get("--preload", ())),
        viewing.read(arguments),
    )


def _require_one_wish(arguments: Arguments) -> None:
    if "--keep" not in arguments.values:
        return
    for other in ("--fresh", "--kernel", "--preload"):
        if other in arguments.values:
            what = f"--keep and {other} exclude each other: {other} starts every rank anew"
            raise UsageError(what, "leave one of them out")


def _size(arguments: Arguments) -> int | Literal["auto"] | None:
    if not arguments.positional:
        return None
    if len(arguments.positional) > 1:
        raise UsageError(
            f"%processes takes one number of ranks, not {' and '.join(arguments.positional)}",
            _USAGE,
        )
    (text,) = arguments.positional
    if text == "auto":
        return "auto"
    if not re.fullmatch(r"[+-]?\d{1,9}", text, re.ASCII):
        hint = did_you_mean(text, ["auto"], "write `%processes 4` or `%processes auto`")
        raise UsageError(f"%processes needs a whole number of ranks, not {text!r}", hint)
    return _in_bounds(int(text))


def _in_bounds(size: int) -> int:
    if size < 1:
        raise UsageError(
            f"%processes {size}: there must be at least 1 rank",
            "`%processes 1` is a single ordinary kernel",
        )
    if size > MOST:
        raise UsageError(
            f"%processes {size}: more than {MOST} ranks do not run on one machine",
            "write a smaller number",
        )
    return size


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not _VARIABLE.fullmatch(name) or "\0" in value:
        raise UsageError(f"--env needs NAME=VALUE, not {text!r}", "write --env OMP_NUM_THREADS=2")
    if name in OURS:
        raise UsageError(f"--env {name}: each rank has its own {name}", "leave it out")
    return name, value


def _modules(given: Iterable[str]) -> tuple[str, ...]:
    names = [name.strip() for text in given for name in text.split(",")]
    for name in names:
        if not all(part.isidentifier() for part in name.split(".")):
            raise UsageError(
                f"--preload needs names of modules, not {name!r}", "write --preload torch,jax"
            )
    return tuple(dict.fromkeys(names))


def _require_kernel(name: str, facts: Facts, settings: Settings) -> None:
    """It is installed, and of the notebook's language."""
    language = facts.kernels.get(name)
    if language is None:
        hint = f"installed are: {listed(sorted(facts.kernels))}"
        raise UsageError(
            f"--kernel {name}: there is no such kernelspec",
            did_you_mean(name, facts.kernels, hint),
        )
    if language != settings.language:
        raise UsageError(
            f"--kernel {name}: its language is {language}, this notebook's is {settings.language}",
            f"`spmd-kernel install --kernel {name}` makes a kernel for it; choose that one instead",
        )


# ---------------------------------------------------------------- deciding


def _asked(options: _Options, context: Context, facts: Facts) -> tuple[int, str]:
    """The size asked for and, in words, where it comes from."""
    if options.size == "auto":
        return len(facts.gpus) or WITHOUT_GPU, "%processes auto"
    if options.size is not None:
        return options.size, f"%processes {options.size}"
    size = len(context.world) or 1
    return size, f"the present {count(size, 'rank')}"


def _decide(asked: int, why: str, settings: Settings) -> tuple[int, list[str]]:
    """Environment over magic; and whatever that changed, said."""
    size, notes = asked, []
    if settings.pinned is not None and settings.pinned != size:
        size = settings.pinned
        notes.append(f"SPMD_PROCESSES={size} wins over {why}")
    most = settings.max_processes
    if most is not None and size > most:
        notes.append(f"SPMD_MAX_PROCESSES={most} caps {size}")
        size = most
    return size, notes


def _with_freed(facts: Facts) -> int | None:
    """What is available once the old ranks are gone."""
    if facts.memory_available is None:
        return None
    return facts.memory_available + sum(facts.rss.values())


def require_memory(starting: int, available: int | None, dead: tuple[Rank, ...] = ()) -> None:
    """Raises `UsageError` when so many fresh ranks do not fit into ``available`` bytes."""
    if available is None or starting * RANK_MEMORY <= available:
        return
    fit = available // RANK_MEMORY
    hint = f"`%processes {fit}` fits" if fit and not dead else "end other programs first"
    what = f"{name_ranks(dead)} again" if dead else count(starting, "rank")
    need = megabytes(starting * RANK_MEMORY)
    raise UsageError(
        f"not enough memory for {what}: {need} ({megabytes(RANK_MEMORY)} each) at least, "
        f"{megabytes(available)} available",
        hint,
    )


# ---------------------------------------------------------------- saying


def _present(context: Context) -> str:
    dead = down(context)
    size = count(len(context.world), "rank")
    parts = [f"{size}, {name_ranks(dead)} dead" if dead else size, "%ranks shows them"]
    return line(parts) + f"usage: {_USAGE}\n"


def _set_on_error(value: OnError, context: Context) -> str:
    context.set_on_error(value)
    return _ON_ERROR_TEXT[value]


def _already(context: Context, options: _Options) -> list[str]:
    busy = [view.rank for view in context.world if view.state == "busy"]
    parts = [f"already {count(len(context.world), 'rank')}"]
    if busy:
        verb = "is" if len(busy) == 1 else "are"
        parts.append(f"{name_ranks(busy)} {verb} still busy (--fresh restarts all)")
    return parts + _notes(context, options)


def _notes(context: Context, options: _Options) -> list[str]:
    given = [f"--env {listed(list(options.env))}"] if options.env else []
    if not set(options.preload) <= set(context.preload):
        given.append(f"--preload {','.join(options.preload)}")
    return [f"{what} is for ranks started anew (add --fresh)" for what in given]


def _started(report: StartReport, took: str, size: int, old: int, facts: Facts) -> list[str]:
    ready = f"{count(size, 'rank')} ready{took} on {_devices(facts)}"
    parts = [ready, *details(report)]
    if report.memory_cleared:
        parts.append(f"memory of the {count(old, 'old rank')} cleared")
    return parts


def _devices(facts: Facts) -> str:
    if not facts.gpus:
        return "CPU"
    return f"{count(len(facts.gpus), 'GPU')} ({listed(list(dict.fromkeys(facts.gpus)), 3)})"


PROCESSES = Magic(
    "processes",
    "line",
    "how many ranks run every cell",
    _HELP,
    _processes,
    (
        Option("--keep"),
        Option("--fresh"),
        Option("--kernel", "NAME"),
        Option("--env", "K=V"),
        Option("--preload", "MODULE,…"),
        Option("--on-error", "wait|stop", ON_ERROR),
        *viewing.OPTIONS,
    ),
    ("auto",),
)
MAGICS = (PROCESSES,)
