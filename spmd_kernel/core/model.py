"""The vocabulary of the core: ranks, messages, the events that can happen, the effects that follow.

``Hub.handle(event) -> list[Effect]`` is the whole contract between decisions (``core``) and the
world (``io``, ``engines``).  Everything here is a frozen value; time is data (``at``, seconds of a
monotonic clock, stamped by the driver).

Message fields follow the Jupyter messaging specification, "General Message Format".
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Rank = int
Channel = Literal["shell", "control", "stdin", "iopub"]
OutputMode = Literal["live", "grouped"]  # as it comes, or rank by rank at the cell's end
Header = Mapping[str, Any]
Buffer = bytes | memoryview
NO_HEADER: Header = {}
Subshells = Mapping[Rank, str]  # of some ranks: the id that each of them gave it (JEP 91)
NO_SUBSHELLS: Subshells = {}
OUTPUT_TYPES = frozenset(  # messages that are a cell's outputs
    [
        "stream",
        "display_data",
        "update_display_data",
        "execute_result",
        "error",
        "clear_output",
    ]
)


@dataclass(frozen=True, slots=True)
class Message:
    """One Jupyter message.  ``content`` stays raw JSON until somebody needs it (`content.read`)."""

    header: Header
    parent: Header
    metadata: Mapping[str, Any]
    content: bytes
    buffers: tuple[Buffer, ...] = ()

    @property
    def msg_type(self) -> str:
        return str(self.header.get("msg_type", ""))

    @property
    def msg_id(self) -> str:
        return str(self.header.get("msg_id", ""))

    @property
    def parent_id(self) -> str:
        return str(self.parent.get("msg_id", ""))


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a rank process is gone.  ``signal`` and ``code`` exclude each other."""

    code: int | None = None
    signal: int | None = None
    out_of_memory: bool = False
    silent: bool = False  # it never answered at start, and was killed for that
    missing: str = ""  # it could not be started at all: the reason
    supervisor: str = ""  # the process that it cannot outlive is gone: how that ended

    def __str__(self) -> str:
        if self.supervisor:
            return f"ended with its supervisor process: {self.supervisor}"
        if self.missing:
            return self.missing
        if self.silent:
            return "it did not answer in time"
        if self.signal is not None:
            name = SIGNAL_NAMES.get(self.signal, f"signal {self.signal}")
            if self.out_of_memory:
                return f"killed by {name} (signal {self.signal}): out of memory"
            hint = " (out of memory, or killed from outside)" if self.signal == 9 else ""
            return f"killed by {name} (signal {self.signal}){hint}"
        return f"exited with code {self.code}"


SIGNAL_NAMES = {
    1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE",
    9: "SIGKILL", 11: "SIGSEGV", 13: "SIGPIPE", 15: "SIGTERM",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class RankSpec:
    """One rank to start: its number and what its environment gets on top of the inherited one."""

    rank: Rank
    env: Mapping[str, str]
    unset: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """Ranks to start together.  ``generation`` tells processes of one rank number apart."""

    kernel: str  # name of the target kernelspec
    generation: int
    ranks: tuple[RankSpec, ...]
    argv: tuple[str, ...] = ()  # unknown arguments of ours, passed on to the ranks
    preload: tuple[str, ...] = ()  # modules that are imported before the ranks are forked


@dataclass(frozen=True, slots=True)
class Facts:
    """What a `Survey` found on this machine.  Bytes; ``None`` where the system does not tell."""

    memory_available: int | None = None
    gpus: tuple[str, ...] = ()
    rss: Mapping[Rank, int] = field(default_factory=dict)
    kernels: Mapping[str, str] = field(default_factory=dict)  # installed: name -> language
    unwritable: str = ""  # why the folder asked about cannot be written to
    cpu: Mapping[Rank, float] = field(default_factory=dict)  # seconds, with child processes
    gpu_memory: Mapping[Rank, int] | None = None  # with child processes; None: no NVIDIA driver


# ---------------------------------------------------------------- events: what happened


@dataclass(frozen=True, slots=True)
class Began:
    """The sockets are bound; the first event of a kernel's life."""

    at: float


@dataclass(frozen=True, slots=True)
class FromFront:
    """A client sent a message on one of our five sockets; ``idents`` routes the answer back."""

    at: float
    channel: Channel
    idents: tuple[bytes, ...]
    message: Message


@dataclass(frozen=True, slots=True)
class FromRank:
    at: float
    rank: Rank
    generation: int
    channel: Channel
    message: Message


@dataclass(frozen=True, slots=True)
class Subscribed:
    """A client subscribed to our IOPub (XPUB; JEP 65)."""

    at: float
    topic: bytes


@dataclass(frozen=True, slots=True)
class RankReady:
    """The rank answered kernel_info on shell and its IOPub is connected.

    ``info`` is the content of its kernel_info_reply.
    """

    at: float
    rank: Rank
    generation: int
    pid: int
    info: Mapping[str, Any]
    start: str = ""  # how its process was started: fork or spawn


@dataclass(frozen=True, slots=True)
class RankExited:
    """The process is gone and its IOPub is drained.  Before `RankReady`: it failed to start."""

    at: float
    rank: Rank
    generation: int
    cause: Cause
    stderr: str = ""  # its last lines
    unsent: tuple[tuple[str, str], ...] = ()  # text of its cells that never came: stream, text


@dataclass(frozen=True, slots=True)
class TimerFired:
    at: float
    key: Hashable


@dataclass(frozen=True, slots=True)
class Signalled:
    """The kernel process received SIGINT or SIGTERM."""

    at: float
    signum: int


@dataclass(frozen=True, slots=True)
class Surveyed:
    at: float
    token: int
    facts: Facts


@dataclass(frozen=True, slots=True)
class Pulse:
    """Signs of life of a process: they stand still while it only waits."""

    switches: int  # of its main thread, to wait for something (a dump takes one itself)
    cpu: float  # seconds of all its threads


@dataclass(frozen=True, slots=True)
class Dumped:
    """Answers `Dump`: what faulthandler wrote. A rank that did not answer within 0.5 s is missing."""

    at: float
    token: int
    stacks: Mapping[Rank, str]
    pulses: Mapping[Rank, Pulse] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Unblocked:
    """Answers `Unblock`.

    ``closed``: how many connections of each rank.  ``refused``: those (file descriptor, inode) that
    the system did not let us reach; the rank itself can.
    """

    at: float
    token: int
    closed: Mapping[Rank, int]
    refused: Mapping[Rank, tuple[tuple[int, int], ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Preloaded:
    """The answer to `Preload`.  ``problem``: why it could not be done; empty if it could."""

    at: float
    token: int
    problem: str = ""


@dataclass(frozen=True, slots=True)
class LogFailed:
    """Files in this folder cannot be written any more; said once for each folder."""

    at: float
    folder: str
    reason: str


@dataclass(frozen=True, slots=True)
class TextFailed:
    """This file cannot be written any more; said once for each."""

    at: float
    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class PortOpened:
    """Answers `OpenPort`.  ``problem``: why there is none; empty if there is.

    ``token`` is what a client has to know, made by the driver.
    """

    at: float
    port: int
    token: str
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Connected:
    """Somebody connected to the debug port.  ``connection`` is a number of its own."""

    at: float
    connection: int


@dataclass(frozen=True, slots=True)
class Received:
    at: float
    connection: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection is gone, whoever ended it."""

    at: float
    connection: int


Event = (
    Began
    | FromFront
    | FromRank
    | Subscribed
    | RankReady
    | RankExited
    | TimerFired
    | Signalled
    | Surveyed
    | Dumped
    | Unblocked
    | Preloaded
    | LogFailed
    | TextFailed
    | PortOpened
    | Connected
    | Received
    | Disconnected
)

# ---------------------------------------------------------------- effects: what to do


@dataclass(frozen=True, slots=True)
class ToFront:
    """Send to clients.  On ``iopub`` idents are empty; the wire adds the topic, header and signature."""

    channel: Channel
    idents: tuple[bytes, ...]
    msg_type: str
    content: bytes
    parent: Header
    metadata: Mapping[str, Any] = field(default_factory=dict)
    buffers: tuple[Buffer, ...] = ()
    msg_id: str = ""  # where an answer will name it; else the wire makes one


@dataclass(frozen=True, slots=True)
class ToRank:
    """Send one message to ranks: serialised and signed once, as they share a key."""

    ranks: tuple[Rank, ...]
    channel: Channel
    message: Message


@dataclass(frozen=True, slots=True)
class Launch:
    request: LaunchRequest


@dataclass(frozen=True, slots=True)
class Interrupt:
    """SIGINT to the ranks' process groups, or interrupt_request if their kernelspec says so."""

    ranks: tuple[Rank, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """End ranks: shutdown_request, SIGTERM, SIGKILL (``now``: SIGKILL at once).

    Each answers with `RankExited`.
    """

    ranks: tuple[Rank, ...]
    now: bool = False


@dataclass(frozen=True, slots=True)
class SetTimer:
    """One timer per key; setting it again moves it."""

    key: Hashable
    at: float


@dataclass(frozen=True, slots=True)
class CancelTimer:
    key: Hashable


@dataclass(frozen=True, slots=True)
class Survey:
    """Look at the machine; answered by `Surveyed` with the same token.

    ``kernels``: also which kernelspecs are installed.  ``folder``: whether files can be written
    there; it is made if need be.  ``usage``: also the CPU time and GPU memory of each rank.
    """

    token: int
    kernels: bool = False
    folder: str = ""
    usage: bool = False


@dataclass(frozen=True, slots=True)
class Dump:
    """Every thread's Python stack, written by faulthandler; answered by `Dumped`."""

    token: int
    ranks: tuple[Rank, ...]


@dataclass(frozen=True, slots=True)
class Unblock:
    """Close the TCP connections of these ranks to others of this kernel, from outside.

    Those to ``ports`` (of the stores and JAX coordinators) stay; ``store``: only those to them are
    closed, at the ranks' own end.  Answered by `Unblocked`.
    """

    token: int
    ranks: tuple[Rank, ...]
    ports: tuple[int, ...]
    store: bool = False


@dataclass(frozen=True, slots=True)
class Preload:
    """Import modules in the process that ranks are forked from; answered by `Preloaded`.

    ``request`` is what will be launched then, as far as it is known: its ranks have the variables
    that all of them share.
    """

    token: int
    request: LaunchRequest


@dataclass(frozen=True, slots=True)
class Listen:
    """Whether what these ranks publish is read; else it waits in their processes.  At first it is."""

    ranks: tuple[Rank, ...]
    on: bool


@dataclass(frozen=True, slots=True)
class AppendLog:
    """Append what a rank said to its file in a folder.  A failure is answered by `LogFailed`."""

    folder: str
    rank: Rank
    text: str


@dataclass(frozen=True, slots=True)
class AppendText:
    """Append to a private file, which is made if need be.  A failure is answered by `TextFailed`."""

    path: str
    text: bytes  # UTF-8


@dataclass(frozen=True, slots=True)
class KeepSource:
    """Write the text of a cell where clients of the debugger look for it: a path in `Settings.cells`."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class DropText:
    """Delete such a file."""

    path: str


@dataclass(frozen=True, slots=True)
class OpenPort:
    """Listen on this TCP port of the loopback interface (0: any); answered by `PortOpened`."""

    port: int


@dataclass(frozen=True, slots=True)
class ClosePort:
    """Listen no more; what is connected stays connected."""


@dataclass(frozen=True, slots=True)
class ToConnection:
    """Send bytes on a connection of the debug port."""

    connection: int
    data: bytes


@dataclass(frozen=True, slots=True)
class HangUp:
    """End a connection once it has all that was sent; answered by `Disconnected`."""

    connection: int


@dataclass(frozen=True, slots=True)
class Log:
    level: Literal["debug", "info", "warning", "error"]
    text: str


@dataclass(frozen=True, slots=True)
class Exit:
    """Stop what still runs and leave with this exit code."""

    code: int


Effect = (
    ToFront
    | ToRank
    | Launch
    | Interrupt
    | Stop
    | SetTimer
    | CancelTimer
    | Survey
    | Dump
    | Unblock
    | Preload
    | Listen
    | AppendLog
    | AppendText
    | DropText
    | KeepSource
    | OpenPort
    | ClosePort
    | ToConnection
    | HangUp
    | Log
    | Exit
)

# ---------------------------------------------------------------- settings: what never changes


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything the core knows of the world at start; made once, by `spmd_kernel.settings`."""

    session: str  # session id of the requests that we ourselves send to ranks
    kernel: str = "python3"  # target kernelspec
    language: str = "python"
    processes: int = 1  # world size at kernel start
    pinned: int | None = None  # SPMD_PROCESSES: wins over the magic
    max_processes: int | None = None  # SPMD_MAX_PROCESSES
    output: OutputMode | None = None  # SPMD_OUTPUT: wins over the magic
    environ: Mapping[str, str] = field(default_factory=dict)  # inherited by the ranks
    ports: tuple[int, ...] = ()  # held for MASTER_PORT and JAX, an even number
    argv: tuple[str, ...] = ()  # passed on to the ranks
    linux: bool = True
    watch: float | None = None  # SPMD_WATCH: wins over the magic; seconds, 0 for off
    setup: str = ""  # code that each Python rank runs silently once it is ready
    debugging: str = ""  # code that it runs silently before its debugger is switched on
    front: Mapping[str, Any] = field(default_factory=dict)  # the ports of connect_reply
    compare: str = ""  # path of the script that `%compare` runs in each Python rank
    kept_outputs: int = 8_000_000  # bytes of outputs kept for clients that come back
    stream_limit: int = 64_000_000  # bytes of text of one cell that are shown; 0: all of it
    spill_folder: str = "/tmp/spmd-kernel"  # where text beyond that goes
    cells: str = ""  # folder of cells as debuggers see them, with a separator at its end
