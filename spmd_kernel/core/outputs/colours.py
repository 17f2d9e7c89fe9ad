"""Colour (SGR escapes) that a rank leaves open at a line's end is closed there and opened again on
its next line, so that it colours neither a label nor another rank's text.
"""

from __future__ import annotations

import re

_SGR = re.compile(r"\x1b\[([0-9;:]{0,64})m")
CLOSE = "\x1b[0m"
# code -> the attribute that it sets; an attribute is closed by its own code (ECMA-48, 8.3.117)
_SETS = {1: "bold", 2: "faint", 3: "italic", 4: "underline", 21: "underline", 5: "blink",
         6: "blink", 7: "reverse", 8: "hidden", 9: "strike", 53: "overline"}  # fmt: skip
_SETS.update(dict.fromkeys((*range(30, 39), *range(90, 98)), "fore"))
_SETS.update(dict.fromkeys((*range(40, 49), *range(100, 108)), "back"))
_ENDS = {22: "bold", 23: "italic", 24: "underline", 25: "blink", 27: "reverse", 28: "hidden",
         29: "strike", 39: "fore", 49: "back", 55: "overline"}  # fmt: skip
_ARGUMENTS = {"2": 4, "5": 2}  # 38;2;r;g;b and 38;5;n: parameters after the 38

Open = dict[str, str]  # attribute -> the escape that opens it again


def settle(text: str, open_: Open) -> str:
    """Every line of ``text`` with its colour complete; ``open_`` is updated to what stays open."""
    return "\n".join(_line(line, open_) for line in text.split("\n"))


def _line(line: str, open_: Open) -> str:
    before = "".join(open_.values())
    for found in _SGR.finditer(line):
        _apply(found[1], open_)
    return before + line + CLOSE if open_ else before + line


def _apply(parameters: str, open_: Open) -> None:
    codes = parameters.split(";")
    index = 0
    while index < len(codes):
        code = codes[index]
        width = 1
        if code in ("38", "48") and index + 1 < len(codes):
            width += _ARGUMENTS.get(codes[index + 1], 0)
        _set(code, ";".join(codes[index : index + width]), open_)
        index += width


def _set(code: str, whole: str, open_: Open) -> None:
    number = int(code.partition(":")[0] or 0)
    if number == 0:
        open_.clear()
    elif number in _ENDS:
        open_.pop(_ENDS[number], None)
        if number == 22:  # neither bold nor faint
            open_.pop("faint", None)
    elif number in _SETS:
        open_[_SETS[number]] = f"\x1b[{whole}m"
