"""Ranks in this process that run the real script of `%compare`, each in a state of its own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from spmd_kernel.core.content import Content
from spmd_kernel.core.magics import MAGICS
from spmd_kernel.core.magics.base import Ask, Call, RankView, Say
from spmd_kernel.core.magics.compare import KEY
from spmd_kernel.core.model import Settings
from spmd_kernel.settings import COMPARE

from .conftest import World


class Ranks:
    def __init__(self, *namespaces: dict[str, Any]):
        self.namespaces = namespaces
        self.scripts: dict[int, Any] = {}  # what each has under `KEY` in its ``sys.modules``
        self.asked: list[tuple[int, ...]] = []
        self.folders: list[Path] = []
        self.traffic = 0  # characters of answers
        self.lost: dict[str, set[int]] = {}  # step -> ranks that die in it
        self.dead: set[int] = set()

    def ask(self, want: Ask) -> dict[int, Content | None]:
        self.asked.append(want.ranks)
        (expression,) = want.content["user_expressions"].values()
        gone = {
            r for step, dead in self.lost.items() if f"answer('{step}'" in expression for r in dead
        }
        for rank in gone:
            self.scripts.pop(rank, None)
        self.dead |= gone
        return {r: None if r in self.dead else self._evaluate(r, expression) for r in want.ranks}

    def _evaluate(self, rank: int, expression: str) -> Content:
        """As ipykernel evaluates a user expression."""
        if rank in self.scripts:
            sys.modules[KEY] = self.scripts.pop(rank)
        try:
            value = eval(expression, self.namespaces[rank])
            result: dict[str, Any] = {"status": "ok", "data": {"text/plain": repr(value)}}
            self.traffic += len(str(value))
            if value and '"folder"' in value:
                self.folders.append(Path(Content(__import__("json").loads(value)).text("folder")))
        except BaseException as error:
            result = {"status": "error", "ename": type(error).__name__, "evalue": str(error)}
        if KEY in sys.modules:
            self.scripts[rank] = sys.modules.pop(KEY)
        return Content(status="ok", user_expressions={"compare": result})

    def compare(self, line: str = "v") -> str:
        """What ``%compare line`` says; afterwards nothing of it may be left."""
        before = [set(namespace) for namespace in self.namespaces]
        views = tuple(RankView(rank) for rank in range(len(self.namespaces)))
        view = World(views, Settings(session="s", compare=str(COMPARE)))
        steps = MAGICS["%compare"].run(Call("%compare", line), view)
        said, answer = "", None
        try:
            while True:
                step = steps.send(answer)
                answer = self.ask(step) if isinstance(step, Ask) else None
                said += step.text if isinstance(step, Say) else ""
        except StopIteration:
            return said
        finally:
            assert not self.scripts
            assert not [folder for folder in self.folders if folder.exists()]
            after = [set(namespace) - {"__builtins__"} for namespace in self.namespaces]
            assert after == [names - {"__builtins__"} for names in before]


def compare(*values: Any) -> str:
    return Ranks(*({"v": value} for value in values)).compare()
