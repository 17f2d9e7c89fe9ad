"""``restart``: as ``%restart``; and, where the magic cannot come, while a cell is stuck."""

from __future__ import annotations

from ..content import Content
from ..conversation import Script
from ..magics.survivors import down
from .base import Alone, Command, Desk, Schema
from .processes import SAID, WAIT
from .ranks import RANKS, ranks_of
from .speech import spoken


def _restart(arguments: Content, desk: Desk) -> Script:
    named = arguments["ranks"]
    if named == "dead":
        ranks, words = down(desk.context), "dead"
    else:
        ranks = ranks_of(named, len(desk.world))
        words = ",".join(map(str, ranks))
    force = arguments.flag("force")
    if force and desk.state == "busy":
        desk.make_way(ranks)
    script = spoken("%restart", [words], desk)
    text = yield Alone(script, wait=force or arguments.flag("wait"), first=force)
    return {"text": text, "size": len(desk.world)}


FORCE: Schema = {
    "type": "boolean",
    "default": False,
    "description": "while a cell runs: end it. The ranks named that run it are killed, the others "
    "interrupted; they keep their variables",
}

COMMANDS = (
    Command(
        "restart",
        "some ranks anew, as %restart does; answers when they are ready",
        _restart,
        SAID,
        {
            "ranks": {**RANKS, "description": "[0, 2, 3], or as text: 0,2-3; -1; all; dead"},
            "force": FORCE,
            "wait": WAIT,
        },
        ("ranks",),
        example={"ranks": [3], "force": True},
        acts=True,
        needs_ranks=True,
    ),
)
