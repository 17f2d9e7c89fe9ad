"""What ranks say, and their death: which cell, question or client each message is for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from .cell import ROUND
from .cells import Cells
from .comms import COMMS, Comms
from .content import dumps
from .conversation import Conversations
from .dap.debugger import Debugger
from .errors import RankLost
from .fanout import Fanout
from .group import Group
from .late import Late
from .model import (
    OUTPUT_TYPES,
    FromRank,
    Header,
    LogFailed,
    Message,
    Rank,
    RankExited,
    TextFailed,
)
from .outputs.stream import MARK
from .requests import Life
from .rounds import Rounds
from .slot import Slot, State
from .stage import Stage
from .stdin import Stdin
from .subshells import Subshells
from .transcript import Transcript

IGNORED = {"status", "execute_input", "iopub_welcome", "shutdown_reply"}


class Reports:
    def __init__(
        self,
        stage: Stage,
        life: Life,
        group: Group,
        cells: Cells,
        comms: Comms,
        stdin: Stdin,
        late: Late,
        transcript: Transcript,
        conversations: Conversations,
        is_held: Callable[[str], bool],
        restarted: Callable[[], tuple[Rank, ...]],
        subshells: Subshells,
        debugger: Debugger,
    ):
        self._stage = stage
        self._life = life
        self._group = group
        self._cells = cells
        self._comms = comms
        self._stdin = stdin
        self._late = late
        self._transcript = transcript
        self._conversations = conversations
        self._is_held = is_held
        self._restarted = restarted  # by Stop
        self._subshells = subshells
        self._debugger = debugger

    def heard(self, event: FromRank) -> None:
        slot = self._group.current(event.rank, event.generation)
        if slot is None or slot.state is State.DEAD:
            kind = event.message.msg_type
            self._stage.log("debug", f"late {kind} of rank {event.rank}, which is gone")
        elif event.channel == "iopub":
            self._iopub(event.rank, event.message)
        elif event.channel == "stdin":
            self._asked(event.rank, event.message)
        elif not self._replied_in_cell(event.rank, event.message) and not self._subshells.replied(
            event.rank, event.message, event.channel
        ):
            self._conversations.replied(event.rank, event.message)
            self._debugger.asking.settled(event.rank, event.message.parent_id)

    def _replied_in_cell(self, rank: Rank, message: Message) -> bool:
        return self._cells.rounds.replied(rank, message) or any(
            shell.rounds.replied(rank, message) for shell in self._subshells
        )

    def _asked(self, rank: Rank, message: Message) -> None:
        shell = self._subshells.running(message.parent_id)
        rounds = self._cells.rounds if shell is None else shell.rounds
        asker = None if shell is None else shell.asker
        if message.msg_type != "input_request":
            self._stage.log("warning", f"rank {rank}: {message.msg_type} on stdin")
        elif self._stdin.refuses(message, asker):
            self._stdin.refuse(rank, message)
            rounds.refused(rank)
        elif shell is None and self._cells.last_header is None:
            self._stage.log("warning", f"rank {rank}: {message.msg_type} before any cell")
        else:
            rounds.cut(rank)
            self._late.cut(rank, self._home(rank, message))
            self._stdin.asked(rank, message, rounds.fanout, self._group.size, asker)

    def _iopub(self, rank: Rank, message: Message) -> None:
        kind = message.msg_type
        if kind == "status":
            if b'"idle"' in message.content:
                self._debugger.status(rank, message.parent, busy=False)
                self._idle(rank, message.parent_id)
            elif b'"busy"' in message.content:
                self._debugger.status(rank, message.parent, busy=True)
        elif kind == "debug_event":
            self._debugger.heard(rank, message)
        elif kind in OUTPUT_TYPES:
            self._transcript.heard(rank, message)
            found = self._round_of(rank, message)
            if self._comms.captures.takes(rank, message):
                home = self._home(rank, message)
                self._comms.captures.take(rank, message, home, self._group.size)
            elif found is not None:
                rounds, fanout = found
                rounds.output(fanout, rank, message)
            else:
                self._late_output(rank, message)
        elif kind not in IGNORED:
            # What the rank wrote before it comes before it: an Output widget is switched by comms.
            self._rounds_of(message.parent_id).cut(rank)
            home = self._home(rank, message)
            self._late.cut(rank, home)
            if kind in COMMS:
                self._comms.from_rank(rank, message, home, self._group.size)
            else:
                self._stage.publish(kind, message.content, home, message.metadata, message.buffers)

    def _rounds_of(self, msg_id: str) -> Rounds:
        """Those of the shell that runs it; of the main one, if none does."""
        shell = self._subshells.running(msg_id)
        return self._cells.rounds if shell is None else shell.rounds

    def _idle(self, rank: Rank, msg_id: str) -> None:
        shells = (self._cells, *self._subshells)
        if any(shell.rounds.idle(rank, msg_id) for shell in shells):
            self._comms.cell_ended(rank)
        else:
            self._conversations.idle(rank, msg_id)
            self._debugger.asking.settled(rank, msg_id)
            self._comms.idle(msg_id, rank)

    def _late_output(self, rank: Rank, message: Message) -> None:
        there = tuple(r for r, slot in self._group.slots.items() if slot.state is not State.DEAD)
        self._late.feed(
            rank, message, self._home(rank, message), there or (rank,), self._group.size
        )

    def _round_of(self, rank: Rank, message: Message) -> tuple[Rounds, Fanout] | None:
        """The round that this rank's output is of, if it is one at hand.

        A thread's text may name another request and be of it all the same, and is in order then.
        """
        rounds = self._rounds_of(message.parent_id)
        fanout, running = rounds.fanout, self._cells.running
        if fanout is None or rank not in fanout.ranks or rank in fanout.lost:
            return None
        if message.parent_id == fanout.msg_id:
            return rounds, fanout
        at_home = running is not None and self._home(rank, message) is running.message.header
        return (rounds, fanout) if at_home and message.msg_type == "stream" else None

    def _home(self, rank: Rank, message: Message) -> Header:
        """The front request that a rank's message belongs to."""
        parent = message.parent
        running = self._cells.running
        if not parent and self._group.size == 1:
            return parent
        if parent and not self._stage.is_own(parent):  # none: a rank that starts, or ends
            kind = str(parent.get("msg_type", ""))
            if kind == "execute_request":
                msg_id = message.parent_id.partition(ROUND)[0]
                if running is not None and running.msg_id == msg_id:
                    return running.message.header
                shell = self._subshells.running(message.parent_id)
                if shell is not None and shell.running is not None:
                    return shell.running.message.header
                if not self._is_waiting(msg_id):
                    return {**self._subshells.as_sent(parent), "msg_id": msg_id}
            if kind in COMMS and self._is_of_a_comm(rank, message):
                return self._subshells.as_sent(parent)
        return self._cells.last_header or {}  # of the running cell, if one runs

    def _is_of_a_comm(self, rank: Rank, message: Message) -> bool:
        """Text that names a comm message served already is a thread's: no client would show it."""
        msg_id = message.parent_id
        if self._group.size > 1 and message.msg_type == "stream":
            return self._comms.serves(rank, msg_id)
        return not self._is_held(msg_id)

    def _is_waiting(self, msg_id: str) -> bool:
        """A cell that has not begun: no honest rank can speak of it."""
        shells = (self._cells, *self._subshells)
        return any(shell.is_queued(msg_id) for shell in shells) or self._is_held(msg_id)

    def exited(self, event: RankExited) -> None:
        rank = event.rank
        slot = self._group.current(rank, event.generation)
        if slot is not None and not self._life.closing:
            for stream, text in event.unsent:
                self._last_words(slot, stream, text)
        died = self._group.exited(event)
        if died is not None and not self._life.closing:
            self._report_death(died)
        if self._group.current(rank, event.generation) is not None:
            self._part_stopped(rank)
            self._subshells.lost(rank)
            self._stdin.lost(rank)
            self._comms.lost(rank)
            self._debugger.lost(rank, died.obituary() if died is not None else "")
            self._conversations.lost(rank)
        self._group.check()

    def _last_words(self, slot: Slot, stream: str, text: str) -> None:
        """What it had printed and could not send any more, as if it had.

        Not of a rank that ends as it should between cells: that is no cell's.
        """
        rank, fanout = slot.rank, self._cells.rounds.fanout
        in_cell = fanout is not None and rank in fanout.ranks
        if not text or not (in_cell or slot.state is State.READY):
            return
        if self._stage.policy.marks and self._group.size > 1:
            text = text.replace(MARK, MARK + MARK)  # the program's own
        parent: Header = self._cells.last_header or {}
        if fanout is not None and in_cell:
            parent = {"msg_id": fanout.msg_id, "msg_type": "execute_request"}
        content = dumps({"name": stream, "text": text})
        self._iopub(rank, Message({"msg_type": "stream"}, parent, {}, content))
        self._late.cut(rank, parent)

    def log_failed(self, event: LogFailed) -> None:
        """Said once; cells go on without the files."""
        policy = self._stage.policy
        if policy.log_dir == event.folder:
            self._stage.policy = replace(policy, log_dir="")
        text = (
            f"no more text is written to log files in {event.folder}: {event.reason}\n"
            "hint: `%processes --log-dir DIR` names another folder\n"
        )
        self._stage.log("warning", text.splitlines()[0])
        self.tell(text)

    def text_failed(self, event: TextFailed) -> None:
        """Of a cell that has shown all of its text so far nothing is said yet."""
        self._stage.log("warning", f"{event.path} cannot be written: {event.reason}")
        for _, text in self._stage.floods.failed(event.path, event.reason):
            self.tell(f"… {text}\n")

    def tell(self, text: str) -> None:
        """In the running cell; between cells, in the last one."""
        if self._cells.last_header is not None:
            content = dumps({"name": "stderr", "text": text})
            self._stage.publish("stream", content, self._cells.last_header)

    def _report_death(self, slot: Slot) -> None:
        """At once, in the running cell; between cells, in the last one."""
        error = RankLost(slot.obituary(), self._recovery(slot))
        content = {
            "ename": error.ename,
            "evalue": str(error),
            "traceback": _with_last_words(error.lines(), slot.stderr),
        }
        self._stage.log("error", str(error))
        told = [shell.rounds.lost(slot.rank, content) for shell in (self._cells, *self._subshells)]
        if not any(told):
            self.tell("\n".join(error.lines()) + "\n")

    def _part_stopped(self, rank: Rank) -> None:
        """Cells of subshells may run while ranks are stopped."""
        for shell in self._subshells:
            error = RankLost(f"rank {rank} was stopped while it ran this cell")
            content = {"ename": error.ename, "evalue": str(error), "traceback": error.lines()}
            shell.rounds.lost(rank, content)

    def _recovery(self, slot: Slot) -> str:
        if slot.rank in self._restarted():
            return "its variables are lost; it is started again now" + (
                ", and the other ranks keep theirs" if self._group.size > 1 else ""
            )
        if self._group.size == 1:
            return "`%restart dead` starts it again; its variables are lost"
        return "`%restart dead` brings it back; the other ranks keep their variables"


def _with_last_words(lines: list[str], stderr: str) -> list[str]:
    if not stderr.strip():
        return lines
    return [lines[0], "its last words on stderr:", *stderr.rstrip().splitlines(), *lines[1:]]
