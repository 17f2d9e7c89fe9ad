"""What the modules of a package offer: to add one is to add a file."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any


def offered(package: ModuleType, name: str) -> Iterator[Any]:
    """The items of every module of ``package`` that has a sequence of that name."""
    for found in pkgutil.iter_modules(package.__path__):
        module = import_module(f"{package.__name__}.{found.name}")
        yield from getattr(module, name, ())
