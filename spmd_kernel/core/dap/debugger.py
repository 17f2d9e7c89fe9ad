"""The debugger of all ranks: what clients ask, what ranks say, who joins and who dies.

Each rank has a debugger of its own (ipykernel's, with debugpy behind it).  Here N of them are one: ranks
are threads, requests go where their arguments point (`commands`, `routing`), numbers and paths are
rewritten (`translate`), and each client hears of stops as its policy has it (`events`).

Until a client sends `initialize` there is nothing here but empty tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from ..content import read
from ..conversation import Conversations, Script, Talk
from ..errors import UsageError
from ..model import Effect, Header, Interrupt, Message, Rank, ToRank
from ..outputs.labels import label, label_lines
from ..slot import Slot
from ..stage import Stage
from .asking import Asking
from .base import Ask, Call, Outcome, Stops
from .breakpoints import Store
from .debuggees import Debuggees, choose
from .ids import MAIN, Table, Threads
from .lifecycle import join, pass_on, release
from .nodes import Node
from .repair import REPAIR
from .session import Session
from .sources import Sources
from .translate import Translator

# Requests that ipykernel serves on its control thread: they say nothing of the main one.
BESIDE = {
    "debug_request", "interrupt_request", "shutdown_request", "usage_request",
    "create_subshell_request", "delete_subshell_request", "list_subshell_request",
}  # fmt: skip
# What debugpy says then, and that it will stop at nothing any more.
HIT = "raised from within the callback set in sys."
STOPPED_BY = "KeyboardInterrupt"  # no exception to look at, when the user pressed Stop
CLOSING = "the kernel shuts down"
STEP_SECONDS = 3.0  # a single rank that is not back from a step is told of


class Ranks(Protocol):
    """What the debugger needs of the group."""

    slots: dict[Rank, Slot]

    @property
    def alive(self) -> tuple[Rank, ...]: ...
    @property
    def size(self) -> int: ...


class Debugger:
    def __init__(
        self,
        stage: Stage,
        ranks: Ranks,
        conversations: Conversations,
        perform: Callable[[Talk, Any], None],
        play: Callable[[Script, Callable[[object], None]], None],
    ):
        """``perform`` begins what scripts want; ``play`` runs one that nobody waits for."""
        self.stage = stage
        self.ranks = ranks
        self.perform = perform
        self._play = play
        self.sessions: list[Session] = []
        self.debuggees = Debuggees()
        self.asking = Asking(stage, ranks, conversations)
        self.sources = Sources(stage.settings.cells)
        self.store = Store()
        self.threads = Threads()
        self.translator = Translator(self.sources, self.store, self.threads)
        self.nodes: dict[int, Node] = {}
        self.tables: dict[int, Table] = {}  # whose numbers the children of a node get
        self.pinned: Rank | None = None
        self.initialize_arguments: dict[str, Any] = {}
        self.attach_arguments: dict[str, Any] = {}
        self.capabilities: dict[str, Any] = {}
        self._waits: list[tuple[Stops | Outcome, Callable[[], None]]] = []
        self._keys = 0
        self._closed = False

    # ---------------------------------------------------------------- looking

    @property
    def size(self) -> int:
        return self.ranks.size

    @property
    def live(self) -> tuple[Rank, ...]:
        """Ranks that take part."""
        alive = set(self.ranks.alive)
        return tuple(rank for rank in self.debuggees.attached if rank in alive)

    @property
    def is_on(self) -> bool:
        return bool(self.debuggees.all)

    @property
    def focus(self) -> Rank | None:
        """The stopped rank that is looked at."""
        return choose(self.debuggees, self.pinned, self._last_focus())

    def focus_of(self, session: Session) -> Rank | None:
        return choose(self.debuggees, self.pinned, session.policy.focus)

    def _last_focus(self) -> Rank | None:
        found = (session.policy.focus for session in self.sessions)
        return next((rank for rank in found if rank is not None), None)

    def in_cell(self, rank: Rank) -> bool:
        found = self.debuggees.of(rank)
        return found is not None and (found.at_work or found.stop is not None)

    # ---------------------------------------------------------------- requests

    def script(self, call: Call) -> Script:
        """What serves a request; it returns the body of the response."""
        from .commands import COMMANDS, default

        if self._closed:
            raise UsageError(CLOSING)
        command = COMMANDS.get(call.command)
        return command.play(call) if command is not None else default(call)

    def want(self, talk: Talk, want: Ask | Stops | Outcome) -> None:
        """Begin what a script wants of the ranks' debuggers (`performer.Performer` calls it)."""
        if isinstance(want, Ask):
            talk.wait_for(lambda resume: self.asking.ask(want, resume))
        else:
            talk.wait_for(lambda resume: self._wait(want, resume))

    def close(self) -> None:
        """The kernel shuts down."""
        self._closed = True
        for session in self.sessions:
            session.close(CLOSING)

    # ---------------------------------------------------------------- waiting for stops

    def _wait(self, want: Stops | Outcome, resume: Callable[[], None]) -> Callable[[], None]:
        entry = want, resume
        self._waits.append(entry)
        self.stage.timer(("dap-stops", want.key), want.seconds)
        self._check_waits()

        def give_up() -> None:
            if entry in self._waits:
                self._waits.remove(entry)

        return give_up

    def _check_waits(self) -> None:
        for entry in list(self._waits):
            want, resume = entry
            may = self._may_stop if isinstance(want, Stops) else self.debuggees.is_stopped
            if not any(may(rank) for rank in want.ranks) and entry in self._waits:
                self._waits.remove(entry)
                self.stage.cancel(("dap-stops", want.key))
                resume()

    def _may_stop(self, rank: Rank) -> bool:
        found = self.debuggees.of(rank)
        return found is not None and found.at_work and found.stop is None and rank in self.live

    # ---------------------------------------------------------------- what ranks say

    def heard(self, rank: Rank, message: Message) -> None:
        """A `debug_event` of a rank.  One that makes no sense is the rank's fault: `BadMessage`."""
        if self.debuggees.of(rank) is None:
            return
        event = read(message.content)
        kind, body = event.text("event"), event.mapping("body")
        seq = event.get("seq")
        self._event(rank, kind, body, seq if isinstance(seq, int) else -1)
        self._check_waits()

    def _event(self, rank: Rank, kind: str, body: dict[str, Any], seq: int) -> None:
        match kind:
            case "stopped":
                self._stopped(rank, body, seq)
            case "continued":
                if self.debuggees.continued_at(rank, seq):
                    self._hit(rank)
                    self._play(release(self, rank), lambda _: None)
                self._runs(rank)
            case "terminated":
                self._terminated(rank)
            case "output":
                self._output(rank, body)
            case "thread":
                told = self.translator.out(rank, body)
                for session in self._attached():
                    session.policy.thread(told)
            case (
                "initialized" | "process" | "exited" | "debugpySockets" | "debugpyWaitingForServer"
            ):
                pass
            case _:
                if rank == min(self.live, default=rank):  # all ranks say the same, as a rule
                    self.post(kind, self.translator.out(rank, body))

    def _stopped(self, rank: Rank, body: dict[str, Any], seq: int) -> None:
        told = self.translator.out(rank, body)
        if not self.debuggees.stopped_at(rank, body | _hits(told), seq, self.stage.at):
            return
        found = self.debuggees.all[rank]
        assert found.stop is not None
        if found.stop.tid == MAIN and not found.at_work:
            self._repair(rank)  # its cell was over before the event came
            return
        text = str(body.get("text") or body.get("description") or "")
        if (found.ours and found.stop.reason == "step") or (
            found.ending and found.stop.reason == "exception" and text.startswith(STOPPED_BY)
        ):
            self._play(pass_on(self, rank), lambda _: None)
            return
        self.stage.cancel(("dap-step", rank))
        for session in self._attached():
            session.policy.stopped(rank)

    def _runs(self, rank: Rank) -> None:
        self.drop(rank)
        for session in self._attached():
            session.policy.continued(rank)

    def drop(self, rank: Rank) -> None:
        """What clients hold of a rank that runs on is stale."""
        self.translator.drop(rank)
        for number in [n for n, node in self.nodes.items() if rank in node.ranks]:
            self.forget(number)

    def forget(self, number: int) -> None:
        del self.nodes[number]
        self.tables.pop(number, None)

    def next_key(self) -> int:
        self._keys += 1
        return self._keys

    def _terminated(self, rank: Rank) -> None:
        found = self.debuggees.of(rank)
        if found is None or rank not in self.ranks.alive:
            return
        found.ended = True
        if all(self.debuggees.all[r].ended for r in self.live):
            self.reset()

    def _output(self, rank: Rank, body: dict[str, Any]) -> None:
        if body.get("category") == "telemetry":
            return
        if HIT in str(body.get("output")):
            self._hit(rank)
            return
        told = self.translator.out(rank, body)
        text = told.get("output")
        if self.size > 1 and isinstance(text, str):
            end = "\n" if text.endswith("\n") else ""
            prefix = label((rank,), self.size)
            told["output"] = label_lines(prefix, text.removesuffix("\n")) + end
        self.post("output", told)

    def _hit(self, rank: Rank) -> None:
        """An interrupt came while its debugger was at work: mended as soon as the cell is over."""
        found = self.debuggees.all[rank]
        found.broken = True
        if not found.at_work:
            self._repair(rank)

    def status(self, rank: Rank, parent: Header, *, busy: bool) -> None:
        """Whether the rank's main thread is at a request."""
        found = self.debuggees.of(rank)
        if found is None or parent.get("msg_type") in BESIDE or parent.get("subshell_id"):
            return
        found.at_work, found.ours = busy, self.stage.is_own(parent)
        if not busy:
            self._cell_over(rank)
            self._check_waits()

    def _cell_over(self, rank: Rank) -> None:
        was_stopped, broken = self.debuggees.cell_over(rank)
        if broken:
            self._repair(rank)
        if was_stopped:
            self._runs(rank)

    def _repair(self, rank: Rank) -> None:
        """Sent at once, so that it is done before the next cell."""
        self.debuggees.cell_over(rank)
        self.stage.cancel(("dap-step", rank))
        self.stage.emit(ToRank((rank,), "shell", self.stage.own_execute(REPAIR, silent=True)))

    def note(self, effects: Iterable[Effect]) -> None:
        """What the hub does: a stopped rank that is interrupted goes on by itself."""
        for effect in effects:
            if isinstance(effect, Interrupt):
                self.debuggees.interrupt(effect.ranks, self.stage.at)

    # ---------------------------------------------------------------- who comes and goes

    def join(self) -> Script:
        """Ranks that were started while the debugger is on take part, as the others do."""
        if self.is_on or any(session.started for session in self.sessions):
            yield from join(self)

    def lost(self, rank: Rank, obituary: str) -> None:
        """A rank's process is gone; ``obituary``: how, if nobody wanted it."""
        self.asking.lost(rank)
        found = self.debuggees.remove(rank)
        if found is None:
            return
        self.sources.forget(rank)
        self.store.lost(rank)
        self.drop(rank)
        self.translator.lost(rank)
        tid = found.stop.tid if found.stop is not None else MAIN
        exited = {"reason": "exited", "threadId": self.threads.out(rank, tid)}
        for session in self._attached():
            session.policy.thread(exited)
            session.policy.continued(rank)
        if obituary:
            self.post("output", {"category": "stderr", "output": obituary + "\n"})
        self._check_waits()

    def reset(self) -> None:
        """Debugging is over for everybody."""
        self.post("terminated")
        for session in self.sessions:
            session.started = session.attached = False
            session.kept.clear()
            session.policy.reset()
            self.store.drop(session.name)
        for rank in self.debuggees.ranks:
            self.translator.lost(rank)
            self.debuggees.remove(rank)
        self.nodes.clear()
        self.tables.clear()
        self.sources.clear()
        self.pinned = None
        self._check_waits()

    # ---------------------------------------------------------------- telling clients

    def post(self, event: str, body: Mapping[str, Any] | None = None) -> None:
        for session in self._attached():
            session.post(event, body)

    def say(self, text: str) -> None:
        """To the users of all clients."""
        self.post("output", {"category": "important", "output": text + "\n"})

    def _attached(self) -> list[Session]:
        return [session for session in self.sessions if session.attached]

    # ---------------------------------------------------------------- time

    def due(self, key: Any) -> None:
        match key:
            case ("dap", str(name)):
                for session in self.sessions:
                    if session.name == name:
                        session.policy.due()
            case ("dap-stops", int(number)):
                for entry in list(self._waits):
                    if entry[0].key == number and entry in self._waits:
                        self._waits.remove(entry)
                        entry[1]()
            case ("dap-step", int(rank)):
                self._step_overdue(rank)

    def watch_step(self, rank: Rank) -> None:
        """One rank steps while others are stopped: a collective would wait for these."""
        self.stage.timer(("dap-step", rank), STEP_SECONDS)

    def _step_overdue(self, rank: Rank) -> None:
        found = self.debuggees.of(rank)
        if found is not None and found.armed and found.at_work and self.debuggees.stopped:
            from .commands.looking import tell_where

            self._play(tell_where(self, rank), lambda _: None)


def _hits(told: Mapping[str, Any]) -> dict[str, Any]:
    """Of a stopped event: breakpoints by the ids that clients know."""
    hits = told.get("hitBreakpointIds")
    return {"hitBreakpointIds": hits} if hits is not None else {}
