"""Sessions of real ranks' debuggers as the merger saw them, and what it made of them.

A trace is made of a recording of the whole kernel (`spmd_kernel.io.record`): what passed the merger's
boundary, a JSON object a line, ``{"t": seconds, "in": {…}, "out": […]}``.  `replay` plays what came
in to the merger as it is today, and gives the lines as they would be now.

in:  ``client``, ``cell``, ``interrupt``; of a rank ``answer``, ``settled`` (it is idle again),
     ``event``, ``busy``, ``ran``, ``idle`` (of its shell), ``dies``; ``timer``
out: ``ask`` (a rank's debugger), ``run`` (silently, in its shell), ``reply``, ``tell``
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from spmd_kernel.core.dap.repair import ANOTHER_PORT, REPAIR
from spmd_kernel.core.model import (
    Cause,
    Effect,
    Event,
    FromFront,
    FromRank,
    Message,
    RankExited,
    TimerFired,
    ToFront,
    ToRank,
)
from spmd_kernel.io.record import read
from spmd_kernel.io.record import replay as replay_kernel

from .world import World, start

CELLS = "/tmp/cells/"
PREPARE = "prepare()"
OURS = {REPAIR: "repair", ANOTHER_PORT: "another port", PREPARE: "prepare"}
SLACK = 0.1  # seconds that a timer may be later: here each event takes a millisecond
Line = dict[str, Any]


# ---------------------------------------------------------------- what came in


class Reader:
    """Of the kernel's events.  Requests to a rank count from 0, by channel, from the first one on."""

    def __init__(self) -> None:
        self._sent: dict[tuple[int, str], list[str]] = {}

    def sent(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, ToRank) and effect.message.msg_type in SERVED:
                for rank in effect.ranks:
                    served = self._sent.setdefault((rank, effect.channel), [])
                    served.append(effect.message.msg_id)

    def came(self, event: Event) -> Line | None:
        """``None``: not the merger's business."""
        match event:
            case FromFront(message=Message() as message):
                return _of_client(message)
            case FromRank(rank=rank, channel=channel, message=Message() as message):
                return self._of_rank(rank, channel, message)
            case RankExited(rank=rank, cause=cause):
                return {"dies": rank, "signal": cause.signal}
            case TimerFired(key=tuple(key)) if str(key[0]).startswith("dap"):
                return {"timer": list(key)}
        return None

    def _of_rank(self, rank: int, channel: str, message: Message) -> Line | None:
        content = json.loads(message.content or b"{}")
        if message.msg_type == "debug_event":
            return {"event": rank, "content": content}
        of = str(message.parent.get("msg_type"))
        known = self._sent.get((rank, SERVED.get(of, "")), [])
        if message.parent_id not in known:
            return None
        number = known.index(message.parent_id)
        match message.msg_type:
            case "debug_reply":
                kept = {k: v for k, v in content.items() if k not in ("seq", "request_seq", "type")}
                return {"answer": rank, "n": number, "content": kept}
            case "execute_reply":
                return {"ran": rank, "n": number, "error": content["status"] != "ok"}
            case "status" if of == "execute_request":
                return {content["execution_state"]: rank, "n": number}
            case "status" if content["execution_state"] == "idle":
                return {"settled": rank, "n": number}
        return None


SERVED = {"debug_request": "control", "execute_request": "shell"}


def _of_client(message: Message) -> Line | None:
    content = json.loads(message.content or b"{}")
    match message.msg_type:
        case "debug_request":
            return {"client": content["command"], "arguments": content.get("arguments") or {}}
        case "execute_request":
            return {"cell": content["code"]}
        case "interrupt_request":
            return {"interrupt": True}
    return None


# ---------------------------------------------------------------- what it did


def went(effects: Iterable[Effect]) -> list[Line]:
    return [line for effect in effects for line in _went(effect)]


def _went(effect: Effect) -> Iterator[Line]:
    match effect:
        case ToRank(ranks=ranks, message=message) if message.msg_type == "debug_request":
            content = json.loads(message.content)
            for rank in ranks:
                yield {"ask": rank, **{key: content[key] for key in ("command", "arguments")}}
        case ToRank(ranks=ranks, message=message) if message.msg_type == "execute_request":
            code = json.loads(message.content)["code"]
            if code in OURS:
                yield from ({"run": rank, "what": OURS[code]} for rank in ranks)
        case ToFront(msg_type="debug_reply", content=content):
            reply = json.loads(content)
            yield {"reply": reply["command"], **{k: reply[k] for k in _KEPT if k in reply}}
        case ToFront(msg_type="debug_event", content=content):
            event = json.loads(content)
            yield {"tell": event["event"], "body": event.get("body")}


_KEPT = ("success", "message", "body")


# ---------------------------------------------------------------- of a recording


def of_recording(lines: list[str]) -> Iterator[Line]:
    """The trace, from the first request of a client to its debugger up to the shutdown."""
    settings, _ = read(lines)
    begun, reader, OURS[settings.debugging] = 0.0, Reader(), "prepare"
    for event, effects in replay_kernel(lines):
        if isinstance(event, FromFront) and event.message.msg_type == "shutdown_request":
            return
        coming, out = reader.came(event), went(effects)
        begun = begun or (event.at if coming and "client" in coming else 0.0)
        if begun:
            reader.sent(effects)
        if begun and (coming or out):
            at = round(event.at - begun, 3)
            yield {"t": at, "in": coming or {"nothing": type(event).__name__}, "out": out}


def plain(text: str, cells: str) -> str:
    """Without what is of one machine or one run: folders, process ids, addresses."""
    pids: dict[str, str] = {}
    text = text.replace(cells, CELLS)
    for pid in re.findall(r'"tmpFilePrefix": ?"[^"]*/ipykernel_(\d+)', text):
        pids.setdefault(pid, str(1000 + len(pids)))
    text = re.sub(r'"[^"]*/ipykernel_(\d+)', lambda m: f'"/tmp/ipykernel_{pids[m[1]]}', text)
    text = re.sub(r'"/[^"]*/(site-packages|spmd_kernel|python3\.\d+)/', r'"/\1/', text)
    return re.sub(r'("(?:systemProcessId|processId)": ?)\d+', r"\g<1>1", text)


# ---------------------------------------------------------------- of today


def replay(lines: Iterable[Line], size: int) -> Iterator[Line]:
    """The lines as the merger of today would have them. Raises `AssertionError` where a rank answers
    what it is not asked.
    """
    player = _Player(start(size, cells=CELLS, debugging=PREPARE))
    for line in lines:
        yield {**line, "out": player.play(line["t"], line["in"])}


class _Player:
    def __init__(self, world: World):
        self._world = world
        self._begun = world.at
        self._asked: dict[int, list[Message]] = {rank: [] for rank in world.ranks}
        self._shell: dict[int, list[Message]] = {rank: [] for rank in world.ranks}

    def play(self, at: float, coming: Line) -> list[Line]:
        world, before = self._world, len(self._world.effects)
        self._time_passes(self._begun + at, SLACK if "nothing" in coming else 0.0)
        (kind, value), *_ = coming.items()
        match kind:
            case "client":
                world.debug(value, **coming["arguments"])
            case "cell":
                world.execute(value)
            case "interrupt":
                world.ask("interrupt_request", {}, channel="control")
            case "timer":
                world.timers.pop(tuple(value), None)
                world.feed(TimerFired(world.tick(), tuple(value)))
            case "dies":
                world.die(world.ranks[value], Cause(signal=coming["signal"]))
            case "event":
                world.say(world.ranks[value], "iopub", "debug_event", coming["content"], None)
            case "answer" | "settled":
                self._served(kind, value, self._asked, coming)
            case "busy" | "ran" | "idle":
                self._served(kind, value, self._shell, coming)
        for rank, fake in world.ranks.items():
            for inbox, taken in ((fake.control, self._asked), (fake.inbox, self._shell)):
                taken[rank] += [message for message in inbox if message.msg_type in SERVED]
                inbox.clear()
        return went(world.effects[before:])

    def _time_passes(self, until: float, slack: float) -> None:
        """What waits for time elsewhere in the kernel, such as for a cell's last output, goes on."""
        world = self._world
        while due := [
            (at, str(key), key)
            for key, at in world.timers.items()
            if at <= until + slack and not str(key).startswith("('dap")
        ]:
            world.fire(min(due)[2])
        world.at = max(world.at, until)

    def _served(
        self, kind: str, rank: int, requests: dict[int, list[Message]], coming: Line
    ) -> None:
        world, fake, number = self._world, self._world.ranks[rank], coming["n"]
        assert number < len(requests[rank]), f"rank {rank} was never asked what it is at: {coming}"
        request = requests[rank][number]
        match kind:
            case "answer":
                world.say(fake, "control", "debug_reply", coming["content"], request)
            case "ran":
                world.say(fake, "shell", *world.reply_of(fake, request, coming["error"]), request)
            case _:
                state = "busy" if kind == "busy" else "idle"
                world.say(fake, "iopub", "status", {"execution_state": state}, request)
