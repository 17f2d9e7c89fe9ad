from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..model import Buffer


@dataclass(frozen=True, slots=True)
class Publish:
    """One IOPub message whose parent is the cell."""

    msg_type: str
    content: bytes
    metadata: Mapping[str, Any] = field(default_factory=dict)
    buffers: tuple[Buffer, ...] = ()
