"""What scripts want is begun here; each script goes on when it has it (`conversation.Talk`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .content import dumps
from .control.base import Alone
from .conversation import REPORT, Script, Talk
from .dap import base as dap
from .errand import Errand
from .errors import InternalError, Interrupted
from .magics.base import (
    Ask,
    CloseDebugPort,
    Look,
    OpenDebugPort,
    Page,
    Prepare,
    Run,
    Say,
    Stacks,
    Start,
)
from .model import LaunchRequest, Preload, RankSpec, Survey
from .topology import common_environment
from .wants import CreateSubshell, DeleteSubshell, Inquire, LaunchRanks, StopRanks

if TYPE_CHECKING:
    from .cells import Cells
    from .hub import Hub

# The driver's answers to questions of ours, by token.
Heard = Callable[[Any], None]


class Performer:
    def __init__(self, hub: Hub):
        self._hub = hub
        self._stage = hub.stage
        self._asked: dict[int, Heard] = {}
        self._tokens = 0

    @property
    def cells(self) -> Cells:
        """Whose scripts these are."""
        return self._hub.cells

    def play(self, script: Script, heard: Heard) -> None:
        """Run a script beside the cell; ``heard`` gets what it returns, or None."""
        Talk(script, self.perform, lambda value, _: heard(value)).step()

    def perform(self, talk: Talk, want: Any) -> None:
        hub = self._hub
        match want:
            case Ask():
                talk.asked = want.ranks
                self._ask(talk, want)
            case Inquire():
                talk.wait_for(lambda resume: hub.inquiries.ask(want, resume))
            case CreateSubshell():
                talk.wait_for(hub.subshells.create)
            case DeleteSubshell():
                talk.wait_for(lambda resume: hub.subshells.delete(want.subshell_id, resume))
            case dap.Ask() | dap.Stops() | dap.Outcome():
                hub.debugger.want(talk, want)
            case dap.Until():
                talk.wait_for(want.begin)
            case Run():
                self._run(talk, want)
            case Stacks():
                talk.wait_for(lambda resume: hub.lookouts.dump(want.ranks, resume))
            case Say():
                self._say(want.text)
                talk.step()
            case Page():
                assert self.cells.running is not None
                data = {"text/plain": want.text}
                self.cells.running.payload.append({"source": "page", "data": data, "start": 0})
                talk.step()
            case Look():
                talk.wait_for(lambda resume: self.look(want, resume))
            case Prepare():
                talk.wait_for(lambda resume: self._prepare(want, resume))
            case OpenDebugPort():
                talk.wait_for(lambda resume: hub.debug_port.open(want.port, resume))
            case CloseDebugPort():
                talk.step(hub.debug_port.close())
            case Alone():
                self._lend(want, talk)
            case Start():
                talk.nest(Talk(hub.start(want), self.perform, talk.step))
            case StopRanks():
                talk.wait_for(lambda resume: hub.group.stop(want, resume))
            case LaunchRanks():
                talk.wait_for(lambda resume: hub.group.launch(want, resume))
            case _:
                talk.step(error=InternalError(f"unknown want {want!r}", REPORT))

    def _ask(self, talk: Talk, want: Ask) -> None:
        message = self._stage.own_request(want.msg_type, want.content, want.subshell)
        talk.wait_for(
            lambda resume: self._hub.conversations.ask(
                want.ranks,
                self._hub.group.alive,
                message,
                resume,
                want.channel,
                want.seconds,
                self.cells.subshells,
            )
        )

    def _run(self, talk: Talk, want: Run) -> None:
        assert self.cells.running is not None
        self._hub.transcript.begin(self.cells.running.msg_id)
        self.cells.run(talk, want, stores=self.cells.stores)

    def _lend(self, want: Alone, talk: Talk) -> None:
        errand = Errand(want.script, talk, self.perform)
        if self._hub.closing:
            errand.end(Interrupted("the kernel shuts down"))
        else:
            self._hub.cells.lend(errand, wait=want.wait, first=want.first)

    def look(self, want: Look, resume: Heard) -> Callable[[], None]:
        token = self._token(resume)
        self._stage.emit(Survey(token, want.kernels, want.folder, want.usage))
        return lambda: self._forget(token)

    def _prepare(self, want: Prepare, resume: Heard) -> Callable[[], None]:
        token = self._token(resume)
        env = common_environment(self._hub.settings, want.size, want.env)
        kernel = want.kernel or self._hub.group.kernel
        request = LaunchRequest(kernel, 0, (RankSpec(0, env),), preload=want.modules)
        self._stage.emit(Preload(token, request))
        return lambda: self._forget(token)

    def answered(self, token: int, answer: Any) -> None:
        """What `Survey` or `Preload` asked the driver; nobody may wait for it any more."""
        if resume := self._asked.pop(token, None):
            resume(answer)

    def _token(self, resume: Heard) -> int:
        self._tokens += 1
        self._asked[self._tokens] = resume
        return self._tokens

    def _forget(self, token: int) -> None:
        self._asked.pop(token, None)

    def _say(self, text: str) -> None:
        cell = self.cells.running
        if cell is not None and text:
            content = dumps(
                {"name": "stdout", "text": text if text.endswith("\n") else text + "\n"}
            )
            self._stage.publish("stream", content, cell.message.header)
