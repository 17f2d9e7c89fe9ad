"""A cell that hangs says so: ranks that wait in a collective for peers which are not coming.

While a cell runs on some of several ranks, their stacks are looked at: first half a watch after it
began or after a rank finished, then at the moment when a wait seen before would be one watch old.
Where nobody waits, looks grow rarer.  The notice is one display, updated in place; where updates
are not shown (terminals, logs of headless runs) it is a line of stderr, once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from .content import dumps
from .fanout import Fanout
from .lookouts import Lookouts
from .magics.wording import name_ranks
from .model import Dumped, Header, Rank
from .sight import Sight
from .stage import Stage

RAREST = 6.0  # watches between looks at ranks of which none waits
RENEWED = 2.0  # the notice is renewed when it has grown so many times older


class Ranks(Protocol):
    """What the watch needs of the group."""

    @property
    def alive(self) -> tuple[Rank, ...]: ...
    @property
    def size(self) -> int: ...


@dataclass(slots=True)
class _Watch:
    fanout: Fanout
    interval: float
    first: Sight | None = None  # since this sight all running ranks have stood still
    looking: bool = False
    exists: bool = False  # the display: from then on it is updated
    shown: bool = False  # it says something
    said: bool = False  # as a line


class Watch:
    def __init__(
        self,
        stage: Stage,
        ranks: Ranks,
        lookouts: Lookouts,
        header: Callable[[], Header | None],
    ):
        """``header`` is the running cell's."""
        self._stage = stage
        self._ranks = ranks
        self._lookouts = lookouts
        self._header = header
        self._watch: _Watch | None = None

    @property
    def _seconds(self) -> float:
        return self._stage.policy.watch

    def began(self, fanout: Fanout) -> None:
        self._watch = None
        if fanout.world_size > 1 and self._seconds > 0:
            self._watch = _Watch(fanout, self._seconds / 2)
            self._wait(self._watch, self._seconds / 2)

    def settled(self, fanout: Fanout) -> None:
        """One rank is done or dead: now others may wait for it in vain."""
        watch = self._watch
        if watch is not None and watch.fanout is fanout and not fanout.interrupted:
            watch.interval = self._seconds / 2
            if watch.first is None:
                self._wait(watch, watch.interval)

    def over(self, header: Header, *, failed: bool) -> None:
        """The cell has ended; a notice that proved wrong goes."""
        watch, self._watch = self._watch, None
        if watch is not None and watch.shown and not failed:
            self._display(watch, "", header)

    def close(self) -> None:
        """The kernel shuts down: cells end without a word, and so does the watch over them."""
        if self._watch is not None:
            self._stage.cancel(("watch", self._watch.fanout.msg_id))
        self._watch = None

    def due(self, msg_id: str) -> None:
        watch = self._watch
        if watch is None or watch.fanout.msg_id != msg_id or watch.looking:
            return
        running = watch.fanout.running
        if running and not watch.fanout.interrupted:
            watch.looking = True
            self._lookouts.dump(running, lambda dumped: self._seen(watch, dumped))

    # ---------------------------------------------------------------- looking

    def _seen(self, watch: _Watch, dumped: Dumped) -> None:
        watch.looking = False
        if self._watch is not watch or watch.fanout.interrupted or not watch.fanout.running:
            return
        sight = Sight.of(dumped, watch.fanout.running_code())
        running = watch.fanout.running
        if not sight.all_wait(running):
            self._moves(watch, None)
            watch.interval = min(watch.interval * 2, self._seconds * RAREST)
            self._wait(watch, watch.interval)
        elif watch.first is None or not all(sight.stands(r, watch.first) for r in running):
            self._moves(watch, sight)
            self._wait(watch, self._seconds)
        else:
            age = sight.at - watch.first.at
            if age >= self._seconds * 0.9:
                self._show(watch, sight, age)
            self._wait(watch, max(age * (RENEWED - 1), self._seconds - age, 0.1))

    def _moves(self, watch: _Watch, first: Sight | None) -> None:
        """No hang, or no longer."""
        watch.first = first
        if watch.shown:
            self._display(watch, "")

    def _wait(self, watch: _Watch, seconds: float) -> None:
        self._stage.timer(("watch", watch.fanout.msg_id), seconds)

    # ---------------------------------------------------------------- saying

    def _show(self, watch: _Watch, sight: Sight, age: float) -> None:
        text = notice(sight, watch.fanout, self._ranks, age)
        if self._stage.policy.client == "notebook":
            self._display(watch, text)
        elif not watch.said:
            watch.said = True
            self._publish("stream", {"name": "stderr", "text": text + "\n"})

    def _display(self, watch: _Watch, text: str, header: Header | None = None) -> None:
        kind = "update_display_data" if watch.exists else "display_data"
        watch.exists, watch.shown = True, bool(text)
        content = {
            "data": {"text/plain": text},
            "metadata": {"spmd": {"role": "hang"}},  # front ends may let it stand out
            "transient": {"display_id": f"spmd-hang-{watch.fanout.msg_id}"},
        }
        self._publish(kind, content, header)

    def _publish(
        self, msg_type: str, content: dict[str, Any], header: Header | None = None
    ) -> None:
        header = header or self._header()
        if header is not None:
            self._stage.publish(msg_type, dumps(content), header)


def notice(sight: Sight, fanout: Fanout, ranks: Ranks, age: float) -> str:
    """``ranks 1-3 finished · rank 0 has been in all_reduce, cell line 4, for 5 s · hint: …``"""
    gone = gone_ranks(fanout, ranks)
    places: dict[str, list[Rank]] = {}
    for rank in fanout.running:
        places.setdefault(sight.place(rank), []).append(rank)
    parts = [f"{name_ranks(found)} {what}" for what, found in gone.items()]
    for place, found in places.items():
        have = "has" if len(found) == 1 else "have"
        parts.append(f"{name_ranks(found)} {have} been {place}, for {age:.0f} s")
    return " · ".join([*parts, f"hint: {_hint(gone)}"])


def gone_ranks(fanout: Fanout, ranks: Ranks) -> dict[str, list[Rank]]:
    """The ranks that will not come, by what became of them."""
    gone: dict[str, list[Rank]] = {}
    for rank in range(ranks.size):
        if rank not in fanout.running:
            gone.setdefault(_fate(fanout, ranks, rank), []).append(rank)
    return gone


def _fate(fanout: Fanout, ranks: Ranks, rank: Rank) -> str:
    if rank in fanout.lost or rank not in ranks.alive:
        return "died"
    if rank not in fanout.replies:
        return "had no part in this cell"
    return "finished" if fanout.replies[rank].get("status") == "ok" else "failed"


def _hint(gone: Mapping[str, list[Rank]]) -> str:
    if not gone:
        why = "they wait for each other: all ranks have to make the same calls in the same order"
    elif "failed" in gone or "died" in gone:
        why = "what they wait for cannot come"
    else:
        why = "all ranks have to make this call"
    return f"{why}; Stop frees those that wait, and every variable is kept"
