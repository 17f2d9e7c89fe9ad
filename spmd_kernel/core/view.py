"""What a magic sees of the hub (`magics.base.Context`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .model import Rank
from .outputs import OutputPolicy
from .stacks import RunningCode
from .timings import Timing

if TYPE_CHECKING:
    from .hub import Hub


class MagicView:
    def __init__(self, hub: Hub, *, headless: bool):
        self._hub = hub
        self.settings = hub.settings
        self.headless = headless

    @property
    def kernel(self) -> str:
        return self._hub.group.kernel

    @property
    def preload(self) -> tuple[str, ...]:
        return self._hub.group.preload

    @property
    def world(self) -> tuple[Any, ...]:
        return self._hub.group.view()

    @property
    def on_error(self) -> str | None:
        return self._hub.cells.rounds.on_error

    def set_on_error(self, value: str) -> None:
        self._hub.cells.rounds.on_error = value

    @property
    def policy(self) -> OutputPolicy:
        return self._hub.stage.policy

    def set_policy(self, value: OutputPolicy) -> None:
        self._hub.stage.policy = value

    @property
    def running_code(self) -> RunningCode:
        fanout = self._hub.cells.rounds.fanout
        return fanout.running_code() if fanout is not None else RunningCode()

    def said(self, rank: Rank) -> str:
        return self._hub.transcript.of(rank)

    @property
    def timings(self) -> tuple[Timing, ...]:
        return self._hub.timings.last()
