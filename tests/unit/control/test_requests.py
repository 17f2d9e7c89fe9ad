"""The envelope of control requests: framing, errors, and that they never wait for a cell."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spmd_kernel.core.control import COMMANDS
from spmd_kernel.core.control.schema import fault

from ...world import World, start
from .asking import now, refused


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_is_documented_and_its_example_is_right(name: str) -> None:
    command = COMMANDS[name]
    assert command.name == name and command.summary
    assert fault(dict(command.example), command.schema, "arguments") == ""
    for argument, schema in command.arguments.items():
        assert schema.get("description"), argument


def test_a_reply_is_framed_and_goes_to_its_sender_alone() -> None:
    world = start(2)
    sent = world.control("status", resources=True)
    world.survey()
    assert sent.kinds == ["status", "spmd_reply", "status"]
    assert sent.states == ["busy", "idle"]
    (reply,) = sent.replies
    assert (reply.channel, reply.idents) == ("control", sent.idents)


def test_it_is_answered_while_a_cell_runs_and_by_the_kernel_alone() -> None:
    world = start(2)
    world.execute("work()")
    before = [len(fake.inbox) + len(fake.control) for fake in world.ranks.values()]
    assert now(world, "status")["state"] == "busy"
    assert [len(fake.inbox) + len(fake.control) for fake in world.ranks.values()] == before


def test_it_is_answered_while_the_first_ranks_start() -> None:
    world = World(2)
    world.survey()  # the start looks at the machine, too
    status = now(world, "status")
    assert (status["state"], status["size"]) == ("starting", 2)
    assert {entry["state"] for entry in status["ranks"]} == {"starting"}


def test_arguments_may_be_left_out() -> None:
    world = start(1)
    for content in ({"command": "interrupt"}, {"command": "interrupt", "arguments": None}):
        sent = world.ask("spmd_request", content, channel="control")
        assert sent.reply["data"] == {"interrupted": []}


@pytest.mark.parametrize(
    ("content", "what", "hint"),
    [
        ({}, "no command null", "commands are"),
        ({"command": "statsu"}, 'no command "statsu"', "did you mean status?"),
        ({"command": ["status"]}, 'no command ["status"]', "status"),
        ({"command": "status", "arguments": []}, "arguments is [], not an object", "status"),
        ({"command": "status", "arguments": {"a": 1}}, 'has no "a": it may have resources', ""),
        ({"command": "interrupt", "arguments": {"rank": 1}}, "did you mean ranks?", "interrupt"),
        ({"command": "interrupt", "arguments": {"ranks": 1}}, "not a string or an array", ""),
        ({"command": "interrupt", "arguments": {"ranks": ["0"]}}, '["0"]', ""),
        ({"command": "interrupt", "arguments": {"ranks": [True]}}, "[true]", ""),
        ({"command": "interrupt", "arguments": {"ranks": []}}, "no ranks are named", "leave"),
        ({"command": "interrupt", "arguments": {"ranks": [2]}}, "there is no rank 2", "0-1"),
        ({"command": "interrupt", "arguments": {"ranks": "1-"}}, "'1-' is neither", ""),
        ({"command": "outputs", "arguments": {"from": -1}}, "-1: less than 0", ""),
        ({"command": "outputs", "arguments": {"from": 1.5}}, "1.5, not an integer", ""),
        ({"command": "outputs", "arguments": {"msg_id": "x"}}, "nothing is known", "without"),
        ({"command": "outputs", "arguments": {"cell_id": "x"}}, "nothing is known", "without"),
        ({"command": "processes", "arguments": {"size": 0}}, "at least 1 rank", ""),
        ({"command": "processes", "arguments": {"size": "four"}}, 'an integer or "auto"', ""),
        ({"command": "processes", "arguments": {"size": 2.0}}, 'an integer or "auto"', ""),
        ({"command": "processes", "arguments": {"output": "odd"}}, "live or grouped", ""),
        ({"command": "processes", "arguments": {"env": {"A": 1}}}, "env", ""),
        ({"command": "processes", "arguments": {"env": {"RANK": "1"}}}, "RANK", ""),
    ],
)
def test_what_makes_no_sense_is_said_with_a_hint(content: Any, what: str, hint: str) -> None:
    world = start(2)
    sent = world.ask("spmd_request", content, channel="control")
    if world.surveys:
        world.survey()
    name, text, said = refused(sent)
    assert name == "UsageError"
    assert what in text
    assert said and hint in said
    assert world.hub.group.size == 2 and not world.launches[1:]


@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b"\xff", b'{"command": "status"', b"[" * 9999])
def test_what_is_no_request_is_said_too(raw: bytes) -> None:
    world = start(1)
    name, _, _ = refused(world.ask("spmd_request", None, channel="control", raw=raw))
    assert name == "BadMessage"


def test_deep_arguments_are_refused() -> None:
    world = start(1)
    deep = b'{"command": "processes", "arguments": {"env": ' + b'{"a":' * 900 + b"1" + b"}" * 902
    refused(world.ask("spmd_request", None, channel="control", raw=deep))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=6,
)


@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_any_arguments_get_one_answer(data: st.DataObject) -> None:
    command = data.draw(st.sampled_from([*COMMANDS, "odd"]))
    known = COMMANDS[command].arguments if command in COMMANDS else {}
    names = st.sampled_from([*known, "odd"]) if known else st.just("odd")
    arguments = data.draw(st.dictionaries(names, JSON, max_size=3) | JSON)
    world = start(2)
    sent = world.ask(
        "spmd_request", {"command": command, "arguments": arguments}, channel="control"
    )
    world.settle()
    reply = sent.reply
    assert reply["status"] in ("ok", "error")
    assert reply["status"] == "ok" or reply["ename"] in ("UsageError", "BadMessage"), reply
    assert sent.states == ["busy", "idle"]
    assert json.loads(world.run("x").replies[0].content)["status"] == "ok"
