"""The only composer: routes each event to the machines in a fixed order, and catches what they raise.

`Hub.handle` is total: it never awaits and never raises.  Whatever goes wrong inside a machine while
it serves a request becomes that request's one error reply, its idle, and one log line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .beside import Answering, Beside
from .bursts import TIMER as BURST
from .bursts import Bursts
from .cell import Cell
from .cells import Cells
from .comms import COMMS, Comms
from .content import dumps
from .control import REQUEST, needs_ranks
from .control.status import snapshot, with_resources
from .conversation import REPORT, Conversations, Script, Talk
from .dap.debugger import Debugger
from .dap.jupyter import JupyterTransport
from .dap.tcp import TcpTransport
from .desk import Desk
from .echoes import TIMER as ECHOES
from .echoes import Echoes
from .errors import BadMessage, InternalError, Interrupted, SpmdError
from .fanout import Fanout
from .group import Group
from .inquiries import Inquiries
from .journal import CellLog
from .ladder import Ladder
from .late import Late
from .lookouts import Lookouts
from .magics import MAGICS
from .magics.base import (
    ANSWER_SECONDS,
    Look,
    Run,
    Start,
    StartReport,
)
from .magics.processes import require_memory
from .magics.split import split
from .model import (
    Began,
    Connected,
    Disconnected,
    Dumped,
    Effect,
    Event,
    Exit,
    Facts,
    FromFront,
    FromRank,
    Header,
    Interrupt,
    LogFailed,
    Message,
    PortOpened,
    Preloaded,
    Rank,
    RankExited,
    RankReady,
    Received,
    Settings,
    Signalled,
    Subscribed,
    Surveyed,
    TextFailed,
    TimerFired,
    Unblocked,
)
from .outputs import DisplayIds
from .performer import Performer
from .prelude import Prelude
from .replies import payload_of
from .reports import Reports
from .requests import Requests
from .rescue import MEND
from .rounds import Rounds
from .stacks import RunningCode
from .stage import Stage
from .status_comms import TIMER, StatusComms
from .stdin import Stdin
from .subshells import Subshells
from .timings import Timings
from .transcript import Transcript
from .view import MagicView
from .wants import StopRanks, silent
from .watch import Watch
from .where import where

SIGINT = 2


class Hub:
    def __init__(self, settings: Settings):
        self.settings = settings
        self.stage = Stage(settings)
        self.performer = Performer(self)
        self.conversations = Conversations(self.stage)
        self.group = Group(self.stage)
        self.stdin = Stdin(self.stage)
        self.display_ids = DisplayIds()
        self.transcript = Transcript(self.stage)
        self.late = Late(self.stage, self.display_ids)
        self.desk = Desk(self)
        self.status_comms = StatusComms(
            self.stage,
            lambda: snapshot(self.desk),
            with_resources,
            lambda resume: self.performer.look(Look(usage=True), resume),
            lambda: self.desk.state == "busy",
        )
        self.echoes = Echoes(self.stage)
        self.comms = Comms(
            self.stage,
            self.status_comms,
            self.late.flush,
            self.display_ids,
            self.echoes,
            lambda: Answering(self).beside,
        )
        self.cells = Cells(
            self.stage,
            self.group,
            self.display_ids,
            self._cell_script,
            self.performer.perform,
            self._ended,
            self._ranks_interrupted,
            self._round_began,
            self._rank_settled,
            self.echoes,
        )
        self.cells.rounds.asking = self.stdin.askers
        self.subshells = Subshells(
            self.stage,
            self.group,
            self.conversations,
            Beside(self).make,
            self.comms.are_in,
        )
        self.inquiries = Inquiries(self.stage, self.conversations, Answering(self))
        self.lookouts = Lookouts(self.stage)
        self.watch = Watch(self.stage, self.group, self.lookouts, self._cell_header)
        self.ladder = Ladder(
            self.stage,
            self.cells.rounds,
            self.group,
            self.lookouts,
            self.performer.play,
            self._cell_header,
        )
        self.debugger = Debugger(
            self.stage,
            self.group,
            self.conversations,
            self.performer.perform,
            self.performer.play,
        )
        self.cells.rounds.examined = lambda: self.debugger.debuggees.stopped
        self.debug_port = TcpTransport(self.stage, self.debugger)
        self.bursts = Bursts(self.stage, self._serve)
        self.requests = Requests(
            self.stage,
            self,
            self.group,
            self.cells,
            self.comms,
            self.stdin,
            self.performer.perform,
            self.desk,
            self.subshells,
            JupyterTransport(self.stage, self.debugger),
            self.bursts,
        )
        self.reports = Reports(
            self.stage,
            self,
            self.group,
            self.cells,
            self.comms,
            self.stdin,
            self.late,
            self.transcript,
            self.conversations,
            self.is_held,
            lambda: self.ladder.restarted,
            self.subshells,
            self.debugger,
        )
        self._held: list[FromFront] | None = []  # what clients sent before the first ranks were up
        self._prelude = Prelude()
        self.timings = Timings()
        self._errand: Talk | None = None  # after Stop ranks are mended, or brought back
        self.closing = False

    # ---------------------------------------------------------------- the contract

    def handle(self, event: Event) -> list[Effect]:
        """What follows from ``event``. Total: no exception leaves here."""
        self.stage.at = event.at
        try:
            self._dispatch(event)
            self.cells.next()
            self.subshells.go_on()
            self.bursts.after(self.stage.effects)
            if self.debugger.is_on:
                self.debugger.note(self.stage.effects)
            self.status_comms.after(event)
        except BadMessage as error:
            self.stage.log("warning", f"dropped: {error}")
        except Exception as error:
            self._fault(error)
        return self.stage.take()

    def _fault(self, error: Exception) -> None:
        self.stage.log("error", f"internal error: {type(error).__name__}: {error}")
        fault = InternalError(f"{type(error).__name__}: {error}", REPORT)
        for shell in (self.cells, *self.subshells):
            shell.rescue(fault)
        if self._held is not None and self._opening.over:
            self._started(None, fault)

    def _dispatch(self, event: Event) -> None:
        match event:
            case FromRank():
                self.reports.heard(event)
            case FromFront():
                self._from_front(event)
            case TimerFired():
                self._timer(event.key)
            case RankReady():
                self.group.ready(event)
                self.subshells.rank_is_ready(event.rank)
            case RankExited():
                self.reports.exited(event)
            case Subscribed():
                topic = event.topic.decode("utf-8", "replace")
                self.stage.publish("iopub_welcome", dumps({"subscription": topic}), {})
            case Signalled():
                self._signalled(event.signum)
            case Surveyed():
                self.performer.answered(event.token, event.facts)
            case Dumped() | Unblocked():
                self.lookouts.answered(event)
            case Preloaded():
                self.performer.answered(event.token, event.problem)
            case LogFailed():
                self.reports.log_failed(event)
            case TextFailed():
                self.reports.text_failed(event)
            case Received():
                self.debug_port.received(event)
            case Connected():
                self.debug_port.connected(event)
            case Disconnected():
                self.debug_port.disconnected(event)
            case PortOpened():
                self.debug_port.opened(event)
            case Began():
                self._begin()

    # ---------------------------------------------------------------- start and end

    def _begin(self) -> None:
        self.stage.status("starting", {})
        first = self.start(Start(self.settings.processes))
        self._opening = Talk(first, self.performer.perform, self._started)
        self._opening.step()

    def start(self, want: Start) -> Script:
        facts: Facts = yield Look()
        if self._held is not None and want.size > 1:  # nobody has checked it yet
            require_memory(want.size, facts.memory_available)
        report = yield from self.group.start(
            want.size,
            env=want.env,
            keep=want.keep,
            anew=want.anew,
            kernel=want.kernel,
            count=self.cells.count,
            replay=self._prelude.items,
            facts=facts,
            preload=want.preload,
        )
        self._prelude.ranks_started()
        yield from self.debugger.join()
        return report

    def _started(self, report: StartReport | None, error: SpmdError | None) -> None:
        if error is not None:
            self.stage.log("error", str(error))
            self.group.could_not_start(str(error))
        held, self._held = self._held or [], None
        for event in held:
            self.requests.serve(event)

    def _signalled(self, signum: int) -> None:
        if signum == SIGINT:
            self.interrupt()
        else:
            self._abort_all()
            self.stage.emit(Exit(0))

    def _abort_all(self) -> None:
        self.watch.close()
        for shell in (self.cells, *self.subshells):
            shell.abort_all()

    def interrupt(self) -> None:
        """Stop: every rank that is at work for a client, and whatever we are at ourselves."""
        self._abort_held()
        if ranks := self.busy_beside_the_cell():
            self.stage.emit(Interrupt(ranks))
            self.stdin.withdraw(ranks)
        if self._errand is not None:
            self._errand.throw(Interrupted("stopped by the user"))
        elif not self.ladder.restart():
            self.cells.interrupt()
            self.ladder.stopped()

    def where(self) -> Script:
        """A script of one want; it returns a `where.Where`."""
        fanout = self.cells.rounds.fanout
        code = fanout.running_code() if fanout is not None else RunningCode()
        return where(self.group.view(), code, fanout.running if fanout is not None else ())

    def busy_beside_the_cell(self) -> tuple[Rank, ...]:
        busy, cell = self.comms.busy, self.cells.running
        if cell is not None and cell.fanout is not None:
            busy -= set(cell.fanout.running)
        elif cell is not None and cell.talk is not None:
            busy |= set(cell.talk.asking)
        elif self.cells.errand is not None:
            busy |= set(self.cells.errand.asking)
        return tuple(sorted(busy & set(self.group.alive)))

    def _abort_held(self) -> None:
        """Cells that wait for the first ranks are not to run any more."""
        for event in self._held or ():
            if event.message.msg_type == "execute_request":
                self.requests.abort(event)
        if self._held is not None:
            self._held = [e for e in self._held if e.message.msg_type != "execute_request"]

    def shut_down(self, event: FromFront | None, content: Mapping[str, Any]) -> None:
        if self.closing:
            return
        self.closing = True
        self.stdin.withdraw()
        for shell in (self.cells, *self.subshells):
            if shell.running is not None:
                self.stage.journal.end(shell.running.msg_id)
        if self._errand is not None:
            self._errand.close()
            self._repaired(None, None)
        self._abort_all()
        self.echoes.send()
        self.debug_port.shut_down()
        self.debugger.close()
        self.late.flush_all()
        if self._held is not None:  # no rank of the first start may come up any more
            self._opening.close()
            self._started(None, None)

        def gone(_: Any, error: SpmdError | None) -> None:
            self.late.flush_all()  # what ranks said as they ended
            if event is not None:
                self.requests.answer(event, "shutdown_reply", content)
                self.stage.publish("shutdown_reply", dumps(content), event.message.header)
                self.stage.status("idle", event.message.header)
            self.stage.emit(Exit(0))

        Talk(self._stop_everybody(), self.performer.perform, gone).step()

    def _stop_everybody(self) -> Script:
        yield StopRanks(tuple(self.group.slots))

    # ---------------------------------------------------------------- Stop, and what hangs

    def _cell_header(self) -> Header | None:
        cell = self.cells.running
        return cell.message.header if cell is not None else None

    def _round_began(self, fanout: Fanout) -> None:
        self.watch.began(fanout)
        cell = self.cells.running
        if cell is not None and not cell.unseen:
            self.debug_port.ran(fanout.code, cell.count if cell.counts else None)

    def _rank_settled(self, fanout: Fanout) -> None:
        self.watch.settled(fanout)

    def _ranks_interrupted(self, ranks: tuple[Rank, ...]) -> None:
        self.stdin.withdraw(ranks)
        self.ladder.begin()

    def _after_stop(self, broken: bool, restarted: tuple[Rank, ...]) -> None:
        """Connections of ranks were closed, or ranks ended; the next cell waits for the repair."""
        if (broken or restarted) and not self.closing:
            self.cells.held = True
            self._errand = Talk(
                self._repair(broken, restarted), self.performer.perform, self._repaired
            )
            self._errand.step()

    def _repair(self, broken: bool, restarted: tuple[Rank, ...]) -> Script:
        if broken and self.group.alive and self.settings.language == "python":
            yield silent(self.group.alive, MEND, ANSWER_SECONDS)
        if restarted:  # all ranks get a new port then
            yield from self.start(Start(self.group.size, keep=True))
        else:
            yield from self.group.renew_environment()

    def _repaired(self, _: Any, error: SpmdError | None) -> None:
        self._errand = None
        self.cells.held = False
        if error is not None:
            self.stage.log("warning", str(error))
            self.reports.tell("\n".join(error.lines()) + "\n")

    # ---------------------------------------------------------------- a cell

    def _cell_script(self, cell: Cell) -> Script:
        if not cell.unseen:
            self._prelude.user_begins()
        self.stdin.begin(
            cell.idents, cell.message.header, self.group.alive, takes_questions=not cell.headless
        )
        yield from self.steps(self.cells, cell)

    def steps(self, shell: Cells, cell: Cell) -> Script:
        """The magics of a cell, and the rest of it on all ranks, in any shell."""
        shell.stores = False
        count = cell.count if cell.counts else None
        self.stage.journal.begin(CellLog(cell.msg_id, cell.cell_id, count, cell.silent))
        code = cell.code
        if "%" in code:
            plan = split(code, MAGICS, self.settings.language)
            cell.magics = bool(plan.steps)
            for call in plan.steps:
                magic = MAGICS[call.name]
                ends_cell = call is plan.steps[-1] and not plan.rest.strip()
                shell.stores = magic.kind == "cell" or ends_cell
                yield from magic.run(call, MagicView(self, headless=cell.headless))
            code = plan.rest
            if cell.magics and not code.strip():
                return
        shell.stores = True
        yield from self.debug_port.prepare(code)
        yield Run(tuple(self.group.slots), code)

    def _ended(self, cell: Cell, failed: bool) -> None:
        if failed:  # else a thread may go on, and wait for its answer
            self.stdin.withdraw()
        if cell.last is not None:
            self.late.ended(cell.msg_id, cell.last.outputs)
        self.late.flush(cell.msg_id)
        self.watch.over(cell.message.header, failed=failed)
        self._after_stop(*self.ladder.over(cell.message.header))
        if not failed and not cell.magics:
            self._prelude.remember(cell.code, unseen=cell.unseen)
        self.over(cell)

    def over(self, cell: Cell) -> None:
        """A cell of any shell has ended, and says no more."""
        if not cell.silent:
            self.timings.add(cell.timing, cell.count if cell.counts else None, cell.code)
        self.stage.journal.end(cell.msg_id)
        last = cell.last
        if last is None or self.closing:
            return
        leaving = [
            rank for rank, reply in last.replies.items() if any(map(_ends, payload_of(reply)))
        ]
        if leaving and set(leaving) >= set(self.group.slots):
            self.shut_down(None, {})

    # ---------------------------------------------------------------- clients

    def _from_front(self, event: FromFront) -> None:
        kind = event.message.msg_type
        urgent = kind in ("shutdown_request", "interrupt_request") or event.channel == "stdin"
        if self._held is None or urgent or self._is_ours(event.message):
            self.requests.serve(event)
        else:
            self._held.append(event)

    def _is_ours(self, message: Message) -> bool:
        """No rank is needed to answer it."""
        if message.msg_type == REQUEST:
            return not needs_ranks(message)
        return message.msg_type in COMMS and self.status_comms.concerns(message)

    def _serve(self, event: FromFront) -> None:
        self.requests.serve(event)

    # ---------------------------------------------------------------- timers

    def _timer(self, key: Any) -> None:
        match key:
            case ("output", str(msg_id)):
                self._rounds_of(msg_id).output_due(msg_id)
            case ("late", str(msg_id)):
                self.late.due(msg_id)
            case ("fence", str(msg_id)):
                self._rounds_of(msg_id).fence_due(msg_id)
            case ("on-error", str(msg_id)):
                self._rounds_of(msg_id).others_overdue(msg_id)
            case ("some", str(msg_id)):
                self.cells.rounds.some_overdue(msg_id)
            case ("overdue", str(msg_id)):
                self._rounds_of(msg_id).survivors_overdue(msg_id)
            case ("ladder", str(msg_id)):
                self.ladder.due(msg_id)
            case ("watch", str(msg_id)):
                self.watch.due(msg_id)
            case ("dump", int(token)):
                self.lookouts.overdue(token)
            case ("no-reply", str(msg_id), int(rank)):
                self.conversations.gave_no_reply(msg_id, rank)
            case ("limit", str(msg_id)):
                if self.cells.rounds.time_is_over(msg_id):
                    self.interrupt()
            case ("ask", str(msg_id)):
                self.conversations.expired(msg_id)
            case ("hedge", int(serial)):
                self.inquiries.due(serial)
            case ("inquiry", int(serial)):
                self.inquiries.expired(serial)
            case ("subshell", int(serial)):
                self.subshells.overdue(serial)
            case ("start", int(generation)):
                self.group.overdue(generation)
            case (kind, str(msg_id)) if kind == BURST:
                self.bursts.due(msg_id)
            case "stdin":
                self.stdin.window_over()
            case _ if key == ECHOES:
                self.echoes.send()
            case ("dap" | "dap-stops" | "dap-step", _):
                self.debugger.due(key)
            case ("dap-port", int(connection)):
                self.debug_port.due(connection)
            case _ if key == TIMER:
                self.status_comms.due()

    def _rounds_of(self, msg_id: str) -> Rounds:
        shell = self.subshells.running(msg_id)
        return self.cells.rounds if shell is None else shell.rounds

    @property
    def is_starting(self) -> bool:
        """The first ranks are not up yet."""
        return self._held is not None

    def is_held(self, msg_id: str) -> bool:
        """It waits for the first ranks."""
        return any(event.message.msg_id == msg_id for event in self._held or ())


def _ends(item: Any) -> bool:
    """The payload of ``exit()``."""
    return (
        isinstance(item, dict) and item.get("source") == "ask_exit" and not item.get("keepkernel")
    )
