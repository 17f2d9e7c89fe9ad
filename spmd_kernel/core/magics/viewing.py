"""The options of ``%processes`` that say what is shown: --output, --show, --log-dir, --watch."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from ..errors import UsageError
from ..model import Facts, OutputMode, Settings
from ..outputs import MODES, OutputPolicy
from . import spec
from .arguments import Arguments
from .base import Option
from .wording import name_ranks

OPTIONS = (
    Option("--output", "live|grouped", MODES),
    Option("--show", "SPEC"),
    Option("--log-dir", "DIR"),
    Option("--watch", "SECONDS|off"),
)
USAGE = "[--output live|grouped] [--show SPEC] [--log-dir DIR] [--watch SECONDS|off]"
HELP = """\
  --output        `live` shows what ranks say as it comes; `grouped` shows it rank by rank at the
                  cell's end, so that the same run gives the same notebook (CI, version control).
                  SPMD_OUTPUT in the environment wins
  --show SPEC     publish only what these ranks say (0; 0,2-3; -1; all), and every error; the others
                  are shown in cells of their own (%%rank) and by %output
  --log-dir DIR   append the text of each rank to DIR/rank-N.log, too, as it comes; `--log-dir=`
                  ends that
  --watch SECONDS a cell whose ranks have waited so long for peers that are not coming says so
                  (at first 5; `off`: never). SPMD_WATCH in the environment wins"""

_MODE_TEXT: dict[OutputMode, str] = {
    "live": "outputs are shown as they come",
    "grouped": "outputs are shown rank by rank at the cell's end",
}


@dataclass(frozen=True, slots=True)
class Viewing:
    """``None``: not named."""

    mode: OutputMode | None = None
    show: str | None = None
    log_dir: str | None = None
    watch: float | None = None

    def __bool__(self) -> bool:
        return self != Viewing()


def read(arguments: Arguments) -> Viewing:
    mode = next((known for known in MODES if known == arguments.last("--output")), None)
    watch = arguments.last("--watch")
    return Viewing(
        mode,
        arguments.last("--show"),
        arguments.last("--log-dir"),
        None if watch is None else read_watch(watch),
    )


def read_watch(text: str) -> float:
    """Seconds; ``off`` is 0. Raises `UsageError`."""
    if text == "off":
        return 0.0
    if not re.fullmatch(r"\d{1,6}(\.\d{1,3})?", text, re.ASCII) or not float(text) >= 1:
        raise UsageError(
            f"--watch is a number of seconds from 1 on, or off, not {text!r}", "write --watch 10"
        )
    return float(text)


def decide(
    viewing: Viewing, policy: OutputPolicy, size: int, settings: Settings, facts: Facts
) -> tuple[OutputPolicy, list[str]]:
    """The policy for ``size`` ranks, and what to say about it. Raises `UsageError`."""
    notes: list[str] = []
    if viewing.mode is not None:
        policy = replace(policy, mode=settings.output or viewing.mode)
        notes.append(_mode_note(viewing.mode, settings))
    policy = _shown(viewing, policy, size, notes)
    if viewing.log_dir is not None:
        if facts.unwritable:
            raise UsageError(
                f"--log-dir {viewing.log_dir}: {facts.unwritable}", "name a folder of your own"
            )
        policy = replace(policy, log_dir=viewing.log_dir)
        where = f"text of each rank also in {viewing.log_dir.rstrip('/')}/rank-N.log"
        notes.append(where if viewing.log_dir else "no log files")
    if viewing.watch is not None:
        policy = replace(policy, watch=viewing.watch)
        notes.append(
            f"a hang is told of after {viewing.watch:g} s" if viewing.watch else "no watch"
        )
        if settings.watch not in (None, viewing.watch):
            policy = replace(policy, watch=settings.watch)
            notes[-1] = f"SPMD_WATCH={settings.watch:g} wins over --watch"
    return policy, notes


def _mode_note(mode: OutputMode, settings: Settings) -> str:
    if settings.output not in (None, mode):
        return f"SPMD_OUTPUT={settings.output} wins over --output {mode}"
    return _MODE_TEXT[mode]


def _shown(viewing: Viewing, policy: OutputPolicy, size: int, notes: list[str]) -> OutputPolicy:
    """A view that hides something is told of every time: nobody shall miss what it hides."""
    ranks = policy.show if viewing.show is None else spec.parse(viewing.show, size)
    if ranks is None:
        return policy
    if len(ranks) == size or ranks[-1] >= size:  # all, or some of a world that was larger
        notes.append("outputs of all ranks are shown")
        return replace(policy, show=None)
    notes.append(f"only outputs of {name_ranks(ranks)} are shown, and errors (--show all)")
    return replace(policy, show=ranks)
