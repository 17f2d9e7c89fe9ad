"""Runs a kernel: events in, `Hub.handle`, effects out.

Everything happens on one asyncio loop, in the main thread (ranks die with the thread that spawned
them).  `perform` is the only place where an effect becomes an action.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import secrets
import signal
import sys
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TextIO, assert_never

import zmq

from ..core.errors import UsageError
from ..core.hub import Hub
from ..core.model import (
    AppendLog,
    AppendText,
    Began,
    CancelTimer,
    Cause,
    Channel,
    ClosePort,
    DropText,
    Dump,
    Dumped,
    Effect,
    Event,
    Exit,
    FromFront,
    FromRank,
    HangUp,
    Interrupt,
    KeepSource,
    Launch,
    Listen,
    Log,
    LogFailed,
    Message,
    OpenPort,
    Preload,
    Preloaded,
    Pulse,
    Rank,
    RankExited,
    RankReady,
    SetTimer,
    Settings,
    Signalled,
    Stop,
    Subscribed,
    Survey,
    Surveyed,
    TextFailed,
    TimerFired,
    ToConnection,
    ToFront,
    ToRank,
    Unblock,
    Unblocked,
)
from ..engines.base import Endpoint, Engine, EngineContext, LastWords
from ..engines.local import LocalEngine
from ..engines.ports import HeldPorts
from ..gpus import present_gpus
from . import memory
from .cellfiles import CellFiles
from .connection import ConnectionInfo
from .deadlines import Deadlines
from .debugport import DebugPort
from .front import Front
from .logfiles import LogFiles
from .machine import survey
from .nvml import GpuMemory
from .rank import RankLink
from .record import Recording
from .textfiles import TextFiles
from .wire import Wire

REPLAYS = 1024  # signatures of clients' messages that are remembered
PORTS = 64  # held: pairs of MASTER_PORT and JAX port, a fresh one per world and broken group
TIDY_EVENTS = 5000  # a hundred cells of eight ranks
POLITE_SECONDS = 1.5  # between shutdown_request and SIGTERM

log = logging.getLogger("spmd_kernel")


@dataclass(frozen=True, slots=True)
class _Polite:
    """The key of the time that a rank has to end by itself."""

    rank: Rank


class Driver:
    def __init__(
        self,
        settings: Settings,
        connection: ConnectionInfo,
        loop: asyncio.AbstractEventLoop,
        record: TextIO | None = None,
        engine: Callable[[EngineContext], Engine] | None = None,
    ):
        """``record``: where to write every event (`io.record`).  ``engine``: instead of `local`."""
        self._loop = loop
        memory.keep()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, 16384)
        self._front = Front(
            self._context,
            connection,
            Wire(connection.key, connection.signature_scheme, remember=REPLAYS),
            self._from_front,
            lambda topic: self._feed(Subscribed(self._now(), topic)),
            log.warning,
        )
        self._front.bind()
        self._ports = HeldPorts(PORTS)
        rank_key = secrets.token_hex(32).encode()
        self._wires = {
            key: Wire(key, session=settings.session, remember=0) for key in (rank_key, b"")
        }
        make = engine or load_engine("local")
        self._engine = make(EngineContext(loop, self, rank_key, settings.environ))
        self._links: dict[Rank, tuple[int, RankLink]] = {}
        self._endpoints: dict[Rank, Endpoint] = {}
        self._memory = memory.Memory(loop)
        self._log_files = LogFiles(lambda *why: self._feed(LogFailed(self._now(), *why)))
        self._text_files = TextFiles(lambda *why: self._feed(TextFailed(self._now(), *why)))
        self._cell_files = CellFiles(settings.cells, log.warning)
        self._deadlines = Deadlines(
            loop, lambda away: log.warning("this process stood still for %.0f s", away)
        )
        self._now = self._deadlines.now
        self._debug_port = DebugPort(loop, self._now, self._feed)
        self._gpu_memory = GpuMemory(loop)
        self._leaving: asyncio.Future[int] = loop.create_future()
        front = {f"{name}_port": port for name, port in self._front.connection.ports.items()}
        settings = replace(settings, ports=self._ports.ports, front=front)
        self._recording = Recording(record, settings) if record is not None else None
        self._hub = Hub(settings)
        self._environ = settings.environ
        self._parent: int | None = None  # pidfd
        self._closing = False
        self._waiting: deque[Event] = deque()
        self._untidy = 0  # events since the last `_tidy`
        self._handling = False

    async def run(self) -> int:
        """From the first event to the exit code."""
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._loop.add_signal_handler(signum, self._signalled, signum)
        self._front.start(self._loop)
        # Who has subscribed already is welcomed before anything else is said.
        await asyncio.sleep(0)
        gc.freeze()  # what exists now lives as long as we do, and need not be looked at again
        self._watch_parent(self._environ.get("JPY_PARENT_PID", ""))
        self._feed(Began(self._now()))
        try:
            return await self._leaving
        finally:
            await self.close()

    def _watch_parent(self, pid: str) -> None:
        """Whoever started us died: a kernel that nobody can reach ends (ipykernel's ParentPoller)."""
        if not pid.isdigit() or not hasattr(os, "pidfd_open"):
            return
        try:
            self._parent = os.pidfd_open(int(pid))
        except ProcessLookupError:
            self._signalled(signal.SIGTERM)
        except OSError as error:
            log.info("the parent cannot be watched: %s", error)
        else:
            self._loop.add_reader(self._parent, self._parent_died)

    def _parent_died(self) -> None:
        if self._parent is not None:
            self._loop.remove_reader(self._parent)
            os.close(self._parent)
            self._parent = None
            self._signalled(signal.SIGTERM)

    async def close(self) -> None:
        self._closing = True
        if self._parent is not None:
            self._loop.remove_reader(self._parent)
            os.close(self._parent)
            self._parent = None
        for _, link in self._links.values():
            link.close()
        self._deadlines.close()
        await self._debug_port.shut_down()
        self._front.drain()
        await self._engine.close()
        self._front.close()
        self._ports.close()
        self._log_files.close()
        self._text_files.close()
        self._context.term()

    # ---------------------------------------------------------------- events

    def _feed(self, event: Event) -> None:
        """One event after the other: what an effect brings about waits for the effects beside it."""
        self._waiting.append(event)
        if self._handling:
            return
        self._handling = True
        try:
            while self._waiting:
                self._handle(self._waiting.popleft())
        finally:
            self._handling = False

    def _handle(self, event: Event) -> None:
        self._write_down(event)
        self._untidy += 1
        if self._untidy == TIDY_EVENTS:
            self._tidy()
        for effect in self._hub.handle(event):
            try:
                self.perform(effect)
            except Exception:
                log.exception("could not perform %s", type(effect).__name__)

    def _tidy(self) -> None:
        """A full collection: it empties CPython's free lists, which else grow for thousands of cells.

        Without one the process grew by 0.7 kB a cell, with it by 0.2; it takes 1 ms.
        """
        self._untidy = 0
        gc.collect()

    def _write_down(self, event: Event) -> None:
        try:
            if self._recording is not None:
                self._recording.write(event)
        except Exception:
            log.exception("the recording ends here")
            self._recording = None

    def _from_front(self, channel: Channel, idents: tuple[bytes, ...], message: Message) -> None:
        self._memory.came(message)
        self._feed(FromFront(self._now(), channel, idents, message))

    def _signalled(self, signum: int) -> None:
        self._feed(Signalled(self._now(), signum))

    # `engines.base.EngineEvents`

    def rank_started(self, endpoint: Endpoint) -> None:
        rank, generation = endpoint.rank, endpoint.generation

        def deliver(channel: Channel, message: Message) -> None:
            self._memory.came(message)
            self._feed(FromRank(self._now(), rank, generation, channel, message))

        def ready(info: Mapping[str, Any]) -> None:
            self._feed(RankReady(self._now(), rank, generation, endpoint.pid, info, endpoint.start))

        link = RankLink(
            self._context, self._loop, endpoint, self._wires[endpoint.key], deliver, ready,
            log.warning,
        )  # fmt: skip
        self._links[rank] = (generation, link)
        self._endpoints[rank] = endpoint

    def rank_exited(
        self,
        rank: Rank,
        generation: int,
        cause: Cause,
        stderr: str,
        words: Sequence[LastWords] = (),
    ) -> None:
        """Its last words first: the event comes when its IOPub is drained."""
        if self._closing:
            return
        link_generation, link = self._links.get(rank, (None, None))
        self._deadlines.cancel(_Polite(rank))

        def gone() -> None:
            unsent: tuple[tuple[str, str], ...] = ()
            if link is not None and link_generation == generation:
                unsent = tuple((w.stream, link.unheard(w)) for w in words)
            if link is not None and self._links.get(rank) == (generation, link):
                del self._links[rank]
                self._endpoints.pop(rank, None)
                link.close()
            self._feed(RankExited(self._now(), rank, generation, cause, stderr, unsent))

        if link is None or link_generation != generation:
            gone()
        else:
            link.when_drained(gone)

    # ---------------------------------------------------------------- effects

    def perform(self, effect: Effect) -> None:
        match effect:
            case ToFront():
                self._front.send(effect)
                self._memory.went(effect)
            case ToRank():
                self._to_ranks(effect.ranks, effect.channel, effect.message)
            case SetTimer():
                self._set_timer(effect.key, effect.at)
            case CancelTimer():
                self._deadlines.cancel(effect.key)
            case Launch():
                self._engine.start(effect.request)
            case Interrupt():
                self._interrupt(effect.ranks)
            case Stop():
                self._stop(effect.ranks, now=effect.now)
            case Survey():
                self._log_files.forgive(effect.folder)
                if effect.usage and present_gpus():
                    self._gpu_memory.ask(lambda used: self._survey(effect, used))
                else:
                    self._survey(effect)
            case Dump():
                self._dump(effect)
            case Unblock():
                found = self._engine.unblock(effect.ranks, effect.ports, store=effect.store)
                self._feed(Unblocked(self._now(), effect.token, *found))
            case Preload():
                self._preload(effect)
            case Listen():
                for rank in effect.ranks:
                    if rank in self._links:
                        self._links[rank][1].listen(effect.on)
            case AppendLog():
                self._log_files.append(effect.folder, effect.rank, effect.text)
            case AppendText():
                self._text_files.append(effect.path, effect.text)
            case DropText():
                self._text_files.drop(effect.path)
            case KeepSource():
                self._cell_files.keep(effect.path, effect.text)
            case ToConnection():
                self._debug_port.send(effect.connection, effect.data)
            case HangUp():
                self._debug_port.hang_up(effect.connection)
            case OpenPort():
                self._debug_port.open(effect.port)
            case ClosePort():
                self._debug_port.close()
            case Log():
                log.log(LEVELS[effect.level], "%s", effect.text)
            case Exit():
                if not self._leaving.done():
                    self._leaving.set_result(effect.code)
            case _:
                assert_never(effect)

    def _survey(self, effect: Survey, gpu_memory: Mapping[int, int] | None = None) -> None:
        facts = survey(
            self._engine.pids(),
            kernels=effect.kernels,
            folder=effect.folder,
            usage=effect.usage,
            gpu_memory=gpu_memory,
        )
        self._feed(Surveyed(self._now(), effect.token, facts))

    def _to_ranks(self, ranks: tuple[Rank, ...], channel: Channel, message: Message) -> None:
        packed = {}  # once for all, as they share a key
        for rank in ranks:
            if rank in self._links:
                key = self._endpoints[rank].key
                if key not in packed:
                    packed[key] = self._wires[key].pack(message)
                self._links[rank][1].send(channel, packed[key])

    def _set_timer(self, key: Hashable, at: float) -> None:
        self._deadlines.set(key, at, lambda: self._feed(TimerFired(self._now(), key)))

    def _dump(self, effect: Dump) -> None:
        def done(stacks: Mapping[Rank, str], pulses: Mapping[Rank, Pulse]) -> None:
            if not self._closing:
                self._feed(Dumped(self._now(), effect.token, stacks, pulses))

        self._engine.dump(effect.ranks, done)

    def _preload(self, effect: Preload) -> None:
        def done(problem: str) -> None:
            if not self._closing:
                self._feed(Preloaded(self._now(), effect.token, problem))

        self._engine.preload(effect.request, done)

    def _interrupt(self, ranks: tuple[Rank, ...]) -> None:
        by_message = tuple(r for r in ranks if self._mode(r) == "message")
        if by_message:
            self._request(by_message, "interrupt_request", {})
        self._engine.signal([r for r in ranks if r not in by_message], signal.SIGINT)

    def _mode(self, rank: Rank) -> str:
        endpoint = self._endpoints.get(rank)
        return endpoint.interrupt_mode if endpoint else "signal"

    def _stop(self, ranks: tuple[Rank, ...], *, now: bool) -> None:
        if now:
            self._engine.stop(ranks, now=True)
            return
        self._engine.expect_end(ranks)
        self._request(ranks, "shutdown_request", {"restart": False})
        for rank in ranks:
            at = self._now() + POLITE_SECONDS
            self._deadlines.set(_Polite(rank), at, partial(self._engine.stop, (rank,), now=False))

    def _request(self, ranks: tuple[Rank, ...], msg_type: str, content: dict[str, Any]) -> None:
        message = self._wires[b""].compose(msg_type, json.dumps(content).encode(), {}, {})
        self._to_ranks(ranks, "control", message)


LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def load_engine(name: str) -> Callable[[EngineContext], Engine]:
    """``local``, or what a package offers as entry point in the group ``spmd_kernel.engines``.

    Raises `UsageError` when there is none of this name.
    """
    if name == "local":  # every start's: looking for installed ones takes 20 ms
        return LocalEngine
    from importlib.metadata import entry_points

    found = entry_points(group="spmd_kernel.engines")
    for entry in found:
        if entry.name == name:
            factory: Callable[[EngineContext], Engine] = entry.load()
            return factory
    names = ", ".join(sorted({"local", *(entry.name for entry in found)}))
    raise UsageError(f"there is no launcher engine {name!r}", f"installed engines: {names}")


def log_level(name: str) -> int:
    """Raises `UsageError` on a name that is none."""
    levels = logging.getLevelNamesMapping()
    level = levels.get(name.strip().upper() or "WARNING")
    if level is None:
        raise UsageError(f"SPMD_LOG is {name!r}: not a log level", f"one of {', '.join(levels)}")
    return level


def run(settings: Settings, connection_file: str, record: str | None = None) -> int:
    """Serve until shutdown; the exit code of the process."""
    logging.basicConfig(
        stream=sys.stderr, level=log_level(os.environ.get("SPMD_LOG", "")), format=LOG_FORMAT
    )
    connection = ConnectionInfo.read(connection_file)

    async def main(recording: TextIO | None) -> int:
        return await Driver(settings, connection, asyncio.get_running_loop(), recording).run()

    if record is None:
        return asyncio.run(main(None))
    with open(record, "w", encoding="utf-8", opener=private) as recording:
        return asyncio.run(main(recording))


def private(path: str, flags: int) -> int:
    """For `open`: a new file that only its owner can read. What clients say is in a recording."""
    return os.open(path, flags, 0o600)


LOG_FORMAT = "[spmd_kernel %(levelname).1s %(asctime)s] %(message)s"
