"""One rank's part in ``%compare``: digests of a value, and its differences to another rank's.

Executed by path in a throw-away namespace, by any Python from 3.8 on: the rank's environment need
not have our package.  What must live from one step to the next lives in a module of its own
(`KEY` in ``sys.modules``), never in the user's namespace, and ends with the step ``end``.

The value is evaluated once.  Of its contents nothing goes through the kernel but digests; where they
differ, the base rank writes the bytes of a few leaves into a private folder, and the others map them.
"""

from __future__ import annotations

import json
import mmap
import os
import shutil
import sys
import tempfile
import types
import weakref
from collections.abc import Iterable
from typing import Any

KEY = "_spmd_kernel_compare"
TABLE = "leaves.json"


class Comparison:
    def __init__(self, folder: str):
        """``folder``: where our scripts are."""
        self._arrays = _script(folder, "arrays.py")
        self._leaves = _script(folder, "leaves.py")
        self._walk: Any = None
        self._order: list[Any] = []

    def answer(self, step: str, *arguments: Any) -> str:
        """The JSON text of what a step returns."""
        return json.dumps(getattr(self, step)(*arguments))

    def begin(self, expression: str, namespace: dict[str, Any]) -> dict[str, Any]:
        """Evaluate; what all of it comes to.  ``error``: it raised."""
        try:
            code = compile(expression.strip(), "<%compare>", "eval", dont_inherit=True)
            value = eval(code, namespace)
            walk = self._leaves.Walk(self._arrays)
            walk.visit("", value)
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"}
        self._walk, self._order = walk, list(walk.found.values())
        keys = sorted(f"{leaf.path}\0{leaf.key}" for leaf in self._order)
        only = self._order[0] if len(self._order) == 1 else None
        return {
            "total": self._leaves.digest("\n".join(keys)),
            "type": type(value).__name__,
            "leaves": len(self._order),
            "bytes": sum(leaf.size for leaf in self._order),
            "more": walk.more,
            "notes": sorted({leaf.note for leaf in self._order if leaf.note}),
            "only": only and only.as_json(),
        }

    def publish(self) -> dict[str, Any]:
        """As the base: write the digests of all leaves into a new private folder."""
        folder = tempfile.mkdtemp(prefix="spmd-compare-")
        weakref.finalize(self, shutil.rmtree, folder, True)  # whatever happens to the kernel
        with open(os.path.join(folder, TABLE), "w", encoding="ascii") as file:
            json.dump([leaf.as_json() for leaf in self._order], file)
        return {"folder": folder}

    def against(self, folder: str, most: int) -> dict[str, Any]:
        """Which leaves differ from those of the base.

        ``differ``: their numbers there, as ranges; ``extra``: how many it has not; ``leaves``: the
        first ``most``, each as [number or that past the end, path, base's, mine].  ``apart``: the
        base's files are not here.
        """
        try:
            with open(os.path.join(folder, TABLE), encoding="ascii") as file:
                base = json.load(file)
        except OSError:
            return {"apart": True}
        mine = {leaf.path: leaf.as_json() for leaf in self._order}
        known = {record["path"] for record in base}
        differ = [i for i, b in enumerate(base) if mine.get(b["path"], {}).get("key") != b["key"]]
        extra = sorted(path for path in mine if path not in known)
        rows = [[i, base[i]["path"], base[i], mine.get(base[i]["path"])] for i in differ[:most]]
        rows += [[len(base), path, None, mine[path]] for path in extra[: most - len(rows)]]
        for _, _, theirs, ours in rows:
            if theirs and ours:
                ours.update(_between(theirs.get("number"), ours.get("number")))
        return {"differ": _ranges(differ), "extra": len(extra), "leaves": rows}

    def give(self, folder: str, paths: list[str]) -> dict[str, Any]:
        """As the base: write the bytes of these leaves.  ``left``: those that the disk cannot take."""
        left = []
        for number, path in enumerate(paths):
            leaf = self._walk.found[path]
            if not _written(os.path.join(folder, f"{number}.raw"), leaf):
                left.append(path)
        return {"left": left}

    def measure(self, folder: str, paths: list[str]) -> dict[str, Any]:
        """By path, how far those of these leaves that the base has given are from mine."""
        found = {}
        for number, path in enumerate(paths):
            leaf, name = self._walk.found.get(path), os.path.join(folder, f"{number}.raw")
            if leaf is None or leaf.array is None or not os.path.exists(name):
                continue
            with open(name, "rb") as file:
                if os.fstat(file.fileno()).st_size == leaf.size:
                    found[path] = self._measure(leaf, file)
        return found

    def _measure(self, leaf: Any, file: Any) -> dict[str, Any]:
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as base, memoryview(base) as view:
            report: dict[str, Any] = self._arrays.difference(leaf.array, leaf.array.raw(), view)
        return report

    def end(self, folder: str) -> dict[str, Any]:
        """All ranks: nothing is left, also if the base has died."""
        sys.modules.pop(KEY, None)
        if folder:
            shutil.rmtree(folder, ignore_errors=True)
        return {}


def _written(path: str, leaf: Any) -> bool:
    """Leaves as much room on the disk as it takes."""
    if leaf.size * 2 > shutil.disk_usage(os.path.dirname(path)).free:
        return False
    try:
        with open(path, "wb") as file:
            file.write(leaf.array.raw())
    except OSError:
        os.truncate(path, 0)
        return False
    return True


def _between(theirs: str | None, ours: str | None) -> dict[str, Any]:
    """|difference| of two numbers of Python, given as text."""
    if not theirs or not ours:
        return {}
    try:
        kind: Any = complex if "j" in theirs + ours else float
        if all(text.lstrip("-").isdigit() for text in (theirs, ours)):
            kind = int
        return {"difference": {"size": 1, "differ": 1, "max": repr(abs(kind(theirs) - kind(ours)))}}
    except (ValueError, OverflowError):
        return {}


def _ranges(numbers: Iterable[int]) -> list[list[int]]:
    """[first, last] of each run."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return runs


def _script(folder: str, name: str) -> Any:
    path = os.path.join(folder, name)
    module = types.ModuleType(f"spmd_kernel.rank.{name[:-3]}")
    with open(path, "rb") as file:
        exec(compile(file.read(), path, "exec"), module.__dict__)
    return module


def main() -> None:
    module: Any = types.ModuleType(KEY)
    module.answer = Comparison(os.path.dirname(os.path.abspath(__file__))).answer
    sys.modules[KEY] = module


main()
