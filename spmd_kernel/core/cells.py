"""One execute request from busy to idle: queue, fan out, failure of a part, end, abort.

Ranks get one cell at a time and ``stop_on_error: false``: the queue and its abortion are ours alone.
A cell is a script (line magics, then the rest on the ranks); its `Run` wants become `Fanout` rounds
here.  Messaging specification: "Execute".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from .content import Content, dumps, read
from .conversation import Script, Talk
from .errors import BadMessage, Interrupted, RankLost, SpmdError
from .fanout import Bare, Fanout, Outputs, error_message, raw
from .magics.base import Run
from .model import Channel, FromFront, Header, Interrupt, Message, Rank, ToFront, ToRank
from .outputs import Client, DisplayIds, Publish, outputs_of
from .padding import padding_code
from .replies import distinct, error_reply, merge_replies, payload_of
from .stage import Stage

FENCE_SECONDS = 0.5  # a reply without idle for so long: ask whether the idle was dropped
STOP_SECONDS = 5.0  # how long others may go on after a failure, and after an interrupt
ROUND = " r"  # marks the request of a line magic: "<msg_id> r1"; ids of clients hold no blank


class Ranks(Protocol):
    """What a cell needs of the group."""

    @property
    def alive(self) -> tuple[Rank, ...]: ...
    @property
    def size(self) -> int: ...
    def obituaries(self) -> str: ...
    def mark_busy(self, rank: Rank, since: float) -> None: ...
    def mark_done(self, rank: Rank, at: float) -> None: ...
    def end(self, ranks: tuple[Rank, ...], why: str) -> None: ...


@dataclass(slots=True)
class Cell:
    channel: Channel
    idents: tuple[bytes, ...]
    message: Message
    content: Content
    count: int = 0
    talk: Talk | None = None
    fanout: Fanout | None = None
    last: Fanout | None = None  # the finished round whose replies count
    rounds: int = 0
    stored: bool = False
    magics: bool = False
    payload: list[Any] = field(default_factory=list)

    @property
    def code(self) -> str:
        return self.content.text("code")

    @property
    def silent(self) -> bool:
        return self.content.flag("silent")

    @property
    def counts(self) -> bool:
        """IPython counts what it stores, and takes blank code for no cell at all."""
        stores = self.content.flag("store_history", not self.silent)
        return stores and not self.silent and bool(self.code.strip())

    @property
    def headless(self) -> bool:
        return not self.content.flag("allow_stdin", True)

    @property
    def client(self) -> Client:
        """Notebooks name the cell; a console has none to name."""
        if self.headless:
            return "headless"
        return "notebook" if "cellId" in self.message.metadata else "terminal"

    @property
    def msg_id(self) -> str:
        return self.message.msg_id


def parse(event: FromFront) -> Cell:
    """Raises `BadMessage` when the request is not what the specification says."""
    content = read(event.message.content)
    if "code" not in content:
        raise BadMessage("execute_request has no 'code'")
    content.text("code")
    content.mapping("user_expressions")
    return Cell(event.channel, event.idents, event.message, content)


def _counted(message: Message, count: int) -> Message:
    """IPython numbers the result of what it does not store by the cell before."""
    return replace(message, content=dumps({**read(message.content), "execution_count": count}))


def _commented(code: str) -> str:
    return "\n".join(f"# {line}" for line in code.splitlines()) or "#"


class Cells:
    def __init__(
        self,
        stage: Stage,
        ranks: Ranks,
        display_ids: DisplayIds,
        script: Callable[[Cell], Script],
        perform: Callable[[Talk, Any], None],
        ended: Callable[[Cell, bool], None],
    ):
        self._stage = stage
        self._ranks = ranks
        self._display_ids = display_ids
        self._script = script
        self._perform = perform
        self._ended = ended
        self._queue: deque[Cell] = deque()
        self.running: Cell | None = None
        self.last_header: Header | None = None
        self.count = 0
        self.on_error: str | None = None

    # ---------------------------------------------------------------- queue

    def request(self, event: FromFront) -> None:
        self._queue.append(parse(event))
        self.next()

    def is_queued(self, msg_id: str) -> bool:
        return any(cell.msg_id == msg_id for cell in self._queue)

    def next(self) -> None:
        # A loop, not recursion: a queue of cells that fail at once may be long.
        while self.running is None and self._queue:
            self._begin(self._queue.popleft())

    def _begin(self, cell: Cell) -> None:
        self.running = cell
        self.last_header = cell.message.header
        if cell.client != self._stage.policy.client:
            self._stage.policy = replace(self._stage.policy, client=cell.client)
        cell.count = self.count + 1 if cell.counts else self.count
        self._stage.status("busy", cell.message.header)
        if not cell.silent:
            shown = cell.count if cell.counts else self.count + 1
            self._publish(
                Publish("execute_input", dumps({"code": cell.code, "execution_count": shown})), cell
            )
        talk = Talk(
            self._script(cell), self._perform, lambda _, error: self._script_over(cell, error)
        )
        cell.talk = talk
        talk.step()

    def abort_all(self) -> None:
        """The kernel shuts down: nobody waits for a reply that cannot come."""
        cell, self.running = self.running, None
        if cell is not None:
            if cell.talk is not None:
                cell.talk.close()
            self._reply(cell, {"status": "aborted"})
        self._abort_queue()

    def _abort_queue(self) -> None:
        queue, self._queue = self._queue, deque()
        for cell in queue:
            self._stage.status("busy", cell.message.header)
            self._reply(cell, {"status": "aborted"})

    # ---------------------------------------------------------------- a round on ranks

    def run(self, talk: Talk, want: Run, *, stores: bool) -> None:
        """Begin a `Run` of the running cell; ``talk`` goes on when it did well."""
        cell = self.running
        assert cell is not None
        dead = [rank for rank in want.ranks if rank not in self._ranks.alive]
        if dead or not want.ranks:
            talk.step(error=self._cannot_run(dead))
            return
        cell.rounds += 1
        code = want.code
        if stores and cell.counts and not code.strip():
            code = _commented(cell.code)  # IPython does not count a blank cell
        fanout = self._fanout(cell, want, stores, lambda: self._round_over(cell, talk))
        cell.fanout = fanout
        cell.stored = cell.stored or stores
        for rank in want.ranks:
            self._ranks.mark_busy(rank, self._stage.at)
        self._stage.emit(ToRank(want.ranks, "shell", self._request(cell, fanout, code)))
        if stores:
            self._fill_in(cell, tuple(r for r in self._ranks.alive if r not in want.ranks))

    def _cannot_run(self, dead: list[Rank]) -> SpmdError:
        size = self._ranks.size
        alive = ",".join(map(str, self._ranks.alive))
        hint = f"`%processes {max(size, 1)}` brings back what is dead"
        if alive:
            hint += f"; the others keep their variables, and `%%rank {alive}` runs a cell on them"
        return RankLost(self._ranks.obituaries(), hint)

    def _fanout(self, cell: Cell, want: Run, stores: bool, resume: Callable[[], None]) -> Fanout:
        size = self._ranks.size
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
        return Message(header, cell.message.parent, cell.message.metadata, dumps(content))

    def _fill_in(self, cell: Cell, ranks: tuple[Rank, ...]) -> None:
        """Ranks that do not run a counted cell get its text as comments: In and Out stay aligned."""
        if not cell.counts or not ranks or self._stage.settings.language != "python":
            return
        request = self._stage.own_execute(_commented(cell.code), silent=False)
        self._stage.emit(ToRank(ranks, "shell", request))

    def _align(self, cell: Cell) -> None:
        """An interrupt can cost a rank its count: then equal tracebacks would never fold again."""
        fanout = cell.last
        if fanout is None or not fanout.stores or self._stage.settings.language != "python":
            return
        counts = {reply.get("execution_count") for reply in fanout.replies.values()}
        if fanout.world_size == 1 and len(counts) == 1:
            (count,) = counts
            self.count = count if isinstance(count, int) else self.count
        elif cell.counts and (fanout.interrupted or counts != {cell.count}):
            request = self._stage.own_execute(padding_code((), self.count + 1), silent=True)
            self._stage.emit(ToRank(self._ranks.alive, "shell", request))

    # ---------------------------------------------------------------- what ranks say

    def fanout_of(self, msg_id: str) -> Fanout | None:
        fanout = self.running.fanout if self.running else None
        return fanout if fanout is not None and fanout.msg_id == msg_id else None

    def replied(self, rank: Rank, message: Message) -> bool:
        """A rank's execute_reply, of which the first one counts, or its answer to a fence."""
        fanout = self.running.fanout if self.running else None
        if fanout is None or rank not in fanout.ranks:
            return False
        if rank in fanout.fences.get(message.parent_id, ()):
            self._reply_was_lost(fanout, rank)
            return True
        if fanout.msg_id != message.parent_id or message.msg_type != "execute_reply":
            return False
        try:
            reply = read(message.content)
        except BadMessage as error:
            reply = Content(status="error", ename="BadMessage", evalue=str(error), traceback=[])
        self._accept(fanout, rank, reply, message)
        return True

    def _accept(self, fanout: Fanout, rank: Rank, reply: Content, message: Message | None) -> None:
        if rank in fanout.replies or rank in fanout.lost:
            return
        fanout.replies[rank], fanout.reply = reply, message
        if reply.get("status") != "ok":
            self._part_failed(fanout, rank, dict(reply))
        self._heard(fanout, rank)

    def idle(self, rank: Rank, msg_id: str) -> bool:
        fanout = self.running.fanout if self.running else None
        if fanout is None or rank not in fanout.ranks:
            return False
        if rank in fanout.fences.get(msg_id, ()):
            self._idle_was_lost(fanout, rank)
            return True
        if fanout.msg_id != msg_id:
            return False
        fanout.idle.add(rank)
        self._heard(fanout, rank)
        return True

    def _heard(self, fanout: Fanout, rank: Rank) -> None:
        """A reply or an idle came; the other one is usually close behind."""
        if not fanout.fence_set and rank in fanout.half_done:
            fanout.fence_set = True
            self._stage.timer(("fence", fanout.msg_id), FENCE_SECONDS)
        self._settle(fanout, rank)

    def output(self, fanout: Fanout, rank: Rank, message: Message) -> None:
        cell = self.running
        assert cell is not None
        try:
            if message.msg_type == "error":
                self._part_failed(fanout, rank, read(message.content))
            elif message.msg_type == "execute_result" and not fanout.stores:
                message = _counted(message, cell.count)
            published = fanout.outputs.feed(rank, message, self._stage.at)
        except BadMessage as error:
            self._stage.log("warning", f"rank {rank}: {message.msg_type} as it came: {error}")
            published = [raw(message)]
        self._show(fanout, published)

    def cut(self, rank: Rank) -> None:
        """A question follows: what the rank wrote before it is shown first."""
        if self.running is not None and (fanout := self.running.fanout) is not None:
            self._show(fanout, fanout.outputs.cut(rank, self._stage.at))

    def output_due(self, msg_id: str) -> None:
        fanout = self.fanout_of(msg_id)
        if fanout is not None:
            fanout.armed = None
            self._show(fanout, fanout.outputs.tick(self._stage.at))

    def _show(self, fanout: Fanout, published: list[Publish]) -> None:
        cell = self.running
        assert cell is not None
        for item in published:
            self._publish(item, cell)
        deadline = fanout.outputs.deadline()
        if deadline is not None and deadline != fanout.armed:
            self._stage.timer(("output", fanout.msg_id), max(0.0, deadline - self._stage.at))
        fanout.armed = deadline

    def _publish(self, item: Publish, cell: Cell) -> None:
        self._stage.publish(
            item.msg_type, item.content, cell.message.header, item.metadata, item.buffers
        )

    # ---------------------------------------------------------------- failure of a part

    def lost(self, rank: Rank, error: dict[str, Any]) -> bool:
        """A rank died. True: the running cell has said so."""
        fanout = self.running.fanout if self.running else None
        if fanout is None or rank not in fanout.ranks or rank in fanout.lost:
            return False
        message = error_message(error)
        self._show(fanout, fanout.outputs.feed(rank, message, self._stage.at))
        fanout.note_failure(rank, error)
        fanout.lost[rank] = error
        self._settle(fanout, rank)
        if survivors := fanout.running:
            if not fanout.interrupted:
                self._interrupt(fanout, survivors)
            self._stage.timer(("overdue", fanout.msg_id), STOP_SECONDS)
        return True

    def _part_failed(self, fanout: Fanout, rank: Rank, error: dict[str, Any]) -> None:
        fanout.note_failure(rank, error)
        if self._policy() == "stop" and not fanout.interrupted:
            self._stage.timer(("on-error", fanout.msg_id), STOP_SECONDS)

    def _policy(self) -> str:
        cell = self.running
        return self.on_error or ("stop" if cell is not None and cell.headless else "wait")

    def others_overdue(self, msg_id: str) -> bool:
        """``--on-error stop``: a rank failed 5 s ago. True: others still ran, and are interrupted."""
        fanout = self.fanout_of(msg_id)
        if fanout is None or fanout.interrupted or not fanout.running:
            return False
        self._interrupt(fanout, fanout.running)
        self._stage.timer(("overdue", msg_id), STOP_SECONDS)
        return True

    def survivors_overdue(self, msg_id: str) -> None:
        """They were interrupted 5 s ago and still run: the notebook goes on without them."""
        fanout = self.fanout_of(msg_id)
        if fanout is not None and (stuck := fanout.running):
            self._ranks.end(
                stuck,
                "was killed: another rank of this cell had failed, and this one was still busy"
                f" {STOP_SECONDS:.0f} s after its interrupt",
            )

    def interrupt(self) -> None:
        """The user pressed Stop."""
        cell = self.running
        fanout = cell.fanout if cell else None
        if cell is None or cell.talk is None:
            return
        if fanout is None:
            cell.talk.throw(Interrupted("stopped by the user"))
        else:
            self._interrupt(fanout, fanout.running)

    def _interrupt(self, fanout: Fanout, ranks: tuple[Rank, ...]) -> None:
        if not ranks:
            return
        fanout.interrupted = True
        self._stage.emit(Interrupt(ranks))
        # Besides, ipykernel's `await asyncio.sleep(…)` notices SIGINT only when a message comes.
        self._fence(fanout, ranks)

    # ---------------------------------------------------------------- lost messages

    def _fence(self, fanout: Fanout, ranks: tuple[Rank, ...]) -> None:
        """Ask what a rank answers only after the cell: then what has not come will not come.

        ZeroMQ drops an idle under load, and a SIGINT that hits ipykernel between the end of a cell
        and its reply costs the reply.
        """
        request = self._stage.own_request("kernel_info_request", {})
        fanout.fences[request.msg_id] = set(ranks)
        self._stage.emit(ToRank(ranks, "shell", request))

    def fence_due(self, msg_id: str) -> None:
        fanout = self.fanout_of(msg_id)
        if fanout is None:
            return
        fanout.fence_set = False
        if ranks := fanout.half_done:
            self._fence(fanout, ranks)
            fanout.fence_set = True
            self._stage.timer(("fence", msg_id), FENCE_SECONDS)

    def _reply_was_lost(self, fanout: Fanout, rank: Rank) -> None:
        if rank in fanout.replies or rank in fanout.lost:
            return
        name = "KeyboardInterrupt" if fanout.interrupted else "ReplyLost"
        text = f"rank {rank} ended its part of the cell without a reply"
        error = {"ename": name, "evalue": text, "traceback": [f"{name}: {text}"]}
        self.output(fanout, rank, error_message(error))
        self._accept(fanout, rank, Content(status="error", **error), None)

    def _idle_was_lost(self, fanout: Fanout, rank: Rank) -> None:
        if self.running is None or rank in fanout.idle or rank in fanout.lost:
            return
        if not fanout.interrupted:
            text = (
                f"rank {rank}: messages were lost under load; some of its output may be missing\n"
            )
            self._show(fanout, fanout.outputs.cut(rank, self._stage.at))
            self._publish(Publish("stream", dumps({"name": "stderr", "text": text})), self.running)
        fanout.idle.add(rank)
        self._settle(fanout, rank)

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

    def _settle(self, fanout: Fanout, rank: Rank) -> None:
        if not fanout.is_done(rank) or rank in fanout.settled:
            return
        fanout.settled.add(rank)
        if rank not in fanout.lost:
            self._ranks.mark_done(rank, self._stage.at)
        self._show(fanout, fanout.outputs.finish(rank, self._stage.at))
        if fanout.running:
            return
        self._show(fanout, fanout.outputs.close(self._stage.at))
        for kind in ("fence", "on-error", "overdue", "output"):
            self._stage.cancel((kind, fanout.msg_id))
        fanout.resume()

    def _round_over(self, cell: Cell, talk: Talk) -> None:
        fanout, cell.fanout = cell.fanout, None
        assert fanout is not None
        cell.payload += distinct([p for r in fanout.replies.values() for p in payload_of(r)])
        if fanout.stores or fanout.failed:
            cell.last = fanout
        if not fanout.failed:
            talk.step()
            return
        talk.close()
        self._finish(cell, failed=True, reply=self._reply_of(cell, fanout))

    def _script_over(self, cell: Cell, error: SpmdError | None) -> None:
        if error is not None:
            content = {
                "ename": error.ename,
                "evalue": str(error),
                "traceback": error.lines(),
            }
            self._publish(Publish("error", dumps(content)), cell)
            self._finish(cell, failed=True, reply=error_reply(content, cell.count))
        elif cell.last is not None:
            self._finish(cell, failed=False, reply=self._reply_of(cell, cell.last))
        else:
            reply = merge_replies({}, self._ranks.size, cell.count, cell.payload)
            self._finish(cell, failed=False, reply=reply)

    def _reply_of(self, cell: Cell, fanout: Fanout) -> Mapping[str, Any] | Message:
        if fanout.world_size == 1 and not cell.magics and not fanout.lost and fanout.reply:
            return fanout.reply
        if fanout.failed:
            return error_reply(fanout.error(), cell.count)
        merged = merge_replies(fanout.replies, fanout.world_size, cell.count, [])
        return {**merged, "payload": cell.payload}

    def _finish(self, cell: Cell, *, failed: bool, reply: Mapping[str, Any] | Message) -> None:
        if self.running is not cell:
            return
        if cell.counts and not cell.stored:
            self._fill_in(cell, self._ranks.alive)
        if cell.counts:
            self.count = cell.count
        self._align(cell)
        self.running = None
        self._ended(cell, failed)
        self._reply(cell, reply)
        cell.talk = cell.last = None  # they know the cell: what nobody needs is freed at once
        if failed and cell.content.flag("stop_on_error", True):
            self._abort_queue()

    def _reply(self, cell: Cell, reply: Mapping[str, Any] | Message) -> None:
        header = cell.message.header
        if isinstance(reply, Message):
            content, metadata, buffers = reply.content, reply.metadata, reply.buffers
        else:
            content, metadata, buffers = dumps(reply), {"status": reply["status"]}, ()
        self._stage.emit(
            ToFront(cell.channel, cell.idents, "execute_reply", content, header, metadata, buffers)
        )
        self._stage.status("idle", header)
