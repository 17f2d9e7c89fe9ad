"""Asking ranks: who owes an answer, and scripts that wait for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from spmd_kernel.core.conversation import Answers, Conversations, Script, Talk
from spmd_kernel.core.errors import InternalError, Interrupted, RankLost, SpmdError, UsageError
from spmd_kernel.core.model import CancelTimer, Effect, Message, SetTimer, Settings, ToRank
from spmd_kernel.core.stage import Stage


class Room:
    def __init__(self) -> None:
        self.stage = Stage(Settings(session="own"))
        self.stage.at = 50.0
        self.talks = Conversations(self.stage)
        self.heard: list[Answers] = []

    def ask(self, ranks: tuple[int, ...], alive: tuple[int, ...], **options: Any) -> Message:
        self.message = self.stage.own_request("x_request", {"a": 1})
        self.give_up = self.talks.ask(ranks, alive, self.message, self.heard.append, **options)
        return self.message

    def reply(self, rank: int, raw: bytes = b'{"n": 1}', to: str = "") -> bool:
        parent = {"msg_id": to or self.message.msg_id}
        return self.talks.replied(rank, Message({}, parent, {}, raw))

    @property
    def effects(self) -> list[Effect]:
        return self.stage.take()


def test_all_answers_at_once() -> None:
    room = Room()
    message = room.ask((1, 0), (0, 1, 2))
    assert room.effects == [ToRank((0, 1), "shell", message)]
    assert room.reply(1, b'{"n": 5}') and not room.heard
    assert room.reply(0)
    assert room.heard == [{1: {"n": 5}, 0: {"n": 1}}]
    assert not room.reply(0), "nobody waits any more"
    assert not room.effects


def test_the_first_reply_counts_and_strangers_do_not() -> None:
    room = Room()
    room.ask((0, 1), (0, 1))
    assert room.reply(0)
    assert not room.reply(0, b'{"n": 2}')
    assert not room.reply(2)
    assert not room.reply(1, to="another")
    assert room.reply(1)
    assert room.heard == [{0: {"n": 1}, 1: {"n": 1}}]


def test_the_dead_are_not_asked() -> None:
    room = Room()
    room.ask((0, 1), (1,), channel="control")
    assert room.effects == [ToRank((1,), "control", room.message)]
    room.reply(1)
    assert room.heard == [{0: None, 1: {"n": 1}}]


def test_nobody_to_ask() -> None:
    room = Room()
    room.ask((0, 1), ())
    assert room.heard == [{0: None, 1: None}]
    assert not room.effects
    room.give_up()
    room.ask((), (0,))
    assert room.heard[1:] == [{}]


def test_a_death_is_an_answer() -> None:
    room = Room()
    room.ask((0, 1), (0, 1))
    room.talks.lost(1)
    room.talks.lost(7)
    assert not room.heard
    room.reply(0)
    assert room.heard == [{0: {"n": 1}, 1: None}]


def test_nonsense_is_no_answer_and_is_not_waited_for_again() -> None:
    room = Room()
    room.ask((0,), (0,))
    assert room.reply(0, b"[]")
    assert room.heard == [{0: None}]


def test_time_is_up() -> None:
    room = Room()
    room.ask((0, 1), (0, 1), seconds=5)
    key = ("ask", room.message.msg_id)
    assert SetTimer(key, 55.0) in room.effects
    room.reply(0)
    room.talks.expired(room.message.msg_id)
    assert room.heard == [{0: {"n": 1}, 1: None}]
    assert not room.reply(1), "late"
    room.talks.expired(room.message.msg_id)
    assert len(room.heard) == 1


@pytest.mark.parametrize("end", ["reply", "give up"])
def test_its_timer_goes_with_it(end: str) -> None:
    room = Room()
    room.ask((0,), (0,), seconds=5)
    room.stage.take()
    if end == "reply":
        room.reply(0)
    else:
        room.give_up()
    assert room.effects == [CancelTimer(("ask", room.message.msg_id))]
    assert len(room.heard) == (end == "reply")
    assert not room.reply(0)


# ---------------------------------------------------------------- scripts


class Play:
    """Runs a script; each want waits until the test gives it a result."""

    def __init__(self, script: Script):
        self.wants: list[Any] = []
        self.resume: Callable[..., None] = lambda: None
        self.given_up: list[Any] = []
        self.ends: list[tuple[Any, SpmdError | None]] = []
        self.talk = Talk(script, self.perform, lambda *end: self.ends.append(end))
        self.talk.step()

    def perform(self, talk: Talk, want: Any) -> None:
        self.wants.append(want)
        if want == "now":
            talk.wait_for(lambda resume: resume("at once") or self.refuse)
        else:
            talk.wait_for(self.wait)

    def wait(self, resume: Callable[..., None]) -> Callable[[], None]:
        self.resume = resume
        return lambda: self.given_up.append(self.wants[-1])

    def refuse(self) -> None:
        raise AssertionError("what is over is given up")


def test_a_script_reads_from_top_to_bottom() -> None:
    def script() -> Script:
        first = yield "a"
        second = yield "now"
        return [first, second, (yield "c")]

    play = Play(script())
    play.resume(1)
    assert play.wants == ["a", "now", "c"] and not play.ends
    play.resume(3)
    assert play.ends == [([1, "at once", 3], None)]
    play.resume("once more")
    assert len(play.ends) == 1


def test_its_errors_are_told_and_ours_are_named() -> None:
    def usage() -> Script:
        yield "a"
        raise UsageError("no", "hint")

    def broken() -> Script:
        yield "a"
        raise ZeroDivisionError("oops")

    first, second = Play(usage()), Play(broken())
    first.resume()
    second.resume()
    assert isinstance(first.ends[0][1], UsageError)
    error = second.ends[0][1]
    assert isinstance(error, InternalError) and str(error) == "ZeroDivisionError: oops"
    assert "please report" in error.hint


def test_an_error_can_be_caught_inside() -> None:
    def script() -> Script:
        try:
            yield "a"
        except RankLost as error:
            return str(error)

    play = Play(script())
    play.talk.step(error=RankLost("rank 1 died"))
    assert play.ends == [("rank 1 died", None)]
    assert not play.given_up


def test_breaking_off_gives_up_the_wait() -> None:
    def script() -> Script:
        yield "a"

    play = Play(script())
    play.talk.throw(Interrupted("stopped"))
    assert play.given_up == ["a"]
    assert isinstance(play.ends[0][1], Interrupted)


def test_what_came_at_once_is_not_given_up() -> None:
    def script() -> Script:
        yield "now"
        yield "a"

    play = Play(script())
    play.talk.throw(Interrupted("stopped"))
    assert play.given_up == ["a"]


def test_the_inner_script_hears_it_first_and_the_outer_goes_on() -> None:
    def inner() -> Script:
        try:
            yield "inner"
        except Interrupted:
            return "cleaned up"

    def outer() -> Script:
        return (yield nested)

    nested = object()
    ends: list[Any] = []
    given_up: list[str] = []

    def perform(talk: Talk, want: Any) -> None:
        if want is nested:
            talk.nest(Talk(inner(), perform, talk.step))
        else:
            talk.wait_for(lambda resume: lambda: given_up.append(want))

    talk = Talk(outer(), perform, lambda *end: ends.append(end))
    talk.step()
    talk.throw(Interrupted("stopped"))
    assert given_up == ["inner"]
    assert ends == [("cleaned up", None)]


def test_closing_drops_all_of_it_without_a_word() -> None:
    closed: list[str] = []

    def script() -> Script:
        try:
            yield "a"
        finally:
            closed.append("closed")

    play = Play(script())
    play.talk.close()
    assert closed == ["closed"] and play.given_up == ["a"]
    play.resume(1)
    play.talk.throw(Interrupted("stopped"))
    assert not play.ends


def test_a_rank_that_is_idle_has_little_time_left_to_reply() -> None:
    room = Room()
    room.ask((0, 1), (0, 1))
    msg_id = room.message.msg_id
    room.stage.take()
    room.talks.idle(0, "another")
    room.talks.idle(2, msg_id)
    assert not room.effects
    room.talks.idle(0, msg_id)
    key = ("no-reply", msg_id, 0)
    assert room.effects == [SetTimer(key, 50.5)]
    room.talks.idle(0, msg_id)
    assert not room.effects, "said twice is said once"
    room.reply(1)
    room.talks.gave_no_reply(msg_id, 1)
    assert not room.heard
    room.talks.gave_no_reply(msg_id, 0)
    assert room.heard == [{0: None, 1: {"n": 1}}]
    room.talks.gave_no_reply(msg_id, 0)
    assert len(room.heard) == 1


def test_a_reply_after_the_idle_is_in_time() -> None:
    room = Room()
    room.ask((0,), (0,))
    room.talks.idle(0, room.message.msg_id)
    room.stage.take()
    assert room.reply(0)
    assert room.heard == [{0: {"n": 1}}]
    assert room.effects == [CancelTimer(("no-reply", room.message.msg_id, 0))]
