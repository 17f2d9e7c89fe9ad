"""When are two ranks' texts the same?  Equal raw text always is; so is text that differs only in

* the rank's own device (``cuda:<LOCAL_RANK>``: eight GPUs print one tensor once);
* an address after "at" (``<Net object at 0x7f…>``; any ``0x…`` would hide diverging checksums);
* the process id in ``ipykernel_<pid>`` paths, which ipykernel gives the cells of its tracebacks;
* a leading time stamp of a log line;
* for a progress bar, times and rates.
"""

from __future__ import annotations

import re

_DEVICE = "cuda|xpu|npu|hpu|tpu|musa|xla"
_TIME = r"\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d+)?"
_STAMP = re.compile(
    rf"^[\[(]?(?:\d{{4}}[-/]\d\d[-/]\d\d[T ]{_TIME}(?: ?Z|[+-]\d\d:?\d\d)?|{_TIME}"
    rf"|[IWEF]\d{{4}} {_TIME}(?: +\d+)?)[\])]?(?=[ :|,-]+\S)",
    re.M | re.ASCII,
)
SHORT = 100_000  # characters of a text that is compared by rule
_ADDRESS = re.compile(r"(?<=\bat )0x[0-9a-fA-F]{6,16}\b")
_PROCESS = re.compile(r"\bipykernel_\d+")
_RATE = re.compile(
    rf"{_TIME}|\?(?=it)|[\d.]+ ?[kKMGT]?(?:it|i?[bB]|[A-Za-z]+)/s\b|[\d.]+ ?s/[A-Za-z]+|\?[a-z]+/s",
    re.ASCII,
)
# Whether any of the rules could apply is asked once per message: most text needs none.
_DEVICES = tuple(f"{name}:" for name in _DEVICE.split("|"))
_MAYBE_STAMP = re.compile(r"\n(?:[\[(]?\d{1,4}[:/-]\d|[IWEF]\d{4} )")


class Keys:
    """How texts of one rank are compared.  ``local_rank`` is its LOCAL_RANK, the device it owns."""

    __slots__ = ("_own",)

    def __init__(self, local_rank: int):
        self._own = re.compile(rf"\b({_DEVICE}):{local_rank}(?!\d)")

    @staticmethod
    def plain(text: str) -> bool:
        """No rule applies to any line of ``text``: it is its own key."""
        # Looking for one character is many times faster than for several.
        if "at 0x" in text or ("_" in text and "ipykernel_" in text):
            return False
        if ":" not in text:  # every other rule has one
            return True
        return (
            not any(name in text for name in _DEVICES) and _MAYBE_STAMP.search("\n" + text) is None
        )

    def short(self, text: str) -> str:
        """As `text`; what is long is compared as it is."""
        return self.text(text) if len(text) <= SHORT else text

    def text(self, text: str) -> str:
        if self.plain(text):
            return text
        text = _PROCESS.sub("ipykernel_*", _ADDRESS.sub("0x*", self.shown(text)))
        return _STAMP.sub("*", text)

    def bar(self, text: str) -> str:
        """A line that was rewritten: eight bars that did the same are one."""
        return _RATE.sub("*", self.text(text))

    def shown(self, text: str) -> str:
        """``cuda:3`` of rank 3 as ``cuda:*``: what stands for ranks that each named their own."""
        return self._own.sub(r"\1:*", text)
