"""One execute request from busy to idle: queue, fan out, failure of a part, end, abort.

Ranks get one cell at a time and ``stop_on_error: false``: the queue and its abortion are ours alone.
A cell is a script (line magics, then the rest on the ranks); its `Run` wants become `Fanout` rounds
here.  Messaging specification: "Execute".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .cell import ROUND, Cell, commented, parse
from .content import dumps
from .conversation import Script, Talk
from .echoes import Echoes
from .errand import Errand
from .errors import Interrupted, RankLost, SpmdError, UsageError
from .fanout import Bare, Fanout, Outputs
from .magics.base import Run
from .model import (
    NO_SUBSHELLS,
    FromFront,
    Header,
    Message,
    Rank,
    Subshells,
    ToFront,
    ToRank,
)
from .outputs import DisplayIds, outputs_of
from .padding import padding_code
from .replies import error_reply, merge_payloads, merge_replies
from .rounds import Ranks, Rounds, counted
from .stage import Stage


@dataclass(slots=True)
class Numbers:
    """Of the cells that count, in all shells together."""

    done: int = 0  # how many have been counted
    open: int = 0  # how many are at work
    mixed: bool = False  # several were at once: ranks may have counted them in another order


class Cells:
    """The cells of one shell, one at a time.  ``subshells``: those of ranks that they run in."""

    make_rounds: type[Rounds] = Rounds

    def __init__(
        self,
        stage: Stage,
        ranks: Ranks,
        display_ids: DisplayIds,
        script: Callable[[Cell], Script],
        perform: Callable[[Talk, Any], None],
        ended: Callable[[Cell, bool], None],
        interrupted: Callable[[tuple[Rank, ...]], None],
        began: Callable[[Fanout], None],
        settled: Callable[[Fanout], None],
        echoes: Echoes,
        numbers: Numbers | None = None,
        subshells: Subshells = NO_SUBSHELLS,
    ):
        self._stage = stage
        self._began = began
        self._ranks = ranks
        self._echoes = echoes
        self._display_ids = display_ids
        self._script = script
        self._perform = perform
        self._ended = ended
        self._queue: deque[Cell | Errand] = deque()
        self.running: Cell | None = None
        self.errand: Errand | None = None  # that runs; no cell does then
        self.rounds = self.make_rounds(
            stage, ranks, lambda: self.running, interrupted, settled, self._aligned, subshells
        )
        self.last_header: Header | None = None
        self.numbers = numbers or Numbers()
        self.subshells = subshells
        self.stores = False  # whether the `Run` at hand is the round that counts: the cell's last
        self.held = False  # ranks are being brought back: the next cell waits for them

    # ---------------------------------------------------------------- numbers

    @property
    def count(self) -> int:
        """How many cells have been counted."""
        return self.numbers.done

    def _aligned(self) -> bool:
        """Ranks count as we do: other languages have no blank cell that counts."""
        alone = self._ranks.size == 1 or not self.numbers.mixed
        return alone and self._stage.settings.language == "python"

    def _number(self, cell: Cell) -> int:
        """Each cell has one of its own."""
        numbers = self.numbers
        if not cell.counts:
            return numbers.done
        numbers.mixed = numbers.mixed or numbers.open > 0
        numbers.open += 1
        return numbers.done + numbers.open

    def _counted(self, cell: Cell) -> None:
        if cell.counts:
            self.numbers.open -= 1
            self.numbers.done += 1
        self._align(cell)
        self.numbers.mixed = self.numbers.mixed and self.numbers.open > 0

    # ---------------------------------------------------------------- queue

    def request(self, event: FromFront) -> None:
        self._queue.append(parse(event))
        self.next()

    def lend(self, errand: Errand, *, wait: bool, first: bool = False) -> None:
        """The ranks for a script of no cell, in its turn, or as the next one."""
        if not wait and (what := self._engaged()):
            errand.end(UsageError(what, "wait for it or press Stop; or ask with wait: true"))
        elif first:
            self._queue.appendleft(errand)
        else:
            self._queue.append(errand)
        self.next()

    def _engaged(self) -> str:
        """Why the ranks are not free, in words."""
        if self.running is not None and self.running.counts:
            return f"cell [{self.running.count}] is running"
        if self.running is not None:
            return "a cell is running"
        return "ranks are being started" if self.errand or self.held or self._queue else ""

    @property
    def are_engaged(self) -> bool:
        return self.running is not None or self.errand is not None or self.held

    def queued(self, msg_id: str) -> Cell | None:
        return next((cell for cell in self.waiting if cell.msg_id == msg_id), None)

    def is_queued(self, msg_id: str) -> bool:
        return self.queued(msg_id) is not None

    @property
    def waiting(self) -> list[Cell]:
        """Cells that have not begun."""
        return [item for item in self._queue if isinstance(item, Cell)]

    def next(self) -> None:
        # A loop, not recursion: a queue of cells that fail at once may be long.
        while self.running is None and self.errand is None and self._queue and not self.held:
            item = self._queue.popleft()
            if isinstance(item, Errand):
                self.errand = item
                item.begin(self._errand_over)
            else:
                self._begin(item)

    def _errand_over(self) -> None:
        self.errand = None

    def _begin(self, cell: Cell) -> None:
        self.running = cell
        cell.began = self._stage.at
        self.last_header = cell.message.header
        if cell.client != self._stage.policy.client:
            self._stage.policy = replace(self._stage.policy, client=cell.client)
        cell.count = self._number(cell)
        self._stage.status("busy", cell.message.header)
        if not cell.silent:
            shown = cell.count if cell.counts else self.count + 1
            content = dumps({"code": cell.code, "execution_count": shown})
            self._stage.publish("execute_input", content, cell.message.header)
        talk = Talk(
            self._script(cell), self._perform, lambda _, error: self._script_over(cell, error)
        )
        cell.talk = talk
        talk.step()

    def abort_all(self) -> None:
        """The kernel shuts down: nobody waits for a reply that cannot come."""
        if (cell := self.running) is not None:
            if cell.fanout is not None:
                self.rounds.close(cell.fanout)
            if cell.talk is not None:
                cell.talk.close()
            self.running = None
            self._stage.end_text(cell.message.header)
            self._reply(cell, {"status": "aborted"})
        self._abort_queue()
        errands = [self.errand] if self.errand is not None else []
        self.errand = None
        for errand in (*errands, *self._queue):
            assert isinstance(errand, Errand)
            errand.end(Interrupted("the kernel shuts down"))
        self._queue.clear()

    def _abort_queue(self) -> None:
        """Cells alone: what others want of the ranks does not depend on a cell."""
        cells = self.waiting
        self._queue = deque(item for item in self._queue if isinstance(item, Errand))
        for cell in cells:
            self._stage.status("busy", cell.message.header)
            self._reply(cell, {"status": "aborted"})

    # ---------------------------------------------------------------- a round on ranks

    def run(self, talk: Talk, want: Run, *, stores: bool) -> None:
        """Begin a `Run` of the running cell; ``talk`` goes on when it did well."""
        cell = self.running
        assert cell is not None
        alive = set(self._ranks.alive)
        dead = [rank for rank in want.ranks if rank not in alive]
        if dead or not want.ranks:
            talk.step(error=self._cannot_run(dead))
            return
        cell.rounds += 1
        code = want.code
        if stores and cell.counts and not code.strip():
            code = commented(cell.code)  # IPython does not count a blank cell
        fanout = self._fanout(cell, want, stores, lambda: self._round_over(cell, talk))
        fanout.code = code
        cell.fanout = fanout
        cell.stored = cell.stored or stores
        if want.seconds is not None:
            fanout.limit = want.seconds
            self._stage.timer(("limit", fanout.msg_id), want.seconds)
        for rank in want.ranks:
            self._ranks.mark_busy(rank, self._stage.at)
        self._stage.to_shells(want.ranks, self._request(cell, fanout, code), self.subshells)
        self._began(fanout)
        if stores:
            self._fill_in(cell, tuple(sorted(alive.difference(want.ranks))))

    def _cannot_run(self, dead: list[Rank]) -> SpmdError:
        alive = ",".join(map(str, self._ranks.alive))
        hint = "`%restart dead` brings back what is dead" if dead else "`%processes 1` starts one"
        if alive:
            hint += f"; the others keep their variables, and `%%rank {alive}` runs a cell on them"
        return RankLost(self._ranks.obituaries(), hint)

    def _fanout(self, cell: Cell, want: Run, stores: bool, resume: Callable[[], None]) -> Fanout:
        size = self._ranks.size
        self._stage.journal.ran(cell.msg_id, size)
        outputs: Outputs = Bare()
        if size > 1:
            outputs = outputs_of(want.ranks, size, self._display_ids, self._stage.policy)
        msg_id = cell.msg_id if stores else f"{cell.msg_id}{ROUND}{cell.rounds}"
        return Fanout(msg_id, want.ranks, size, outputs, self._stage.at, resume, stores)

    def _request(self, cell: Cell, fanout: Fanout, code: str) -> Message:
        header = {k: v for k, v in cell.message.header.items() if k != "subshell_id"}
        header["msg_id"] = fanout.msg_id
        content = {**cell.content, "code": code, "stop_on_error": False}
        if not fanout.stores:
            content |= {"store_history": False, "user_expressions": {}}
        metadata = cell.message.metadata
        if fanout.world_size > 1:  # so that one of them knows that it is to write a file
            metadata = {**metadata, "spmd": {"lowest": min(fanout.ranks, default=0)}}
        return Message(header, cell.message.parent, metadata, dumps(content))

    def _fill_in(self, cell: Cell, ranks: tuple[Rank, ...]) -> None:
        """Ranks that do not run a counted cell get its text as comments: In and Out stay aligned."""
        if not cell.counts or not ranks or self._stage.settings.language != "python":
            return
        request = self._stage.own_execute(commented(cell.code), silent=False)
        self._stage.emit(ToRank(ranks, "shell", request))

    def _align(self, cell: Cell) -> None:
        """An interrupt can cost a rank its count: then equal tracebacks would never fold again."""
        fanout = cell.last
        if fanout is None or not fanout.stores or self._stage.settings.language != "python":
            return
        if self.numbers.open:
            return  # the last of those at work sees to it
        counts = {reply.get("execution_count") for reply in fanout.replies.values()}
        if fanout.world_size == 1 and len(counts) == 1:
            (count,) = counts
            self.numbers.done = count if isinstance(count, int) else self.count
        elif self.numbers.mixed or (cell.counts and (fanout.interrupted or counts != {cell.count})):
            request = self._stage.own_execute(padding_code((), self.count + 1), silent=True)
            self._stage.emit(ToRank(self._ranks.alive, "shell", request))

    def interrupt(self) -> None:
        """The user pressed Stop."""
        if self.errand is not None:
            self.errand.interrupt()
        cell = self.running
        fanout = cell.fanout if cell else None
        if cell is None or cell.talk is None:
            return
        if fanout is None:
            cell.talk.throw(Interrupted("stopped by the user"))
        else:
            self.rounds.interrupt(fanout, fanout.running)

    # ---------------------------------------------------------------- ends

    def rescue(self, error: SpmdError) -> None:
        """Something of ours broke: a cell that nobody would end any more still gets its reply."""
        cell = self.running
        if cell is None or (cell.fanout is not None and cell.fanout.running):
            return
        stuck = cell.talk is None or cell.talk.over or cell.fanout is not None
        if stuck:
            if cell.talk is not None:
                cell.talk.close()
            self._script_over(cell, error)

    def _round_over(self, cell: Cell, talk: Talk) -> None:
        fanout, cell.fanout = cell.fanout, None
        assert fanout is not None
        cell.payload += merge_payloads(fanout.replies, self._ranks.size)
        cell.timing.add(fanout)
        late = fanout.overdue is not None and not fanout.lost  # else: why that rank was lost
        if fanout.stores or fanout.failed or late:
            cell.last = fanout
        if not fanout.failed and not late:
            talk.step()
            return
        talk.close()
        if late:
            self._script_over(cell, fanout.overdue)
        else:
            self._finish(cell, failed=True, reply=self._reply_of(cell, fanout))

    def _script_over(self, cell: Cell, error: SpmdError | None) -> None:
        if error is not None:
            content = {
                "ename": error.ename,
                "evalue": str(error),
                "traceback": error.lines(),
            }
            self._stage.publish("error", dumps(content), cell.message.header)
            self._finish(cell, failed=True, reply=error_reply(content, cell.count))
        elif cell.last is not None:
            self._finish(cell, failed=False, reply=self._reply_of(cell, cell.last))
        else:
            reply = merge_replies({}, self._ranks.size, cell.count, cell.payload)
            self._finish(cell, failed=False, reply=reply)

    def _reply_of(self, cell: Cell, fanout: Fanout) -> Mapping[str, Any] | Message:
        if fanout.world_size == 1 and not cell.magics and not fanout.lost and fanout.reply:
            aligned = self._stage.settings.language == "python"
            return fanout.reply if aligned else counted(fanout.reply, cell.count)
        if fanout.failed:
            return error_reply(fanout.error(), cell.count)
        merged = merge_replies(fanout.replies, fanout.world_size, cell.count, [])
        return {**merged, "payload": cell.payload}

    def _finish(self, cell: Cell, *, failed: bool, reply: Mapping[str, Any] | Message) -> None:
        if self.running is not cell:
            return
        if cell.counts and not cell.stored:
            self._fill_in(cell, self._ranks.alive)
        self._counted(cell)
        self.running = None
        self._ended(cell, failed)
        self._stage.end_text(cell.message.header)
        self._reply(cell, reply)
        cell.talk = cell.last = None  # they know the cell: what nobody needs is freed at once
        if failed and cell.content.flag("stop_on_error", True):
            self._abort_queue()

    def _reply(self, cell: Cell, reply: Mapping[str, Any] | Message) -> None:
        header = cell.message.header
        if isinstance(reply, Message):
            content, metadata, buffers = reply.content, reply.metadata, reply.buffers
        else:
            metadata = dict(cell.last.metadata) if cell.last is not None else {}
            content, buffers = dumps(reply), ()
            metadata["status"] = reply["status"]
        answer = ToFront(
            cell.channel, cell.idents, "execute_reply", content, header, metadata, buffers
        )

        def send() -> None:
            self._stage.emit(answer)
            self._stage.status("idle", header)

        self._echoes.reply(cell, send, more=bool(self._queue))
