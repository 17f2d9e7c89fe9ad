"""Display ids: two ranks run the same program and use the same ones, so each gets its own."""

from __future__ import annotations


class DisplayIds:
    """Lives as long as the kernel: a display may be updated from a later cell."""

    def __init__(self, prefix: str = "spmd"):
        self._prefix = prefix
        self._serial = 0

    def of(self, rank: int, display_id: str) -> str:
        """The id that clients see; one to one, and the same for ever."""
        return f"{self._prefix}-{rank}-{display_id}"

    def fresh(self) -> str:
        """An id for a display of our own."""
        self._serial += 1
        return f"{self._prefix}-own-{self._serial}"
