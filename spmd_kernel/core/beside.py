"""What cells of subshells may do: everything but start and stop ranks.

A cell of the main shell may be at work meanwhile, and nothing of it must change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .cell import Cell
from .conversation import Script, Talk
from .errors import UsageError
from .magics.base import Look, Prepare, Run, Start
from .model import Rank, Subshells
from .performer import Performer
from .slot import State
from .stdin import Asker
from .subshell import Subshell

if TYPE_CHECKING:
    from .hub import Hub


class SubshellPerformer(Performer):
    def __init__(self, hub: Hub, shell: Subshell):
        super().__init__(hub)
        self._shell = shell

    @property
    def cells(self) -> Subshell:
        return self._shell

    def perform(self, talk: Talk, want: Any) -> None:
        match want:
            case Start() | Prepare():
                what = "ranks are not started or stopped from a subshell"
                talk.step(error=UsageError(what, "do it in the notebook's main shell"))
            case Run() if want.seconds is not None:
                what = "a cell of a subshell cannot be interrupted, so it has no time limit"
                talk.step(error=UsageError(what, "run it in the notebook's main shell"))
            case Look():
                talk.wait_for(lambda resume: self._hub.performer.look(want, resume))
            case _:
                super().perform(talk, want)

    def _run(self, talk: Talk, want: Run) -> None:
        """What `%output` shows stays what the last cell of the main shell said."""
        self.cells.run(talk, want, stores=self.cells.stores)


class Answering:
    """The ranks as questions of clients see them (`inquiries.Ranks`)."""

    def __init__(self, hub: Hub):
        self._hub = hub

    @property
    def alive(self) -> tuple[Rank, ...]:
        return self._hub.group.alive

    @property
    def private(self) -> Subshells:
        return self._hub.subshells.private

    @property
    def are_engaged(self) -> bool:
        return self._hub.cells.are_engaged

    @property
    def busy(self) -> set[Rank]:
        fanout = self._hub.cells.rounds.fanout
        in_cell = fanout.running if fanout is not None else ()
        return {*in_cell, *self._hub.busy_beside_the_cell()}

    @property
    def beside(self) -> Subshells:
        """Where those of them that are busy can be asked all the same."""
        busy = self.busy
        return {rank: shell for rank, shell in self.private.items() if rank in busy}


class Beside:
    def __init__(self, hub: Hub):
        self._hub = hub

    def make(self) -> Subshell:
        hub = self._hub
        shell = Subshell(
            hub.stage,
            hub.group,
            hub.display_ids,
            hub.cells.numbers,
            self._script,
            lambda talk, want: performer.perform(talk, want),
            self._ended,
            hub.echoes,
            self._is_changing,
        )
        performer = SubshellPerformer(hub, shell)
        return shell

    def _is_changing(self) -> bool:
        states = {slot.state for slot in self._hub.group.slots.values()}
        return not states.isdisjoint((State.STARTING, State.STOPPING))

    def _script(self, shell: Subshell, cell: Cell) -> Script:
        self._hub.stdin.withdraw(asker=shell.asker)
        ranks = shell.present
        shell.asker = Asker(cell.idents, cell.message.header, ranks, ranks, not cell.headless)
        return self._hub.steps(shell, cell)

    def _ended(self, shell: Subshell, cell: Cell, failed: bool) -> None:
        if failed:
            self._hub.stdin.withdraw(asker=shell.asker)
        if cell.last is not None:
            self._hub.late.ended(cell.msg_id, cell.last.outputs)
        self._hub.late.flush(cell.msg_id)
        self._hub.over(cell)
