"""A kernel's life as a file: its settings, then every event, a JSON object a line.

``python -m spmd_kernel -f CONNECTION --record FILE`` writes it and ``python -m
spmd_kernel.io.record FILE`` prints what the kernel did at each event: the same events give the same
effects, so a recorded fault is a test.  It holds all code, output and input of the session; of the
environment only the names, and values that `core.topology` reads.

JSON's own values stand for themselves; what JSON has not is an object whose key ``!`` says what it
is: ``{"!": "bytes", "latin-1": "…"}``, ``{"!": "tuple", "of": […]}``, ``{"!": "Began", "at": 5.0}``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TextIO, cast, get_args

from ..core import model
from ..core.errors import SpmdError, UsageError
from ..core.hub import Hub
from ..core.model import Effect, Event, Settings

TAG = "!"
CLASSES: Mapping[str, type] = {
    kind.__name__: kind
    for kind in (*get_args(Event), Settings, model.Message, model.Cause, model.Facts, model.Pulse)
}
READ_BY_RANKS_ENVIRONMENT = {
    "OMP_NUM_THREADS",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING",
    "GLOO_SOCKET_IFNAME",
}


class Recording:
    """Writes; each line is flushed, so that a kernel that is killed leaves what it has seen."""

    def __init__(self, file: TextIO, settings: Settings):
        self._file = file
        self._write(replace(settings, environ=_without_secrets(settings.environ)))

    def write(self, event: Event) -> None:
        self._write(event)

    def _write(self, value: Any) -> None:
        self._file.write(json.dumps(encode(value), separators=(",", ":")) + "\n")
        self._file.flush()


def read(lines: Iterable[str]) -> tuple[Settings, Iterator[Event]]:
    """What a `Recording` wrote; a last line that was cut off is left out. Raises `UsageError`."""
    values = (_parse(line) for line in lines if line.endswith("\n"))
    settings = next(values, None)
    if not isinstance(settings, Settings):
        raise UsageError("this is no recording: it does not begin with settings", HINT)
    return settings, cast(Iterator[Event], values)


def replay(lines: Iterable[str]) -> Iterator[tuple[Event, list[Effect]]]:
    """Each event with what the kernel does at it, as it is today."""
    settings, events = read(lines)
    hub = Hub(settings)
    for event in events:
        yield event, hub.handle(event)


HINT = "write one with `python -m spmd_kernel -f CONNECTION --record FILE`"


def _parse(line: str) -> Any:
    try:
        return decode(json.loads(line))
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"this is no recording: {error!r} in {line[:80]!r}", HINT) from None


def _without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    return {k: v if k in READ_BY_RANKS_ENVIRONMENT else "" for k, v in environ.items()}


def encode(value: Any) -> Any:
    """A value of the core's vocabulary as JSON. Raises `TypeError` for any other."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case bytes() | memoryview():
            return {TAG: "bytes", "latin-1": bytes(value).decode("latin-1")}
        case tuple():
            return {TAG: "tuple", "of": [encode(item) for item in value]}
        case list():
            return [encode(item) for item in value]
        case Mapping():
            return _encode_mapping(value)
    if is_dataclass(value) and type(value).__name__ in CLASSES:
        content = {item.name: encode(getattr(value, item.name)) for item in fields(value)}
        return {TAG: type(value).__name__, **content}
    raise TypeError(f"a {type(value).__name__} cannot be recorded")


def _encode_mapping(value: Mapping[Any, Any]) -> dict[str, Any]:
    if TAG not in value and all(isinstance(key, str) for key in value):
        return {key: encode(item) for key, item in value.items()}
    return {TAG: "mapping", "of": [[encode(k), encode(v)] for k, v in value.items()]}


def decode(value: Any) -> Any:
    """What `encode` was given; mappings are dicts then, and memoryviews bytes."""
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    match value.get(TAG):
        case None:
            return {key: decode(item) for key, item in value.items()}
        case "bytes":
            return value["latin-1"].encode("latin-1")
        case "tuple":
            return tuple(decode(item) for item in value["of"])
        case "mapping":
            return {decode(key): decode(item) for key, item in value["of"]}
        case kind:
            return CLASSES[kind](**{k: decode(v) for k, v in value.items() if k != TAG})


def main(argv: list[str]) -> int:
    if len(argv) != 1:
        print("usage: python -m spmd_kernel.io.record FILE", file=sys.stderr)
        return 2
    try:
        with open(argv[0], encoding="utf-8") as file:
            for event, effects in replay(file):
                print(event)
                for effect in effects:
                    print(f"    {effect}")
    except (SpmdError, OSError) as error:
        lines = error.lines() if isinstance(error, SpmdError) else [str(error)]
        print("\n".join(lines), file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
