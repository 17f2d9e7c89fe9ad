"""Clients of the debug port in a world without IO: what they say and what they are told."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from spmd_kernel.core.dap.frames import Frames, framed


@dataclass
class FakeEditor:
    number: int
    frames: Frames = field(default_factory=lambda: Frames(1 << 30))
    told: list[dict[str, Any]] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)  # the numbers of its requests
    hung_up: bool = False  # nothing comes any more
    gone: bool = False  # it left, or it was told so

    def take(self, data: bytes) -> None:
        assert not (self.hung_up or self.gone), "bytes for nobody"
        for body in self.frames.feed(data):
            message = json.loads(body)
            assert message["seq"] == len(self.told) + 1
            self.told.append(message)

    def request(self, command: Any, **arguments: Any) -> bytes:
        self.asked.append(100 + len(self.asked))
        message = {"seq": self.asked[-1], "type": "request", "command": command}
        return framed({**message, "arguments": arguments})

    @property
    def responses(self) -> list[dict[str, Any]]:
        return [message for message in self.told if message["type"] == "response"]

    @property
    def response(self) -> dict[str, Any]:
        """The last one."""
        return self.responses[-1]

    @property
    def events(self) -> list[dict[str, Any]]:
        return [message for message in self.told if message["type"] == "event"]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event.get("body", {}) for event in self.events if event["event"] == kind]

    @property
    def attached(self) -> bool:
        """It was once."""
        return bool(self.of("initialized"))

    def check(self, *, served: bool) -> None:
        """One response for each request, in their order; threads stop and go on in turn."""
        answered = [response["request_seq"] for response in self.responses]
        assert answered == self.asked[: len(answered)]
        if served:
            assert answered == self.asked
        stopped: set[int] = set()
        for event in self.events:
            if event["event"] == "stopped":
                stopped.add(event["body"]["threadId"])
            elif event["event"] == "continued":
                assert event["body"]["threadId"] in stopped
                stopped.discard(event["body"]["threadId"])
        if not self.attached:
            assert {event["event"] for event in self.events} <= {"capabilities"}
            good = [response for response in self.responses if response["success"]]
            assert {response["command"] for response in good} <= {"initialize", "disconnect"}
