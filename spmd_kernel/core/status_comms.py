"""The comm target ``spmd.status``: clients that open it are told what changes.

Twice a second at most, and only when something has changed.  No rank hears of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .content import Content, dumps, read
from .errors import BadMessage
from .model import Event, Facts, FromRank, Header, Message
from .stage import Stage

TARGET = "spmd.status"
EVERY = 0.5  # seconds between two messages
CLOCK = 0.001  # a timer may fire so much early
GLANCE = 0.05  # seconds between two looks whether something has changed
MOST = 16  # pages that are reloaded open it again and again, and close nothing
TIMER = "status"

Status = Mapping[str, Any]


@dataclass(slots=True)
class _Client:
    comm_id: str
    header: Header
    resources: bool
    told: Status


class StatusComms:
    def __init__(
        self,
        stage: Stage,
        snapshot: Callable[[], Status],
        with_resources: Callable[[Status, Facts], Status],
        look: Callable[[Callable[[Facts], None]], object],
        is_busy: Callable[[], bool],
    ):
        """``look`` surveys the machine."""
        self._stage = stage
        self._snapshot = snapshot
        self._with_resources = with_resources
        self._look = look
        self._is_busy = is_busy
        self._clients: dict[str, _Client] = {}
        self._facts = Facts()
        self._glanced = self._told = float("-inf")
        self._armed = False
        self._is_own = False  # the event at hand: our timer, our survey

    # ---------------------------------------------------------------- clients

    @property
    def targets(self) -> dict[str, str]:
        return dict.fromkeys(self._clients, TARGET)

    def concerns(self, message: Message) -> bool:
        """It is a message for us."""
        try:
            content = read(message.content)
            opens = message.msg_type == "comm_open" and content.text("target_name") == TARGET
            return opens or content.text("comm_id") in self._clients
        except BadMessage:
            return False

    def heard(self, message: Message, content: Content) -> bool:
        """A client's comm message. False: it is for others."""
        comm_id, kind = content.text("comm_id"), message.msg_type
        opens = kind == "comm_open"
        if opens and content.text("target_name") != TARGET:
            self._clients.pop(comm_id, None)
        if comm_id not in self._clients and (not opens or content.text("target_name") != TARGET):
            return False
        if kind == "comm_close":
            self._forget(comm_id)
            return True
        self._welcome(comm_id, message.header, _wants_resources(content))
        return True

    def _welcome(self, comm_id: str, header: Header, resources: bool) -> None:
        """All there is to know; also for one that says something, as after a reconnect."""
        client = _Client(comm_id, header, resources, {})
        self._clients.pop(comm_id, None)
        self._clients[comm_id] = client
        self._tell(client, "full", self._as_told(client, self._snapshot()))
        if len(self._clients) > MOST:
            oldest = next(iter(self._clients.values()))
            self._forget(oldest.comm_id)
            content = dumps({"comm_id": oldest.comm_id, "data": {}})
            self._stage.publish("comm_close", content, oldest.header)
        if resources:
            self._arm()

    def _forget(self, comm_id: str) -> None:
        self._clients.pop(comm_id, None)
        if self._armed and not self._clients:
            self._armed = False
            self._stage.cancel(TIMER)

    # ---------------------------------------------------------------- changes

    def after(self, event: Event) -> None:
        """Something has happened; the machines have dealt with it."""
        ours, self._is_own = self._is_own, False
        if ours or not self._clients or self._armed or _changes_nothing(event):
            return
        if self._stage.at >= self._due:
            self._glance()
        else:
            self._arm()

    def due(self) -> None:
        self._armed, self._is_own = False, True
        if self._is_early:
            self._arm()
        else:
            self._glance()

    @property
    def _is_early(self) -> bool:
        """Something was told while the timer ran, or the survey."""
        return self._stage.at < self._told + EVERY - CLOCK

    @property
    def _due(self) -> float:
        return max(self._glanced + GLANCE, self._told + EVERY)

    def _arm(self) -> None:
        if not self._armed:
            self._armed = True
            self._stage.timer(TIMER, max(0.0, self._due - self._stage.at))

    def _glance(self) -> None:
        self._glanced = self._stage.at
        if any(client.resources for client in self._clients.values()):
            self._look(self._surveyed)
        else:
            self._tell_changes()

    def _surveyed(self, facts: Facts) -> None:
        self._facts, self._is_own = facts, True
        if self._is_early:
            self._arm()
            return
        self._tell_changes()
        if self._is_busy() and self._clients and not self._armed:
            self._armed = True
            self._stage.timer(TIMER, EVERY)

    def _tell_changes(self) -> None:
        snapshot = self._snapshot()
        for client in self._clients.values():
            now = self._as_told(client, snapshot)
            if found := changes(client.told, now):
                self._told = self._stage.at
                self._tell(client, "change", now, found)

    def _as_told(self, client: _Client, snapshot: Status) -> Status:
        return self._with_resources(snapshot, self._facts) if client.resources else snapshot

    def _tell(self, client: _Client, kind: str, now: Status, found: Status | None = None) -> None:
        client.told = now
        data = {"kind": kind, "now": self._stage.at, "status": now if found is None else found}
        content = dumps({"comm_id": client.comm_id, "data": data})
        self._stage.publish("comm_msg", content, client.header)


def changes(old: Status, new: Status) -> dict[str, Any]:
    """What differs, by name; of ``ranks`` the entries that do."""
    found = {name: value for name, value in new.items() if old.get(name) != value}
    if "ranks" in found:
        before = {entry["rank"]: entry for entry in old["ranks"]}
        found["ranks"] = [e for e in new["ranks"] if before.get(e["rank"]) != e]
    return found


def _wants_resources(content: Content) -> bool:
    data = content.get("data")
    return isinstance(data, dict) and data.get("resources") is True


def _changes_nothing(event: Event) -> bool:
    """Cells may print a million lines."""
    return (
        isinstance(event, FromRank)
        and event.channel == "iopub"
        and event.message.msg_type not in ("status", "debug_event")
    )
