"""Kernelspecs on this machine, found and read as `jupyter_client.kernelspec` does.

jupyter_client itself is not imported: it would cost the kernel process 58 ms and 9 MB.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from string import Template
from typing import Any, Literal

from jupyter_core.paths import jupyter_path

from .core.errors import UsageError

NATIVE = "python3"
_FIELD = re.compile(r"\{([A-Za-z0-9_]+)\}")
_PYTHONS = {"python", f"python{sys.version_info[0]}", "python{}.{}".format(*sys.version_info)}


@dataclass(frozen=True, slots=True)
class Kernelspec:
    """One ``kernel.json`` (Jupyter client documentation, "Kernel specs")."""

    name: str
    resource_dir: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    display_name: str
    language: str
    interrupt_mode: Literal["signal", "message"]
    metadata: Mapping[str, Any]
    raw: Mapping[str, Any]

    @property
    def is_python(self) -> bool:
        return self.language.lower().startswith("python")

    @property
    def is_ipykernel(self) -> bool:
        """Whether its process takes ipykernel's own command-line options."""
        pairs = zip(self.argv, self.argv[1:], strict=False)
        return any(flag == "-m" and m in ("ipykernel_launcher", "ipykernel") for flag, m in pairs)

    @property
    def is_distributed(self) -> bool:
        """Whether it starts this kernel: as ranks it would start itself without end."""
        pairs = zip(self.argv, self.argv[1:], strict=False)
        return "spmd" in self.metadata or ("-m", "spmd_kernel") in pairs

    def command(self, connection_file: str, arguments: Sequence[str] = ()) -> list[str]:
        """The argv of a process; ``arguments`` are appended."""
        argv = list(self.argv)
        if argv and argv[0] in _PYTHONS:
            argv[0] = sys.executable  # the one on PATH may be another, when no venv is activated
        values = {
            "connection_file": connection_file,
            "prefix": sys.prefix,
            "resource_dir": self.resource_dir,
        }
        filled = [_FIELD.sub(lambda m: values.get(m[1], m[0]), argument) for argument in argv]
        return [os.path.expanduser(argument) for argument in filled] + list(arguments)

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """``environ`` and on top the kernelspec's own, whose ``$VAR`` are filled from it."""
        filled = {k: Template(v).safe_substitute(environ) for k, v in self.env.items()}
        result = {**environ, **filled}
        if self.is_python:
            result.pop("PYTHONEXECUTABLE", None)  # would make it run as another interpreter
        return result


def find(name: str) -> Kernelspec:
    """The kernelspec of that name, case ignored. Raises `UsageError`."""
    resource_dir = _resource_dirs().get(name.lower())
    if resource_dir is not None:
        return _read(name.lower(), resource_dir)
    if name.lower() == NATIVE and (native := _native()):
        return native
    raise UsageError(
        f"there is no kernelspec {name!r}",
        f"installed are: {', '.join(sorted(all_kernelspecs())) or 'none'}",
    )


def all_kernelspecs() -> dict[str, Kernelspec]:
    """Every kernelspec that can be read, by name."""
    found = {}
    for name, resource_dir in _resource_dirs().items():
        try:
            found[name] = _read(name, resource_dir)
        except UsageError:
            continue  # somebody else's broken file is no reason to hide the good ones
    if NATIVE not in found and (native := _native()):
        found[NATIVE] = native
    return found


def _search_path() -> Iterator[str]:
    """Directories of kernelspecs, the first wins."""
    yield from dict.fromkeys(
        [*jupyter_path("kernels"), os.path.join(sys.prefix, "share", "jupyter", "kernels")]
    )
    ipython = os.environ.get("IPYTHONDIR") or os.path.join("~", ".ipython")
    yield os.path.join(os.path.expanduser(ipython), "kernels")


def _resource_dirs() -> dict[str, str]:
    found: dict[str, str] = {}
    for directory in _search_path():
        if not os.path.isdir(directory):
            continue
        for entry in os.listdir(directory):
            path = os.path.join(directory, entry)
            if os.path.isfile(os.path.join(path, "kernel.json")):
                found.setdefault(entry.lower(), path)
    return found


def _read(name: str, resource_dir: str) -> Kernelspec:
    path = os.path.join(resource_dir, "kernel.json")
    try:
        with open(path, encoding="utf-8") as file:
            return _parse(name, resource_dir, json.load(file))
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UsageError(
            f"kernelspec {name!r} cannot be read: {error}", f"repair {path}, or remove it"
        ) from None


def _parse(name: str, resource_dir: str, raw: Mapping[str, Any]) -> Kernelspec:
    argv = raw.get("argv")
    if not isinstance(argv, list) or not argv:
        raise ValueError("argv is not a list of words")
    return Kernelspec(
        name=name,
        resource_dir=resource_dir,
        argv=tuple(str(word) for word in argv),
        env={str(key): str(value) for key, value in (raw.get("env") or {}).items()},
        display_name=str(raw.get("display_name") or name),
        language=str(raw.get("language") or ""),
        interrupt_mode="message" if raw.get("interrupt_mode") == "message" else "signal",
        metadata=dict(raw.get("metadata") or {}),
        raw=raw,
    )


def _native() -> Kernelspec | None:
    """ipykernel in our own Python needs no kernel.json."""
    ipykernel = importlib.util.find_spec("ipykernel")
    if ipykernel is None or not ipykernel.submodule_search_locations:
        return None
    raw = {
        "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": f"Python {sys.version_info[0]} (ipykernel)",
        "language": "python",
        "metadata": {"debugger": True},
    }
    return _parse(NATIVE, os.path.join(ipykernel.submodule_search_locations[0], "resources"), raw)
