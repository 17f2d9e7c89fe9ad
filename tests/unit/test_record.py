"""Recordings: lossless, readable by us alone, and a session replayed is the session."""

from __future__ import annotations

import io
import json
import math
from dataclasses import fields
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spmd_kernel.core.errors import UsageError
from spmd_kernel.core.model import (
    Began,
    Event,
    Facts,
    FromFront,
    Message,
    Pulse,
    Settings,
    TimerFired,
)
from spmd_kernel.io.record import Recording, main, read, replay

from ..world import World

NUMBERS = st.integers() | st.floats(allow_nan=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.just("!"), inner, max_size=3)
    ),
    max_leaves=5,
)
OBJECTS = st.dictionaries(st.text() | st.just("!"), JSON, max_size=3)
MESSAGES = st.builds(
    Message, OBJECTS, OBJECTS, OBJECTS, st.binary(), st.lists(st.binary(), max_size=2).map(tuple)
)
NAMES = st.dictionaries(st.text(), st.text(), max_size=2)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "message": MESSAGES,
    "info": OBJECTS,
    "key": st.text() | st.tuples(st.text(), st.text() | st.integers()),
    "facts": st.builds(
        Facts,
        rss=st.dictionaries(st.integers(), st.integers(), max_size=2),
        kernels=NAMES,
    ),
    "stacks": st.dictionaries(st.integers(), st.text(), max_size=2),
    "pulses": st.dictionaries(st.integers(), st.builds(Pulse), max_size=2),
    "closed": st.dictionaries(st.integers(), st.integers(), max_size=2),
    "refused": st.dictionaries(st.integers(), st.just(((9, 12345),)), max_size=2),
}


def events_of(kind: type) -> st.SearchStrategy[Any]:
    names = {item.name for item in fields(kind)}
    return st.builds(kind, **{name: FIELDS[name] for name in FIELDS if name in names})


EVENTS = st.one_of(*map(events_of, get_args(Event)))


def written(settings: Settings, events: list[Any]) -> io.StringIO:
    file = io.StringIO()
    recording = Recording(file, settings)
    for event in events:
        recording.write(event)
    return file


def lines(file: io.StringIO) -> list[str]:
    return file.getvalue().splitlines(keepends=True)


@given(st.lists(EVENTS, max_size=4))
def test_what_is_written_is_read(events: list[Any]) -> None:
    settings, found = read(lines(written(Settings(session="s", argv=("a",)), events)))
    assert settings == Settings(session="s", argv=("a",))
    assert repr(list(found)) == repr(events)  # nan is not itself, but it is written alike


def test_views_of_memory_and_odd_numbers() -> None:
    message = Message({}, {}, {"n": math.inf}, b"\xff\x00", (memoryview(b"ab"), b""))
    event = FromFront(5.5, "shell", (b"\x80",), message)
    _, (found,) = read(lines(written(Settings(session="s"), [event])))
    assert found == event and isinstance(found.message.buffers[0], bytes)


def test_no_secrets_of_the_environment() -> None:
    environ = {"TOKEN": "secret", "OMP_NUM_THREADS": "3", "SLURM_PROCID": "1"}
    file = written(Settings(session="s", environ=environ), [])
    assert "secret" not in file.getvalue()
    settings, _ = read(lines(file))
    assert settings.environ == {"TOKEN": "", "OMP_NUM_THREADS": "3", "SLURM_PROCID": ""}


@pytest.mark.parametrize("environ", [{}, {"OMP_NUM_THREADS": "3", "PMI_RANK": "5", "A": "b"}])
def test_a_session_replayed_is_the_session(environ: dict[str, str]) -> None:
    world = World(2, environ=environ)
    world.settle()
    world.run("print(1)")
    world.execute("%processes 3")
    world.settle()
    world.die(world.ranks[1])
    world.run("x", client=b"\xff")
    file = written(world.hub.settings, world.events)
    assert [effect for _, effects in replay(lines(file)) for effect in effects] == world.effects
    assert [event for event, _ in replay(lines(file))] == world.events


def test_a_line_that_was_cut_off_is_left_out() -> None:
    text = written(Settings(session="s"), [Began(1.0), Began(2.0)]).getvalue()
    _, events = read(text[:-5].splitlines(keepends=True))
    assert list(events) == [Began(1.0)]


@pytest.mark.parametrize(
    "text", ["", "{}\n", "no\n", '{"!":"Began","at":1.0}\n', '{"!":"Odd"}\n', '{"!":"Settings"}\n']
)
def test_what_is_no_recording(text: str) -> None:
    with pytest.raises(UsageError, match="no recording"):
        read(text.splitlines(keepends=True))


def test_a_broken_line_is_named() -> None:
    text = written(Settings(session="s"), [Began(1.0)]).getvalue() + '{"!":"Began","when":1}\n'
    events = read(text.splitlines(keepends=True))[1]
    assert next(events) == Began(1.0)
    with pytest.raises(UsageError, match="when"):
        next(events)


def test_values_of_elsewhere_are_refused() -> None:
    with pytest.raises(TypeError, match="a set cannot be recorded"):
        written(Settings(session="s"), [TimerFired(1.0, {1})])  # type: ignore[arg-type]


def test_the_program_prints_events_and_effects(tmp_path: Any, capsys: Any) -> None:
    path = tmp_path / "session.jsonl"
    path.write_text(written(Settings(session="s"), [Began(1.0)]).getvalue())
    assert main([str(path)]) == 0
    first, *others = capsys.readouterr().out.splitlines()
    assert first == "Began(at=1.0)"
    assert others[0].startswith("    ToFront(") and "    Survey(" in others[1]
    path.write_text(json.dumps([]) + "\n")
    assert main([str(path)]) == 2
    assert "hint:" in capsys.readouterr().err
    assert main([str(tmp_path / "none")]) == 2
    assert main([]) == 2
    assert "usage:" in capsys.readouterr().err
