"""A cell's rounds on its ranks: what they say, what fails, what is lost, and when a round is over.

A round (`Fanout`) begins in `cells`; here its ranks' messages arrive, and when each rank has replied
and is idle, or died, the round's ``resume`` is called, once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, Protocol

from .cell import Cell
from .content import Content, dumps, read
from .errors import BadMessage, TimeLimit
from .fanout import Fanout, error_message, raw
from .magics.wording import name_ranks
from .model import NO_SUBSHELLS, Interrupt, Message, Rank, Subshells
from .outputs import Publish
from .stage import Stage

FENCE_SECONDS = 0.5  # a reply without idle for so long: ask whether the idle was dropped
AGAIN = 2.0  # seconds until the second SIGINT
BEREAVED_SECONDS = 0.5  # how long others may go on after a death: who is about to finish does so
STOP_SECONDS = 5.0  # how long others may go on after a failure, and after an interrupt


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


class Rounds:
    def __init__(
        self,
        stage: Stage,
        ranks: Ranks,
        running: Callable[[], Cell | None],
        interrupted: Callable[[tuple[Rank, ...]], None],
        settled: Callable[[Fanout], None],
        aligned: Callable[[], bool],
        subshells: Subshells = NO_SUBSHELLS,
    ):
        """``interrupted`` hears which ranks are: what they wait for is void.

        ``settled`` hears that one of several ranks is done or dead, while others go on.
        ``aligned``: ranks count as the cell's number says.
        """
        self._stage = stage
        self._ranks = ranks
        self._running = running
        self._interrupted = interrupted
        self._one_settled = settled
        self._aligned = aligned
        self._subshells = subshells
        self.on_error: str | None = None  # what `--on-error` said
        # Ranks that a debugger has stopped: while the user looks at one, nobody is hurried.
        self.examined: Callable[[], tuple[Rank, ...]] = tuple
        self.asking: Callable[[], Collection[Rank]] = tuple  # ranks that wait for an answer

    def stuck(self, fanout: Fanout) -> tuple[Rank, ...]:
        """At work, and not at a debugger's prompt, which an interrupt does not end."""
        asking = self.asking()
        return tuple(rank for rank in fanout.running if rank not in asking)

    @property
    def fanout(self) -> Fanout | None:
        """The round at hand."""
        cell = self._running()
        return cell.fanout if cell is not None else None

    def fanout_of(self, msg_id: str) -> Fanout | None:
        fanout = self.fanout
        return fanout if fanout is not None and fanout.msg_id == msg_id else None

    # ---------------------------------------------------------------- what ranks say

    def replied(self, rank: Rank, message: Message) -> bool:
        """A rank's execute_reply, of which the first one counts, or its answer to a fence."""
        fanout = self.fanout
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
        if rank in fanout.refused and reply.get("status") == "ok":
            reply, message = Content(status="error", **fanout.refused[rank]), None
        fanout.replies[rank], fanout.reply = reply, message
        if message is not None and not fanout.metadata:
            fanout.metadata = message.metadata
        if reply.get("status") != "ok":
            self._part_failed(fanout, rank, failure_of(reply, fanout.interrupted))
        self._heard(fanout, rank)

    def idle(self, rank: Rank, msg_id: str) -> bool:
        fanout = self.fanout
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
        fanout.ended.setdefault(rank, self._stage.at)
        if not fanout.fence_set and fanout.is_half_done(rank):
            fanout.fence_set = True
            self._stage.timer(("fence", fanout.msg_id), FENCE_SECONDS)
        self._settle(fanout, rank)

    def output(self, fanout: Fanout, rank: Rank, message: Message) -> None:
        cell = self._running()
        assert cell is not None
        try:
            if message.msg_type == "error":
                self._part_failed(fanout, rank, read(message.content))
            elif message.msg_type == "execute_result" and not (fanout.stores and self._aligned()):
                message = counted(message, cell.count)
            published = fanout.outputs.feed(rank, message, self._stage.at)
        except BadMessage as error:
            self._stage.log("warning", f"rank {rank}: {message.msg_type} as it came: {error}")
            published = [raw(message)]
        self._show(fanout, published)

    def cut(self, rank: Rank) -> None:
        """A question follows: what the rank wrote before it is shown first."""
        if (fanout := self.fanout) is not None:
            self._show(fanout, fanout.outputs.cut(rank, self._stage.at))

    def output_due(self, msg_id: str) -> None:
        fanout = self.fanout_of(msg_id)
        if fanout is not None:
            fanout.armed = None
            self._show(fanout, fanout.outputs.tick(self._stage.at))
            self._end(fanout)

    def _show(self, fanout: Fanout, published: list[Publish]) -> None:
        cell = self._running()
        assert cell is not None
        for item in published:
            self._stage.show(item, cell.message.header)
        deadline = fanout.outputs.deadline()
        if deadline is not None and deadline != fanout.armed:
            self._stage.timer(("output", fanout.msg_id), max(0.0, deadline - self._stage.at))
        fanout.armed = deadline
        self._stage.pace.set(fanout.msg_id, fanout.outputs.full())

    # ---------------------------------------------------------------- failure of a part

    def lost(self, rank: Rank, error: dict[str, Any]) -> bool:
        """A rank died. True: the running cell has said so."""
        fanout = self.fanout
        if fanout is None or rank not in fanout.ranks or rank in fanout.lost:
            return False
        message = error_message(error)
        self._show(fanout, fanout.outputs.feed(rank, message, self._stage.at))
        fanout.note_failure(rank, error)
        fanout.lost[rank] = error
        fanout.ended.setdefault(rank, self._stage.at)
        self._settle(fanout, rank)
        if fanout.running:
            if fanout.interrupted:
                self._stage.timer(("overdue", fanout.msg_id), STOP_SECONDS)
            else:
                self._stage.timer(("on-error", fanout.msg_id), BEREAVED_SECONDS)
        return True

    def _part_failed(self, fanout: Fanout, rank: Rank, error: dict[str, Any]) -> None:
        fanout.note_failure(rank, error)
        if self._policy() == "stop" and not (fanout.interrupted or fanout.lost):
            self._stage.timer(("on-error", fanout.msg_id), STOP_SECONDS)

    def _policy(self) -> str:
        cell = self._running()
        return self.on_error or ("stop" if cell is not None and cell.headless else "wait")

    def others_overdue(self, msg_id: str) -> None:
        """A rank died just now, or it failed 5 s ago (``--on-error stop``), and others still run.

        One that showed an error and goes on has not failed: a callback's, or an Output widget's.
        """
        fanout = self.fanout_of(msg_id)
        if fanout is None or not fanout.failed:
            return
        if not fanout.interrupted and fanout.running:
            if not self._is_examined(fanout):
                self.interrupt(fanout, fanout.running)
            self._stage.timer(("overdue", msg_id), STOP_SECONDS)

    def _is_examined(self, fanout: Fanout) -> bool:
        return not set(self.examined()).isdisjoint(fanout.running)

    def survivors_overdue(self, msg_id: str) -> None:
        """They were interrupted 5 s ago and still run: the notebook goes on without them."""
        fanout = self.fanout_of(msg_id)
        if fanout is None or not fanout.running:
            return
        stuck, examined = self.stuck(fanout), self._is_examined(fanout)
        late = not fanout.interrupted and not examined  # a debugger kept us from it until now
        if late:
            self.interrupt(fanout, stuck)
        if late or examined or len(stuck) < len(fanout.running):
            self._stage.timer(("overdue", msg_id), STOP_SECONDS)
        if stuck and not (late or examined):
            self._ranks.end(
                stuck,
                "was killed: another rank of this cell had failed, and this one was still busy"
                f" {STOP_SECONDS:.0f} s after its interrupt",
            )

    def interrupt(self, fanout: Fanout, ranks: tuple[Rank, ...]) -> None:
        fanout.outputs.hurry()
        if not ranks:
            return
        fanout.interrupted = True
        self._stage.emit(Interrupt(ranks))
        self._interrupted(ranks)
        # Besides, ipykernel's `await asyncio.sleep(…)` notices SIGINT only when a message comes.
        self._fence(fanout, ranks)

    def time_is_over(self, msg_id: str) -> bool:
        """The limit of `Run.seconds`. True: ranks are still at work, and shall be interrupted."""
        fanout = self.fanout_of(msg_id)
        if fanout is None or fanout.limit is None or not fanout.running:
            return False
        verb = "was" if len(fanout.running) == 1 else "were"
        what = f"the time limit of {fanout.limit:g} s ended the cell: "
        what += f"{name_ranks(fanout.running)} {verb} still running"
        if fanout.first_failure is not None:
            rank, error = fanout.first_failure
            what += f"; rank {rank} had failed before: {error.get('ename')}: {error.get('evalue')}"
        fanout.overdue = TimeLimit(what, "`%%timeout` with more seconds gives it more time")
        return True

    def interrupt_some(self, ranks: tuple[Rank, ...]) -> None:
        """A client wants these to stop, and the others to go on."""
        fanout = self.fanout
        if fanout is None:
            return
        fanout.stopped.update(ranks)
        self._stage.emit(Interrupt(ranks))
        self._fence(fanout, ranks)
        self._stage.timer(("some", fanout.msg_id), AGAIN)

    def some_overdue(self, msg_id: str) -> None:
        """A SIGINT that comes just before ipykernel begins a cell is lost: once more."""
        fanout = self.fanout_of(msg_id)
        if fanout is None or fanout.interrupted:
            return
        if stuck := tuple(rank for rank in self.stuck(fanout) if rank in fanout.stopped):
            self._stage.emit(Interrupt(stuck))

    def refused(self, rank: Rank) -> None:
        """It asked although it must not: it got an empty answer, and its part of the cell fails.

        Once more, it is a loop: it is interrupted.
        """
        fanout = self.fanout
        if fanout is None or rank not in fanout.running:
            return
        if rank in fanout.refused:
            self.interrupt_some((rank,))
            return
        text = f"rank {rank} asked for input, which this client does not take"
        hint = "hint: run the cell in a notebook or a console, or set the value in the code"
        name = "StdinNotImplementedError"
        error = {"ename": name, "evalue": text, "traceback": [f"{name}: {text}", hint]}
        fanout.refused[rank] = error
        self.output(fanout, rank, error_message(error))

    # ---------------------------------------------------------------- lost messages

    def _fence(self, fanout: Fanout, ranks: tuple[Rank, ...]) -> None:
        """Ask what a rank answers only after the cell: then what has not come will not come.

        ZeroMQ drops an idle under load, and a SIGINT that hits ipykernel between the end of a cell
        and its reply costs the reply.
        """
        request = self._stage.own_request("kernel_info_request", {})
        fanout.fences[request.msg_id] = set(ranks)
        self._stage.to_shells(ranks, request, self._subshells)

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
        stopped = fanout.interrupted or rank in fanout.stopped
        name = "KeyboardInterrupt" if stopped else "ReplyLost"
        text = f"rank {rank} ended its part of the cell without a reply"
        error = {"ename": name, "evalue": text, "traceback": [f"{name}: {text}"]}
        self.output(fanout, rank, error_message(error))
        self._accept(fanout, rank, Content(status="error", **error), None)

    def _idle_was_lost(self, fanout: Fanout, rank: Rank) -> None:
        cell = self._running()
        if cell is None or rank in fanout.idle or rank in fanout.lost:
            return
        if not (fanout.interrupted or rank in fanout.stopped):
            text = (
                f"rank {rank}: messages were lost under load; some of its output may be missing\n"
            )
            self._show(fanout, fanout.outputs.cut(rank, self._stage.at))
            content = dumps({"name": "stderr", "text": text})
            self._stage.publish("stream", content, cell.message.header)
        fanout.idle.add(rank)
        self._settle(fanout, rank)

    # ---------------------------------------------------------------- the end

    def _settle(self, fanout: Fanout, rank: Rank) -> None:
        if not fanout.is_done(rank) or rank in fanout.settled:
            return
        fanout.settled.add(rank)
        if rank not in fanout.lost:
            self._ranks.mark_done(rank, self._stage.at)
        self._show(fanout, fanout.outputs.finish(rank, self._stage.at))
        if not self._end(fanout):
            self._one_settled(fanout)

    def _end(self, fanout: Fanout) -> bool:
        """All ranks are done: what is still held goes out, in slices if it is much."""
        if len(fanout.settled) < len(fanout.ranks):
            return False
        if not fanout.outputs.is_behind:
            self.close(fanout)
            fanout.resume()
        return True

    def close(self, fanout: Fanout) -> None:
        """It is over, or broken off: what is still held is shown, and no timer is left."""
        self._show(fanout, fanout.outputs.close(self._stage.at))
        for kind in ("fence", "some", "on-error", "overdue", "output", "limit", "ladder", "watch"):
            self._stage.cancel((kind, fanout.msg_id))


def failure_of(reply: Content, interrupted: bool) -> dict[str, Any]:
    """Kernels other than IPython's end an interrupted cell with no more than a status."""
    if interrupted and not reply.get("ename"):
        return {**reply, "ename": "KeyboardInterrupt", "evalue": reply.get("evalue") or ""}
    return dict(reply)


def counted(message: Message, count: int) -> Message:
    """IPython numbers the result of what it does not store by the cell before."""
    content = read(message.content)
    if content.get("execution_count") in (None, count):
        return message
    return replace(message, content=dumps({**content, "execution_count": count}))
