"""Arrays and tensors as bytes, and how far two of them are apart; for `compare.py`.

numpy, torch and jax are used only where the rank has imported them itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from typing import Any

CHUNK = 1 << 20  # elements that are compared at a time: bounds the memory of a comparison


class Array:
    """One array.  ``kind``: whose it is; ``about``: what else must be equal (a shard's place)."""

    def __init__(self, value: Any, kind: str, about: str = ""):
        self.value, self.kind, self.about = value, kind, about
        self.shape = tuple(int(length) for length in value.shape)
        self.dtype = str(value.dtype)
        self.size = 1
        for length in self.shape:
            self.size *= length

    def raw(self) -> memoryview:
        """Its elements in C order.  Raises whatever its library does."""
        numpy = sys.modules["numpy"]
        if not self.size:
            return memoryview(b"")
        flat = numpy.ascontiguousarray(self.value).reshape(-1)
        return memoryview(flat.view(numpy.uint8) if flat.dtype.itemsize else b"")

    def decode(self, raw: Any) -> Any:
        """Elements again, as a numpy array of one dimension."""
        return sys.modules["numpy"].frombuffer(raw, dtype=self.value.dtype)


class Tensor(Array):
    """A dense tensor of torch."""

    def __init__(self, value: Any, about: str = ""):
        super().__init__(value, "tensor", about)
        self.dtype = self.dtype.replace("torch.", "")

    def raw(self) -> memoryview:
        value = self.value.detach().resolve_conj().resolve_neg().cpu().contiguous()
        if not self.size:
            return memoryview(b"")
        data = (ctypes.c_ubyte * (self.size * value.element_size())).from_address(value.data_ptr())
        data.owner = value  # lives as long as the view does
        return memoryview(data).cast("B")

    def decode(self, raw: Any) -> Any:
        torch = sys.modules["torch"]
        tensor = torch.frombuffer(bytearray(raw), dtype=self.value.dtype)
        try:
            return tensor.numpy()
        except TypeError:  # bfloat16, float8, half complex
            wider = torch.complex64 if tensor.is_complex() else torch.float32
            return tensor.to(wider).numpy()


class Numbers(Array):
    """A long list of Python's own numbers (``code``: as in the module array)."""

    def __init__(self, values: Any, packed: Any):
        self.kind, self.about, self.value = type(values).__name__, "", packed
        self.dtype = {"d": "float", "q": "int"}[packed.typecode]
        self.shape, self.size = (len(packed),), len(packed)

    def raw(self) -> memoryview:
        return memoryview(self.value).cast("B")

    def decode(self, raw: Any) -> Any:
        return sys.modules["numpy"].frombuffer(raw, dtype=self.value.typecode)


def difference(array: Array, mine: Any, base: Any) -> dict[str, Any]:
    """How two arrays of one dtype and shape differ, given their bytes.

    ``differ``: elements that are unequal; ``max``: the largest \\|difference\\| (text, as it may be
    infinite or a large integer), at index ``at``; ``nan``: elements that are NaN in one only, the
    first at ``nan_at``.  No ``max``: the elements are no numbers.
    """
    if "numpy" not in sys.modules:
        return {"size": array.size}
    found = _Found()
    width = len(mine) // max(array.size, 1)
    for start in range(0, array.size, CHUNK):
        part = slice(start * width, (start + CHUNK) * width)
        with sys.modules["numpy"].errstate(all="ignore"):
            found.look(array.decode(mine[part]), array.decode(base[part]), start)
    return found.report(array)


class _Found:
    def __init__(self) -> None:
        self.differ = self.nans = 0
        self.most: Any = None
        self.at = self.nan_at = 0

    def look(self, mine: Any, base: Any, start: int) -> None:
        if mine.dtype.kind in "mM":  # times: NaT is equal to itself
            mine, base = mine.view("i8"), base.view("i8")
            self._count(mine != base, start)
            return
        numbers = _numbers(mine, base)
        if numbers is None:
            self._count(mine != base, start)
            return
        mine, base = numbers
        nan = (mine != mine) != (base != base)
        both = (mine != mine) & (base != base)
        self._count((mine != base) & ~both, start, at=False)
        if nan.any():
            if not self.nans:
                self.nan_at = start + int(nan.argmax())
            self.nans += int(nan.sum())
        self._farthest(_distance(mine, base), nan | both | (mine == base), start)

    def _count(self, unequal: Any, start: int, at: bool = True) -> None:
        if at and not self.differ and unequal.any():
            self.at = start + int(unequal.argmax())
        self.differ += int(unequal.sum())

    def _farthest(self, distance: Any, leave_out: Any, start: int) -> None:
        distance[leave_out] = 0
        index = int(distance.argmax())
        if self.most is None or distance[index] > self.most:
            self.most, self.at = distance[index].item(), start + index

    def report(self, array: Array) -> dict[str, Any]:
        report: dict[str, Any] = {"size": array.size, "differ": self.differ}
        if self.differ > self.nans:
            report["at"] = _unravel(self.at, array.shape)
        if self.most is not None:
            report["max"] = str(self.most)
        if self.nans:
            report.update(nan=self.nans, nan_at=_unravel(self.nan_at, array.shape))
        return report


def _numbers(mine: Any, base: Any) -> Any:
    """Both in the type that differences are taken in; ``None``: they are no numbers."""
    kind = mine.dtype.kind
    if kind in "iu":
        return mine, base
    if kind == "b":
        return mine.astype("u1"), base.astype("u1")
    if kind in "fc" and mine.dtype.itemsize > (8 if kind == "f" else 16):
        return mine, base
    if kind in "fc":
        wide = "f8" if kind == "f" else "c16"
        return mine.astype(wide), base.astype(wide)
    if mine.dtype.names is None and kind == "V":  # ml_dtypes: bfloat16, float8, …
        with contextlib.suppress(TypeError, ValueError):
            return mine.astype("f8"), base.astype("f8")
    return None


def _distance(mine: Any, base: Any) -> Any:
    """\\|mine - base\\|, exact for integers: modulo 2^bits, the larger minus the smaller is right."""
    if mine.dtype.kind not in "iu":
        return abs(mine - base)
    numpy = sys.modules["numpy"]
    unsigned = mine.dtype.newbyteorder("=").str.replace("i", "u")
    larger, smaller = numpy.maximum(mine, base), numpy.minimum(mine, base)
    return larger.astype(unsigned) - smaller.astype(unsigned)


def _unravel(index: int, shape: tuple[int, ...]) -> list[int]:
    place = []
    for length in reversed(shape):
        place.append(index % length)
        index //= length
    return place[::-1]
