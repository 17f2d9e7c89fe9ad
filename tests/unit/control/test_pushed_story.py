"""What a page is told while a cell runs, word for word: the extension's tests read the same file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from spmd_kernel.core.model import Cause, Facts
from spmd_kernel.core.status_comms import TIMER

from ...world import World, start
from .asking import pushed
from .test_status_comm import open_comm

GOLDEN = Path(__file__).parents[2] / "golden" / "status" / "gpus.json"
GB = 10**9


def tell(world: World, seconds: float = 1.0) -> None:
    """Time passes, and the page is told."""
    world.at += seconds
    if TIMER in world.timers:
        world.fire(TIMER)
    while world.surveys:
        world.survey()


def story() -> list[Any]:
    """Three ranks on two GPUs: one is soon done, one asks something and dies, the last is stopped."""
    world = start(3)
    memory = {rank: (rank + 1) * GB // 2 for rank in world.ranks}
    world.facts = Facts(rss=memory, cpu={0: 1.5, 1: 2.5, 2: 0.5}, gpu_memory={0: 12 * GB, 1: GB})
    open_comm(world, resources=True)
    tell(world)
    world.execute("train()")
    tell(world)
    world.answer_shell(world.ranks[1])
    tell(world, 3)
    world.question(world.ranks[0], "go on? ")
    world.fire("stdin")
    tell(world)
    world.die(world.ranks[0], Cause(signal=9))
    tell(world)
    world.control("interrupt")
    tell(world)
    world.settle()
    return plain(pushed(world))


def plain(value: Any, key: str = "") -> Any:
    """Without what is of no concern: milliseconds, ids, versions."""
    if isinstance(value, dict):
        return {key: plain(item, key) for key, item in value.items() if key != "versions"}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if key in ("msg_id", "cell"):
        return key
    return round(value, 1) if isinstance(value, float) else value


def test_the_golden_story() -> None:
    told = story()
    if os.environ.get("SPMD_WRITE_GOLDEN") == "1":
        GOLDEN.write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n")
    assert told == json.loads(GOLDEN.read_text())
