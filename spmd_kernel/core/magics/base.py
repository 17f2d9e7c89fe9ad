"""What a magic is: a generator that yields steps and is resumed with their results.

The hub is the interpreter of the steps; a magic decides and words, and touches nothing itself.
A `UsageError` raised before the first `Start` or `Run` leaves everything as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from ..model import Channel, Rank, Settings
from ..outputs import OutputPolicy
from ..stacks import RunningCode
from ..timings import Timing

OnError = Literal["wait", "stop"]
ON_ERROR: tuple[OnError, ...] = ("wait", "stop")
ANSWER_SECONDS = 5.0  # how long a live rank, which is idle as a rule, may be silent

# ---------------------------------------------------------------- steps


@dataclass(frozen=True, slots=True)
class Ask:
    """Send a request to ranks; resumed with ``dict[Rank, Content | None]``.

    ``None``: that rank died, or did not answer within ``seconds``.
    """

    ranks: tuple[Rank, ...]
    msg_type: str
    content: Mapping[str, Any]
    channel: Channel = "shell"
    seconds: float | None = None
    subshell: str = ""  # JEP 91: a thread of the rank beside its main one


@dataclass(frozen=True, slots=True)
class Run:
    """Run code on ranks as part of the cell; their outputs are the cell's. Resumed with ``None``.

    If it fails the cell ends there: the generator is closed.  ``seconds``: then it is interrupted
    as by the user, and fails with a `TimeLimit`.
    """

    ranks: tuple[Rank, ...]
    code: str
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """Look at the machine; resumed with `model.Facts`.

    ``kernels``: at kernelspecs, too; ``folder``: whether files can be written there; ``usage``: at
    the CPU time and the GPU memory of each rank.
    """

    kernels: bool = False
    folder: str = ""
    usage: bool = False


@dataclass(frozen=True, slots=True)
class Stacks:
    """The Python stacks of ranks; resumed with `model.Dumped`."""

    ranks: tuple[Rank, ...]


@dataclass(frozen=True, slots=True)
class Prepare:
    """Import modules before ``size`` ranks are forked; resumed with why that failed, or "".

    ``env`` and ``kernel`` as in `Start`.  The present ranks are not touched.
    """

    modules: tuple[str, ...]
    size: int
    env: Mapping[str, str]
    kernel: str | None = None


@dataclass(frozen=True, slots=True)
class Say:
    """Publish text on the cell's stdout stream; resumed with ``None``."""

    text: str


@dataclass(frozen=True, slots=True)
class Page:
    """Text for the pager (a ``page`` payload of the reply); resumed with ``None``."""

    text: str


@dataclass(frozen=True, slots=True)
class Start:
    """Start ranks; resumed with `StartReport`.

    ``keep``: the live ranks below ``size`` stay as they are, those above are stopped, and those that
    are missing are started, with the environment of the present world and ``env`` on top; ``anew``
    names the ranks to start instead, whether they are alive or dead.  Otherwise the old ranks are
    stopped first and the new ones get ``env`` and run ``kernel`` (a kernelspec; ``None``: the one
    they ran so far).  The modules of ``preload`` are imported already in the new ones,
    if those are all ranks.  `UsageError` or `RankLost` is thrown into the generator when one cannot start;
    with ``keep`` the live ranks are then as they were, and numbers that were new are gone again.
    """

    size: int
    env: Mapping[str, str] = field(default_factory=dict)
    keep: bool = False
    kernel: str | None = None
    anew: tuple[Rank, ...] | None = None
    preload: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OpenDebugPort:
    """Listen for clients of the debugger on this TCP port (0: any); resumed with `PortReport`."""

    port: int


@dataclass(frozen=True, slots=True)
class CloseDebugPort:
    """Listen no more; resumed with `PortReport`: how it was."""


Step = Ask | Run | Look | Stacks | Prepare | Say | Page | Start | OpenDebugPort | CloseDebugPort
Steps = Generator[Step, Any, None]


@dataclass(frozen=True, slots=True)
class StartReport:
    """What a `Start` did.  ``set`` and ``cleared`` are environment variables, worded for people
    (``OMP_NUM_THREADS=1``, ``SLURM_PROCID``); ``replayed`` names what ran again on the new ranks.

    ``kept`` are alive with their memory; of these, ``unheard`` have not said that they have the new
    environment, and find it in their queue.  ``lost`` are new ranks that died at once, ``stopped``
    those above the size.  ``restarts`` is TORCHELASTIC_RESTART_COUNT.
    """

    seconds: float
    ranks: tuple[Rank, ...]
    set: tuple[str, ...] = ()
    cleared: tuple[str, ...] = ()
    replayed: tuple[str, ...] = ()
    memory_cleared: bool = False
    kept: tuple[Rank, ...] = ()
    stopped: tuple[Rank, ...] = ()
    unheard: tuple[Rank, ...] = ()
    lost: tuple[Rank, ...] = ()
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class PortReport:
    """The debug port.  ``token`` is told once, when it was opened; ``problem``: why it was not.

    ``files``: the cells that ran last, by name (``cell [3]``) and path.
    """

    port: int | None
    token: str = ""
    problem: str = ""
    attached: bool = False  # a client is
    files: tuple[tuple[str, str], ...] = ()


# ---------------------------------------------------------------- what a magic may see


@dataclass(frozen=True, slots=True)
class RankView:
    """A rank as the group's table has it.

    ``state``: idle, busy, starting or dead; ``seconds``: how long its last cell took; ``since``:
    when the one that it runs began.
    """

    rank: Rank
    pid: int | None = None
    state: str = "idle"
    seconds: float | None = None
    cause: str = ""
    generation: int = 0
    since: float | None = None
    start: str = ""  # how its process was started: fork or spawn


class Context(Protocol):
    """The hub's read-only view, with the two settings that magics may change."""

    @property
    def settings(self) -> Settings: ...

    @property
    def kernel(self) -> str:
        """The kernelspec that the present ranks run."""

    @property
    def preload(self) -> tuple[str, ...]:
        """The modules that were imported before the present ranks were forked."""

    @property
    def world(self) -> tuple[RankView, ...]: ...

    @property
    def on_error(self) -> str | None:
        """What ``--on-error`` said; ``None``: not yet said."""

    @property
    def headless(self) -> bool: ...

    def set_on_error(self, value: OnError) -> None: ...

    @property
    def policy(self) -> OutputPolicy:
        """How outputs are shown."""

    def set_policy(self, value: OutputPolicy) -> None: ...

    @property
    def running_code(self) -> RunningCode:
        """Of the round at hand, if ranks run one."""

    def said(self, rank: Rank) -> str:
        """What a rank said in the last cell, as text."""

    @property
    def timings(self) -> Sequence[Timing]:
        """How long the last cells took, the oldest first."""


@dataclass(frozen=True, slots=True)
class Call:
    """One use of a magic.  ``name`` is the key in ``MAGICS`` (``%rank``, ``%%rank``).

    ``args`` is the raw rest of its line (continued lines joined); ``body``, of cell magics, is the
    code below with comment lines on top, so that its line numbers are those of the cell.
    """

    name: str
    args: str = ""
    body: str = ""


# ---------------------------------------------------------------- the magic itself


@dataclass(frozen=True, slots=True)
class Option:
    """``--name``, with a value if ``metavar`` is given; ``values`` are those that Tab offers."""

    name: str
    metavar: str = ""
    values: tuple[str, ...] = ()


HELP_WORDS = ("--help", "-h", "?")


@dataclass(frozen=True, slots=True)
class Magic:
    """``play`` is the magic; ``words`` are the positional arguments that Tab offers."""

    name: str
    kind: Literal["line", "cell"]
    summary: str
    help: str
    play: Callable[[Call, Context], Steps]
    options: tuple[Option, ...] = ()
    words: tuple[str, ...] = ()

    @property
    def token(self) -> str:
        """As users write it: ``%name`` or ``%%name``; the key in ``MAGICS``."""
        return ("%%" if self.kind == "cell" else "%") + self.name

    def run(self, call: Call, context: Context) -> Steps:
        """The steps of one call; raises `UsageError` and `RankLost`."""
        if self._asks_help(call.args.split()):
            yield Page(self.help)
        else:
            yield from self.play(call, context)

    def _asks_help(self, words: list[str]) -> bool:
        """Without options the words after the first may be code (``x --help`` is a subtraction)."""
        return any(word in HELP_WORDS for word in (words if self.options else words[:1]))
