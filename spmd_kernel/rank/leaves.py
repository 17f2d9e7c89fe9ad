"""What a value is made of: a flat list of leaves, each with its path; for `compare.py`.

Containers are walked (dicts, lists, dataclasses, modules, data frames, pytrees); arrays are leaves
with bytes; anything else is a leaf of text.  A library counts only if the rank has imported it.
"""

from __future__ import annotations

import array
import hashlib
import re
import sys
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

MOST = 200_000  # leaves of one value
PACKED = 32  # numbers from which a list of nothing else is one leaf
LONG = 1000  # items from which a list of plain values is one leaf
SHOWN = 60  # characters of a text

_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{4,}")
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_FORMATS = {  # methods that give the parts of a sparse tensor
    "sparse_csr": ("crow_indices", "col_indices", "values"),
    "sparse_bsr": ("crow_indices", "col_indices", "values"),
    "sparse_csc": ("ccol_indices", "row_indices", "values"),
    "sparse_bsc": ("ccol_indices", "row_indices", "values"),
}


class Leaf:
    """``key`` is equal where, and only where, the leaf is."""

    __slots__ = ("array", "key", "note", "number", "path", "sha", "size", "text")

    def __init__(self, path: str, text: str, key: str, note: str = "", number: str = ""):
        self.path, self.text, self.key, self.note, self.number = path, text, key, note, number
        self.array: Any = None
        self.sha = ""
        self.size = 0  # bytes

    def as_json(self) -> dict[str, Any]:
        """``key`` as its digest; ``type``: what must be equal for a difference to make sense."""
        record = {"path": self.path, "text": self.text, "key": digest(self.key)}
        if self.array is not None:
            record.update(type=f"{self.array.kind} {self.array.dtype} {self.array.shape}")
        for name in ("note", "number", "sha"):
            if getattr(self, name):
                record[name] = getattr(self, name)
        return record


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()


class Walk:
    """``arrays`` is the module of that name."""

    def __init__(self, arrays: Any):
        self._arrays = arrays
        self._inside: set[int] = set()  # containers that we are in
        self.found: dict[str, Leaf] = {}
        self.more = False  # there were more than `MOST`

    def visit(self, path: str, value: Any) -> None:
        if len(self.found) >= MOST:
            self.more = True
        elif id(value) in self._inside:
            self._text(path, value, "a container inside itself", exact=True)
        else:
            self._inside.add(id(value))
            before = len(self.found)
            try:
                self._visit(path, value)
            finally:
                self._inside.discard(id(value))
            if len(self.found) == before:
                self._text(path, value, "empty", exact=True)

    def _visit(self, path: str, value: Any) -> None:
        for walk in (self._numpy, self._torch, self._jax, self._tables, self._plain):
            if walk(path, value):
                return
        if not self._pytree(path, value):
            self._text(path, value, without_addresses(value))

    # ---------------------------------------------------------------- leaves

    def _add(self, leaf: Leaf) -> None:
        while leaf.path in self.found:  # keys that look the same
            leaf.path += "'"
        self.found[leaf.path] = leaf

    def _text(self, path: str, value: Any, text: str, exact: bool = False) -> None:
        kind = type(value).__name__
        number = text if type(value) in (int, float, complex) and len(text) < LONG else ""
        note = "" if exact else "compared by repr"
        shown = text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
        shown = shown if value is None else f"{kind} {shown}"
        self._add(Leaf(path, shown, f"{kind} {text}", note, number))

    def _array(self, path: str, found: Any) -> None:
        shape = str(found.shape)
        text = " ".join(filter(None, (found.kind, found.dtype, shape, found.about)))
        try:
            raw = found.raw()
            sha = hashlib.sha256(raw).hexdigest()
        except Exception as error:
            text += f" that cannot be read: {type(error).__name__}: {error}"
            self._add(Leaf(path, text, _ADDRESS.sub("0x…", text)))
            return
        leaf = Leaf(path, text, f"{text} {sha}", "", "")
        leaf.array, leaf.sha, leaf.size = found, sha, len(raw)
        if found.size == 1 and "numpy" in sys.modules:
            leaf.text += f" {found.decode(raw)[0]}"[:SHOWN]
        self._add(leaf)

    def _parts(self, path: str, parts: Iterable[tuple[str, Any]]) -> bool:
        for name, value in parts:
            self.visit(path + name, value)
        return True

    # ---------------------------------------------------------------- libraries

    def _numpy(self, path: str, value: Any) -> bool:
        numpy = sys.modules.get("numpy")
        if numpy is None or not isinstance(value, (numpy.ndarray, numpy.generic)):
            return False
        if isinstance(value, numpy.ma.MaskedArray):
            return self._parts(
                path, ((".data", value.data), (".mask", numpy.ma.getmaskarray(value)))
            )
        if value.dtype.hasobject:
            items = (without_addresses(item) for item in numpy.asarray(value).reshape(-1))
            text = f"{value.dtype} {value.shape} {digest(chr(10).join(items))[:12]}"
            self._text(path, value, text)
        else:
            kind = "ndarray" if isinstance(value, numpy.ndarray) else "numpy"
            self._array(path, self._arrays.Array(value, kind))
        return True

    def _torch(self, path: str, value: Any) -> bool:
        torch = sys.modules.get("torch")
        if not hasattr(torch, "Tensor"):
            return False
        if isinstance(value, torch.Tensor):  # type: ignore[union-attr]
            self._tensor(path, value)
        elif isinstance(value, torch.nn.Module):  # type: ignore[union-attr]
            dot = "." if path else ""
            for kind in (value.named_parameters(), value.named_buffers()):
                self._parts(path, ((dot + name, leaf) for name, leaf in kind))
        elif callable(getattr(type(value), "state_dict", None)):  # optimizers, schedulers, scalers
            self.visit(path + ".state_dict()", value.state_dict())
        else:
            return False
        return True

    def _tensor(self, path: str, value: Any, about: str = "") -> None:
        kind = _name_of("torch.distributed.tensor", "DTensor")
        layout = str(value.layout).replace("torch.", "")
        if kind is not None and isinstance(value, kind):
            place = f"local part of {tuple(value.shape)} {value.placements}"
            self._tensor(path, value.to_local(), place)
        elif layout == "sparse_coo":
            value = value.detach().coalesce()
            self._pieces(path, value, ("indices", "values"))
        elif layout in _FORMATS:
            self._pieces(path, value.detach(), _FORMATS[layout])
        elif value.is_quantized:
            self._parts(
                path, ((".int_repr()", value.int_repr()), (".qscheme()", str(value.qscheme())))
            )
            self._parts(path, ((".dequantize()", value.dequantize()),))
        elif getattr(value, "is_nested", False):
            self._parts(path, ((f"[{i}]", part) for i, part in enumerate(value.unbind())))
        elif value.device.type == "meta":
            self._text(path, value, f"{value.dtype} {tuple(value.shape)} on meta", exact=True)
        else:
            self._array(path, self._arrays.Tensor(value, about))

    def _pieces(self, path: str, value: Any, names: Iterable[str]) -> None:
        self._parts(path, ((f".{name}()", getattr(value, name)()) for name in names))
        self._parts(path, ((".shape", str(tuple(value.shape))),))

    def _jax(self, path: str, value: Any) -> bool:
        jax = sys.modules.get("jax")
        if not hasattr(jax, "Array") or not isinstance(value, jax.Array):  # type: ignore[union-attr]
            return False
        numpy = sys.modules["numpy"]
        if isinstance(value, jax.core.Tracer) or value.is_deleted():  # type: ignore[union-attr]
            self._text(path, value, without_addresses(value))
        elif jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):  # type: ignore[union-attr]
            self.visit(path + ".key_data", jax.random.key_data(value))  # type: ignore[union-attr]
        elif value.is_fully_addressable:
            self._array(path, self._arrays.Array(numpy.asarray(value), "jax"))
        elif value.is_fully_replicated:
            self._array(path, self._arrays.Array(numpy.asarray(value.addressable_data(0)), "jax"))
        else:
            for number, shard in enumerate(value.addressable_shards):
                place = f"part {_slices(shard.index, value.shape)} of {value.shape}"
                part = self._arrays.Array(numpy.asarray(shard.data), "jax", place)
                self._array(f"{path}.addressable_shards[{number}]", part)
        return True

    def _tables(self, path: str, value: Any) -> bool:
        pandas, sparse = sys.modules.get("pandas"), sys.modules.get("scipy.sparse")
        if hasattr(pandas, "DataFrame") and isinstance(value, pandas.DataFrame):  # type: ignore[union-attr]
            # By place: names of columns may be there twice.
            names = list(value.columns)
            columns = ((f"[{short(n)}]", value.iloc[:, i].to_numpy()) for i, n in enumerate(names))
            self._parts(path, ((".index", value.index.to_numpy()), (".columns", str(names))))
            return self._parts(path, columns)
        if hasattr(pandas, "Series") and isinstance(value, (pandas.Series, pandas.Index)):  # type: ignore[union-attr]
            index = getattr(value, "index", None)
            parts = [] if index is None else [(".index", index.to_numpy())]
            return self._parts(path, [*parts, (".values", value.to_numpy())])
        if hasattr(sparse, "issparse") and sparse.issparse(value):  # type: ignore[union-attr]
            value = value.tocsr()
            names = ["data", "indices", "indptr"]
            return self._parts(path, ((f".{name}", getattr(value, name)) for name in names))
        return False

    def _pytree(self, path: str, value: Any) -> bool:
        """A container that was registered with jax (flax, equinox, …)."""
        tree = _name_of("jax", "tree_util")
        if tree is None:
            return False
        flat = tree.tree_flatten_with_path(value)[0]
        if len(flat) == 1 and flat[0][1] is value:
            return False
        return self._parts(path, ((tree.keystr(place), leaf) for place, leaf in flat))

    # ---------------------------------------------------------------- Python's own

    def _plain(self, path: str, value: Any) -> bool:
        if isinstance(value, _PLAIN):
            self._text(path, value, represented(value), exact=True)
        elif isinstance(value, (bytearray, memoryview)):
            self._text(path, value, represented(bytes(value)), exact=True)
        elif isinstance(value, Mapping):
            return self._parts(path, ((f"[{short(key)}]", part) for key, part in value.items()))
        elif isinstance(value, tuple) and hasattr(value, "_fields"):
            fields: Any = value
            return self._parts(
                path, ((f".{name}", part) for name, part in fields._asdict().items())
            )
        elif isinstance(value, (list, tuple, deque, array.array)):
            return self._sequence(path, value)
        elif isinstance(value, (set, frozenset)):
            text = "{" + ", ".join(sorted(map(without_addresses, value))) + "}"
            self._text(path, value, f"{len(value)} {text}", exact=True)
        elif hasattr(type(value), "__dataclass_fields__"):
            names = value.__dataclass_fields__
            return self._parts(path, ((f".{n}", getattr(value, n, None)) for n in names))
        else:
            return False
        return True

    def _sequence(self, path: str, value: Any) -> bool:
        packed = pack(value)
        if packed is not None:
            self._array(path, self._arrays.Numbers(value, packed))
        elif len(value) > LONG and all(type(item) in _PLAIN for item in value):
            text = f"{len(value)} items {digest(chr(10).join(map(represented, value)))[:16]}"
            self._text(path, value, text, exact=True)
        else:
            return self._parts(path, ((f"[{i}]", item) for i, item in enumerate(value)))
        return True


def pack(value: Any) -> Any:
    """Many numbers of one kind as an array, else ``None``."""
    if len(value) < PACKED:
        return None
    kinds = {type(item) for item in value}
    if kinds not in ({int}, {float}):
        return None
    try:
        return array.array("q" if kinds == {int} else "d", value)
    except OverflowError:
        return None


def represented(value: Any) -> str:
    """``repr``, whatever it does."""
    try:
        return repr(value)
    except Exception as error:
        if type(value) is int:
            return hex(value)  # too long for decimals
        return f"<{type(value).__name__} whose repr raises {type(error).__name__}>"


def without_addresses(value: Any) -> str:
    """Its ``repr``, equal for objects that differ in where they are only."""
    return _ADDRESS.sub("0x…", represented(value))


def short(key: Any) -> str:
    text = without_addresses(key)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…{digest(text)[:8]}"


def _slices(index: Any, shape: Any) -> str:
    spans = (piece.indices(shape[axis])[:2] for axis, piece in enumerate(index))
    return "[" + ", ".join(f"{start}:{stop}" for start, stop in spans) + "]"


def _name_of(module: str, name: str) -> Any:
    return getattr(sys.modules.get(module), name, None)
