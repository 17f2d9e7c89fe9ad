"""The only composer: routes each event to the machines in a fixed order, and catches what they raise.

`Hub.handle` is total: it never awaits and never raises.  Whatever goes wrong inside a machine while
it serves a request becomes that request's one error reply, its idle, and one log line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .cells import ROUND, Cell, Cells
from .comms import Comms
from .content import dumps, read
from .conversation import REPORT, Conversations, Script, Talk
from .errors import BadMessage, InternalError, RankLost, SpmdError
from .group import Group, LaunchRanks, Replay, Slot, StopRanks
from .late import Late
from .literals import assigned_names, is_literal_assignments
from .magics import MAGICS
from .magics.base import Ask, Look, Page, Run, Say, Start, StartReport
from .magics.split import split
from .model import (
    Began,
    Effect,
    Event,
    Exit,
    Facts,
    FromFront,
    FromRank,
    Header,
    Message,
    Rank,
    RankExited,
    RankReady,
    Settings,
    Signalled,
    Subscribed,
    Survey,
    Surveyed,
    TimerFired,
    ToFront,
)
from .outputs import DisplayIds
from .queries import QUERIES, unsupported
from .replies import error_reply, payload_of
from .stage import Stage
from .stdin import Stdin

SIGINT = 2
IGNORED = {"status", "execute_input", "iopub_welcome", "shutdown_reply", "debug_event"}
OUTPUTS = {
    "stream",
    "display_data",
    "update_display_data",
    "execute_result",
    "error",
    "clear_output",
}


class Hub:
    def __init__(self, settings: Settings):
        self.settings = settings
        self.stage = Stage(settings)
        self.conversations = Conversations(self.stage)
        self.group = Group(self.stage)
        self.comms = Comms(self.stage)
        self.stdin = Stdin(self.stage)
        self.display_ids = DisplayIds()
        self.late = Late(self.stage, self.display_ids)
        self.cells = Cells(
            self.stage, self.group, self.display_ids, self._cell_script, self._perform, self._ended
        )
        self._held: list[FromFront] | None = []  # what clients sent before the first ranks were up
        self._surveys: dict[int, Any] = {}
        self._survey_token = 0
        self._comm_waits: dict[str, tuple[Header, set[Rank]]] = {}
        self._prelude: list[Replay] = []
        self._prelude_open = True
        self._user_cell_seen = False
        self._closing = False

    # ---------------------------------------------------------------- the contract

    def handle(self, event: Event) -> list[Effect]:
        """What follows from ``event``. Total: no exception leaves here."""
        self.stage.at = event.at
        try:
            self._dispatch(event)
            self.cells.next()
        except BadMessage as error:
            self.stage.log("warning", f"dropped: {error}")
        except Exception as error:
            self._fault(error)
        return self.stage.take()

    def _fault(self, error: Exception) -> None:
        self.stage.log("error", f"internal error: {type(error).__name__}: {error}")
        self.cells.rescue(InternalError(f"{type(error).__name__}: {error}", REPORT))

    def _dispatch(self, event: Event) -> None:
        match event:
            case FromRank():
                self._from_rank(event)
            case FromFront():
                self._from_front(event)
            case TimerFired():
                self._timer(event.key)
            case RankReady():
                self.group.ready(event)
            case RankExited():
                self._rank_exited(event)
            case Subscribed():
                topic = event.topic.decode("utf-8", "replace")
                self.stage.publish("iopub_welcome", dumps({"subscription": topic}), {})
            case Signalled():
                self._signalled(event.signum)
            case Surveyed():
                if resume := self._surveys.pop(event.token, None):
                    resume(event.facts)
            case Began():
                self._begin()

    # ---------------------------------------------------------------- start and end

    def _begin(self) -> None:
        self.stage.status("starting", {})
        first = self._start(Start(self.settings.processes))
        Talk(first, self._perform, self._started).step()

    def _start(self, want: Start) -> Script:
        facts: Facts = yield Look()
        self._prelude_open = self._prelude_open and not self._user_cell_seen
        return (
            yield from self.group.start(
                want.size,
                env=want.env,
                keep=want.keep,
                kernel=want.kernel,
                count=self.cells.count,
                replay=tuple(self._prelude),
                facts=facts,
            )
        )

    def _started(self, report: StartReport | None, error: SpmdError | None) -> None:
        if error is not None:
            self.stage.log("error", str(error))
        held, self._held = self._held or [], None
        for event in held:
            self._guarded(event)

    def _signalled(self, signum: int) -> None:
        if signum == SIGINT:
            self._interrupt()
        else:
            self.cells.abort_all()
            self.stage.emit(Exit(0))

    def _interrupt(self) -> None:
        self.stdin.withdraw()
        self.cells.interrupt()

    def _shut_down(self, event: FromFront | None, content: Mapping[str, Any]) -> None:
        if self._closing:
            return
        self._closing = True
        self.cells.abort_all()
        self.late.flush_all()

        def gone(_: Any, error: SpmdError | None) -> None:
            if event is not None:
                self._answer(event, "shutdown_reply", content)
                self.stage.publish("shutdown_reply", dumps(content), event.message.header)
                self.stage.status("idle", event.message.header)
            self.stage.emit(Exit(0))

        Talk(self._stop_everybody(), self._perform, gone).step()

    def _stop_everybody(self) -> Script:
        yield StopRanks(tuple(self.group.slots))

    # ---------------------------------------------------------------- scripts and their wants

    def _perform(self, talk: Talk, want: Any) -> None:
        match want:
            case Ask():
                message = self.stage.own_request(want.msg_type, want.content)
                talk.wait_for(
                    lambda resume: self.conversations.ask(
                        want.ranks, self.group.alive, message, resume, want.channel, want.seconds
                    )
                )
            case Run():
                call_is_cell = self.cells.running is not None and self._stores
                self.cells.run(talk, want, stores=call_is_cell)
            case Say():
                self._say(want.text)
                talk.step()
            case Page():
                assert self.cells.running is not None
                data = {"text/plain": want.text}
                self.cells.running.payload.append({"source": "page", "data": data, "start": 0})
                talk.step()
            case Look():
                talk.wait_for(lambda resume: self._look(want, resume))
            case Start():
                talk.nest(Talk(self._start(want), self._perform, talk.step))
            case StopRanks():
                talk.wait_for(lambda resume: self.group.stop(want, resume))
            case LaunchRanks():
                talk.wait_for(lambda resume: self.group.launch(want, resume))
            case _:
                talk.step(error=InternalError(f"unknown want {want!r}", REPORT))

    def _look(self, want: Look, resume: Any) -> Any:
        self._survey_token += 1
        token = self._survey_token
        self._surveys[token] = resume
        self.stage.emit(Survey(token, want.kernels))
        return lambda: self._surveys.pop(token, None)

    def _say(self, text: str) -> None:
        cell = self.cells.running
        if cell is not None and text:
            content = dumps(
                {"name": "stdout", "text": text if text.endswith("\n") else text + "\n"}
            )
            self.stage.publish("stream", content, cell.message.header)

    # ---------------------------------------------------------------- a cell

    _stores = False  # whether the `Run` at hand is the round that counts (not that of a line magic)

    def _cell_script(self, cell: Cell) -> Script:
        self._stores = False
        if not cell.silent:
            self._user_cell_seen = True
        self.stdin.begin(cell.idents, cell.message.header, self.group.alive)
        code = cell.code
        if "%" in code:
            plan = split(code, MAGICS, self.settings.language)
            cell.magics = bool(plan.steps)
            for call in plan.steps:
                magic = MAGICS[call.name]
                self._stores = magic.kind == "cell"
                yield from magic.run(call, _MagicView(self, cell))
            code = plan.rest
            if cell.magics and not code.strip():
                return
        self._stores = True
        yield Run(tuple(self.group.slots), code)

    def _ended(self, cell: Cell, failed: bool) -> None:
        self.stdin.withdraw()
        self.late.flush(cell.msg_id)
        if not failed:
            self._remember(cell)
        last = cell.last
        if last is None or self._closing:
            return
        leaving = [
            rank for rank, reply in last.replies.items() if any(map(_ends, payload_of(reply)))
        ]
        if leaving and set(leaving) >= set(self.group.slots):
            self._shut_down(None, {})

    def _remember(self, cell: Cell) -> None:
        """What prepares ranks is said again to the ones that the first `%processes` starts."""
        if not self._prelude_open or cell.magics or not cell.code.strip():
            return
        if is_literal_assignments(cell.code):
            self._prelude.append(Replay(cell.code, assigned_names(cell.code)))
        elif cell.silent and not self._user_cell_seen:
            self._prelude.append(Replay(cell.code))

    # ---------------------------------------------------------------- what clients send

    def _from_front(self, event: FromFront) -> None:
        kind = event.message.msg_type
        urgent = kind in ("shutdown_request", "interrupt_request") or event.channel == "stdin"
        if self._held is not None and not urgent:
            self._held.append(event)
        else:
            self._guarded(event)

    def _guarded(self, event: FromFront) -> None:
        """Serve a request; a fault of its sender is answered to its sender."""
        try:
            self._serve(event)
        except SpmdError as error:
            self.stage.log("warning", f"{event.message.msg_type or 'message'}: {error}")
            self._answer_error(event, error)
        except Exception as error:
            self.stage.log("error", f"{event.message.msg_type}: {type(error).__name__}: {error}")
            self._answer_error(event, InternalError(str(error), REPORT))

    def _serve(self, event: FromFront) -> None:
        message, kind = event.message, event.message.msg_type
        if event.channel == "stdin":
            if kind == "input_reply":
                self.stdin.answered(message)
        elif kind == "execute_request":
            self._execute(event)
        elif kind in ("comm_open", "comm_msg", "comm_close"):
            self._comm_from_front(event)
        elif kind == "interrupt_request":
            self._framed(event, "interrupt_reply", {"status": "ok"})
            self._interrupt()
        elif kind == "shutdown_request":
            self._shutdown_request(event)
        elif kind.endswith("_request"):
            self._query(event)
        else:
            self.stage.log("warning", f"unknown message type {kind!r} on {event.channel}")

    def _execute(self, event: FromFront) -> None:
        if event.channel != "shell":
            raise BadMessage(f"execute_request on {event.channel}")
        if self._closing:
            self._framed(event, "execute_reply", {"status": "aborted"})
        else:
            self.cells.request(event)

    def _shutdown_request(self, event: FromFront) -> None:
        restart = _flag(event.message, "restart")
        self.stage.status("busy", event.message.header)
        if self._closing:
            self._answer(event, "shutdown_reply", {"status": "ok", "restart": restart})
            self.stage.status("idle", event.message.header)
        self._shut_down(event, {"status": "ok", "restart": restart})

    def _query(self, event: FromFront) -> None:
        header = event.message.header
        query = QUERIES.get(event.message.msg_type, unsupported)
        self.stage.status("busy", header)

        def done(content: dict[str, Any] | None, error: SpmdError | None) -> None:
            if error is not None:
                content = _error_content(error)
            self._answer(event, _reply_type(event.message), content or {})
            self.stage.status("idle", header)

        Talk(query(event.message, self), self._perform, done).step()

    def _answer(self, event: FromFront, msg_type: str, content: Mapping[str, Any]) -> None:
        self.stage.emit(
            ToFront(event.channel, event.idents, msg_type, dumps(content), event.message.header)
        )

    def _framed(self, event: FromFront, msg_type: str, content: Mapping[str, Any]) -> None:
        self.stage.status("busy", event.message.header)
        self._answer(event, msg_type, content)
        self.stage.status("idle", event.message.header)

    def _answer_error(self, event: FromFront, error: SpmdError) -> None:
        if event.message.msg_type.endswith("_request"):
            content = _error_content(error)
            if event.message.msg_type == "execute_request":
                content = error_reply(content, self.cells.count)
            self._framed(event, _reply_type(event.message), content)

    # what queries see (`queries.QueryContext`)

    @property
    def alive(self) -> tuple[Rank, ...]:
        return self.group.alive

    @property
    def kernel_info(self) -> Mapping[str, Any]:
        return self.group.info

    def comm_info(self, target: str | None) -> dict[str, Any]:
        return self.comms.info(target)

    def _comm_from_front(self, event: FromFront) -> None:
        """Idle follows when the ranks that got it are done: widgets throttle by it."""
        message = event.message
        self.stage.status("busy", message.header)
        plain = {k: v for k, v in message.header.items() if k != "subshell_id"}
        sent = Message(plain, message.parent, message.metadata, message.content, message.buffers)
        try:
            owners = set(self.comms.from_front(sent, self.group.alive))
        except BadMessage:
            self.stage.status("idle", message.header)
            raise
        if owners:
            self._comm_waits[message.msg_id] = (message.header, owners)
        else:
            self.stage.status("idle", message.header)

    def _comm_served(self, msg_id: str, rank: Rank) -> None:
        if msg_id not in self._comm_waits:
            return
        header, owners = self._comm_waits[msg_id]
        owners.discard(rank)
        if not owners:
            del self._comm_waits[msg_id]
            self.stage.status("idle", header)

    # ---------------------------------------------------------------- what ranks send

    def _from_rank(self, event: FromRank) -> None:
        if self.group.current(event.rank, event.generation) is None:
            self.stage.log(
                "debug", f"late {event.message.msg_type} of a replaced rank {event.rank}"
            )
        elif event.channel == "iopub":
            self._iopub(event.rank, event.message)
        elif event.channel == "stdin":
            self._asked(event.rank, event.message)
        elif not self.cells.replied(event.rank, event.message):
            self.conversations.replied(event.rank, event.message)

    def _asked(self, rank: Rank, message: Message) -> None:
        fanout = self.cells.running.fanout if self.cells.running else None
        if message.msg_type != "input_request" or fanout is None or rank not in fanout.running:
            self.stage.log("warning", f"rank {rank}: {message.msg_type} outside of its cell")
            return
        self.cells.cut(rank)
        self.stdin.asked(rank, message, fanout.running, self.group.size)

    def _iopub(self, rank: Rank, message: Message) -> None:
        kind = message.msg_type
        if kind == "status":
            if b'"idle"' in message.content:
                self._idle(rank, message.parent_id)
        elif kind in OUTPUTS:
            fanout = self.cells.fanout_of(message.parent_id)
            if fanout is not None and rank in fanout.ranks and rank not in fanout.lost:
                self.cells.output(fanout, rank, message)
            else:
                self._late_output(rank, message)
        elif kind not in IGNORED:
            if kind.startswith("comm_"):
                self.comms.from_rank(rank, message)
            self.stage.publish(
                kind, message.content, self._home(message), message.metadata, message.buffers
            )

    def _idle(self, rank: Rank, msg_id: str) -> None:
        if not self.cells.idle(rank, msg_id):
            self._comm_served(msg_id, rank)

    def _late_output(self, rank: Rank, message: Message) -> None:
        self.late.feed(
            rank, message, self._home(message), self.group.alive or (rank,), self.group.size
        )

    def _home(self, message: Message) -> Header:
        """The front request that a rank's message belongs to."""
        parent = message.parent
        running = self.cells.running
        if not parent:  # before its first request: what a starting process says
            return parent
        if not self.stage.is_own(parent):
            kind = str(parent.get("msg_type", ""))
            if kind == "execute_request":
                msg_id = message.parent_id.partition(ROUND)[0]
                if running is not None and running.msg_id == msg_id:
                    return running.message.header
                if not self._is_waiting(msg_id):
                    return {**parent, "msg_id": msg_id}
            if kind.startswith("comm_"):
                return parent
        return running.message.header if running else self.cells.last_header or {}

    def _is_waiting(self, msg_id: str) -> bool:
        """A cell that has not begun: no honest rank can speak of it."""
        held = (event.message.msg_id for event in self._held or ())
        return self.cells.is_queued(msg_id) or msg_id in held

    def _rank_exited(self, event: RankExited) -> None:
        rank = event.rank
        died = self.group.exited(event)
        if died is not None and not self._closing:
            self._report_death(died)
        if self.group.current(rank, event.generation) is not None:
            self.stdin.lost(rank)
            self.comms.lost(rank)
            for msg_id in list(self._comm_waits):
                self._comm_served(msg_id, rank)
            self.conversations.lost(rank)
        self.group.check()

    def _report_death(self, slot: Slot) -> None:
        """At once, in the running cell; between cells, in the last one."""
        error = RankLost(slot.obituary(), self._recovery())
        content = {
            "ename": error.ename,
            "evalue": str(error),
            "traceback": _with_last_words(error.lines(), slot.stderr),
        }
        self.stage.log("error", str(error))
        if not self.cells.lost(slot.rank, content) and self.cells.last_header is not None:
            text = "\n".join(error.lines()) + "\n"
            self.stage.publish(
                "stream", dumps({"name": "stderr", "text": text}), self.cells.last_header
            )

    def _recovery(self) -> str:
        size = self.group.size
        if size == 1:
            return "`%processes 1` starts it again; its variables are lost"
        return f"`%processes {size}` brings it back; the other ranks keep their variables"

    # ---------------------------------------------------------------- timers

    def _timer(self, key: Any) -> None:
        match key:
            case ("output", str(msg_id)):
                self.cells.output_due(msg_id)
            case ("late", str(msg_id)):
                self.late.due(msg_id)
            case ("fence", str(msg_id)):
                self.cells.fence_due(msg_id)
            case ("on-error", str(msg_id)):
                self.cells.others_overdue(msg_id)
            case ("overdue", str(msg_id)):
                self.cells.survivors_overdue(msg_id)
            case ("ask", str(msg_id)):
                self.conversations.expired(msg_id)
            case ("start", int(generation)):
                self.group.overdue(generation)
            case "stdin":
                self.stdin.window_over()


class _MagicView:
    """What a magic sees of the hub (`magics.base.Context`)."""

    def __init__(self, hub: Hub, cell: Cell):
        self._hub = hub
        self.settings = hub.settings
        self.headless = cell.headless

    @property
    def kernel(self) -> str:
        return self._hub.group.kernel

    @property
    def world(self) -> tuple[Any, ...]:
        return self._hub.group.view()

    @property
    def on_error(self) -> str | None:
        return self._hub.cells.on_error

    def set_on_error(self, value: str) -> None:
        self._hub.cells.on_error = value


def _ends(item: Any) -> bool:
    """The payload of ``exit()``."""
    return (
        isinstance(item, dict) and item.get("source") == "ask_exit" and not item.get("keepkernel")
    )


def _flag(message: Message, name: str) -> bool:
    try:
        return read(message.content).flag(name)
    except BadMessage:
        return False


def _reply_type(message: Message) -> str:
    return message.msg_type.removesuffix("_request") + "_reply"


def _error_content(error: SpmdError) -> dict[str, Any]:
    return {
        "status": "error",
        "ename": error.ename,
        "evalue": str(error),
        "traceback": error.lines(),
    }


def _with_last_words(lines: list[str], stderr: str) -> list[str]:
    if not stderr.strip():
        return lines
    return [lines[0], "its last words on stderr:", *stderr.rstrip().splitlines(), *lines[1:]]
