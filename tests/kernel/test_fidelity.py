"""What ranks send arrives as a bare kernel sends it, whatever it holds: the oracle is `python3`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from .client import Bytes

# Each is said if SHOW is true, which may differ from rank to rank.
CELLS = {
    "a byte that is no text": "if SHOW: print('before \\udcff after')",
    "bytes that are no text": "if SHOW: os.write(1, b'\\xff\\xfe caf\\xc3\\xa9\\n')",
    "a display of both": """
if SHOW:
    display({"text/html": "\\udcff \\udcc3(", "text/plain": "\\udcfe caf\\u00e9 \\U0001f600 \\0 \\x1f"}, raw=True)
""",
    "numbers that floats cannot hold": """
json = {"big": 2**70, "less": -(2**200), "one": 1.0, "tiny": 5e-324, "list": [0.1, 1e22, -0.0]}
if SHOW:
    display({"application/json": json}, {"application/json": {"expanded": True, "size": 2**70}}, raw=True)
""",
    "numbers that JSON has not": """
json = {"nan": float("nan"), "inf": [float("inf"), -float("inf")]}
if SHOW:
    display({"application/json": json}, raw=True)
""",
    "a result": """
class Value:
    def _repr_json_(self): return {"n": 2**70, "f": 1e400, "s": "\\udcff\\n\\"\\\\"}, {"root": "\\udcff"}
    def __repr__(self): return "\\udcff 1180591620717411303424 nan"
Value() if SHOW else None
""",
    "an error": "if SHOW: raise ValueError('\\udcff caf\\u00e9', 2**70)",
}
SETUP = "import os; from IPython.display import display; SHOW = "
EXPRESSIONS = {"big": "2**70", "nan": "float('nan')", "text": "'\\udcff'", "object": "Value()", "no": "1/0"}  # fmt: skip


def exactly(raw: bytes) -> Any:
    """Parsed so that nothing can hide: a character for each byte, numbers as they are written."""
    names = {"parse_int": str, "parse_float": str, "parse_constant": str}
    return json.loads(raw.decode("latin-1"), **names)


def outputs(said: list[tuple[str, bytes]]) -> list[Any]:
    """Text of one stream may come in any number of messages; marks of ours and counts are left out."""
    shown: list[Any] = []
    for kind, raw in said:
        content = exactly(raw)
        content.pop("execution_count", None)
        content.get("metadata", {}).pop("spmd", None)
        if kind == "stream" and shown and shown[-1][:2] == (kind, content["name"]):
            content["text"] = shown.pop()[2] + content["text"]
        shown.append(
            (kind, content["name"], content["text"]) if kind == "stream" else (kind, content)
        )
    return shown  # fmt: skip


@pytest.fixture(scope="module")
def bare() -> Iterator[dict[str, tuple[list[tuple[str, bytes]], bytes]]]:
    """What a kernel without anything before it sends."""
    with Bytes("python3") as kernel:
        kernel.ok("pass")  # where others start ranks: tracebacks have the number of their cell
        kernel.ok(f"{SETUP} True")
        answers = {name: kernel.contents(code) for name, code in CELLS.items()}
        yield answers | {"expressions": kernel.contents("", user_expressions=EXPRESSIONS)}


@pytest.mark.parametrize("size", [1, 2, 4])
def test_contents_are_those_of_the_bare_kernel(size: int, bare: dict[str, Any]) -> None:
    with Bytes() as kernel:
        # All ranks say the same, and whatever their pace it is one output.
        kernel.ok("pass" if size == 1 else f"%processes {size} --output grouped")
        kernel.ok(f"{SETUP} True")
        for name, code in CELLS.items():
            (said, _), (expected, _) = kernel.contents(code), bare[name]
            assert outputs(said) == outputs(expected), name
            if size == 1:
                assert [raw for _, raw in said if b'"metadata"' in raw] == [
                    raw for _, raw in expected if b'"metadata"' in raw
                ], name
        _, reply = kernel.contents("", user_expressions=EXPRESSIONS)
        assert (
            exactly(reply)["user_expressions"]
            == exactly(bare["expressions"][1])["user_expressions"]
        )


def test_contents_of_one_rank_differ_by_its_label(bare: dict[str, Any]) -> None:
    """Only rank 1 says it: text is taken apart and put together again, the rest is not touched."""
    with Bytes() as kernel:
        kernel.ok("%processes 2")
        kernel.ok(f"{SETUP} os.environ['RANK'] == '1'")
        for name, code in CELLS.items():
            said, _ = kernel.contents(code)
            expected, _ = bare[name]
            assert without_labels(outputs(said)) == outputs(expected), name


LABEL = "1 │ ".encode().decode("latin-1")


def without_labels(shown: list[Any]) -> list[Any]:
    """Each label has to be there."""
    plain: list[Any] = []
    for kind, content, *text in shown:
        if kind == "stream":
            plain.append((kind, content, text[0].replace(LABEL, "")))
            assert text[0].count(LABEL) == text[0].count("\n")
        elif kind == "error":
            first, *more = content["traceback"]
            assert first.startswith(LABEL)
            plain.append((kind, {**content, "traceback": [first.removeprefix(LABEL), *more]}))
        elif content["data"] == {"text/plain": LABEL.rstrip(" ")}:
            continue  # a caption
        else:
            plain.append((kind, content))
    return plain
