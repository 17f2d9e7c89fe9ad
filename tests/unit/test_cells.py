"""Cells through the whole hub, step by step: what a client sees of what ranks do."""

from __future__ import annotations

import gc
import json

import pytest

from spmd_kernel.core.model import Cause, Interrupt, Signalled, Stop, ToRank

from ..world import World, start


def sent_codes(world: World, rank: int) -> list[str]:
    """The text of every cell that a rank was sent, our own silent set-up left out."""
    requests = [
        effect.message
        for effect in world.effects
        if isinstance(effect, ToRank) and rank in effect.ranks
    ]
    contents = [json.loads(m.content) for m in requests if m.msg_type == "execute_request"]
    return [content["code"] for content in contents if not content["silent"]]


def interrupted(world: World) -> list[tuple[int, ...]]:
    return [effect.ranks for effect in world.effects if isinstance(effect, Interrupt)]


def test_one_rank_is_transparent() -> None:
    world = start()
    cell = world.execute("print(1)")
    rank = world.ranks[0]
    world.say(rank, "iopub", "stream", {"name": "stdout", "text": "1\n"}, rank.inbox[0])
    world.say(rank, "iopub", "display_data", b'{"data": {}, "odd": 1e999}', rank.inbox[0])
    world.settle()
    kinds = [effect.msg_type for effect in cell.effects]
    assert kinds == ["status", "execute_input", "stream", "display_data", "execute_reply", "status"]
    assert cell.of("stream")[0].content == b'{"name": "stdout", "text": "1\\n"}'
    assert cell.of("display_data")[0].content == b'{"data": {}, "odd": 1e999}'
    assert cell.of("display_data")[0].metadata == {}


def test_equal_text_of_all_ranks_is_one_unmarked_line() -> None:
    world = start(3)
    cell = world.execute("print(1)")
    for rank in world.ranks.values():
        world.say(rank, "iopub", "stream", {"name": "stdout", "text": "1\n"}, rank.inbox[0])
    world.settle()
    assert cell.text == "1\n"
    assert cell.reply["status"] == "ok"


def test_text_of_one_rank_is_labelled() -> None:
    world = start(2)
    cell = world.execute("print(RANK)")
    for rank in world.ranks.values():
        text = {"name": "stdout", "text": f"rank {rank.rank}\n"}
        world.say(rank, "iopub", "stream", text, rank.inbox[0])
    world.settle()
    assert cell.text == "0 │ rank 0\n1 │ rank 1\n"


def test_count_rises_with_history_only() -> None:
    world = start(2)
    counts = [
        world.run("pass").reply["execution_count"],
        world.run("pass", silent=True, store_history=False).reply["execution_count"],
        world.run("pass", store_history=False).reply["execution_count"],
        world.run("%ranks").reply["execution_count"],
        world.run("   ").reply["execution_count"],
        world.run("pass").reply["execution_count"],
    ]
    assert counts == [1, 1, 1, 2, 2, 3]


def test_ranks_that_do_not_run_a_cell_stay_aligned() -> None:
    world = start(2)
    world.run("a = 1")
    world.run("%%rank 1\nb = 2")
    world.run("%ranks")
    world.run("c = 3")
    assert sent_codes(world, 0) == ["a = 1", "# %%rank 1\n# b = 2", "# %ranks", "c = 3"]
    assert [world.ranks[rank].count for rank in (0, 1)] == [4, 4]


def test_a_cell_of_some_ranks() -> None:
    world = start(4)
    cell = world.run("%%rank 1,3\nprint(RANK)")
    ran = [rank for rank in range(4) if any("\nprint(RANK)" in c for c in sent_codes(world, rank))]
    assert ran == [1, 3]
    assert cell.reply["status"] == "ok"


def test_error_names_its_rank_and_the_first_one_is_the_cause() -> None:
    world = start(3)
    cell = world.execute("f()")
    for number in (2, 0):
        rank = world.ranks[number]
        error = {"ename": "E", "evalue": f"of {number}", "traceback": [f"E: of {number}"]}
        world.say(rank, "iopub", "error", error, rank.inbox[0])
        world.tick(1)
    for rank in list(world.ranks.values()):
        world.answer_shell(rank, error=rank.rank != 1)
    world.settle()
    assert cell.reply["evalue"] == "of 2"
    assert cell.reply["traceback"] == ["2 │ E: of 2"]
    assert [error["evalue"] for error in cell.errors] == ["of 2", "of 0"]


def test_queued_cells_are_aborted_in_order() -> None:
    world = start(2)
    first, second, third = (world.execute(code) for code in ("a", "b", "c"))
    for rank in world.ranks.values():
        world.answer_shell(rank, error=True)
    world.settle()
    assert first.reply["status"] == "error"
    assert [cell.reply for cell in (second, third)] == [{"status": "aborted"}] * 2
    assert sent_codes(world, 0) == ["a"]


def test_queued_cells_go_on_when_errors_are_allowed() -> None:
    world = start()
    first, second = world.execute("a", stop_on_error=False), world.execute("b")
    world.answer_shell(world.ranks[0], error=True)
    world.settle()
    assert (first.reply["status"], second.reply["status"]) == ("error", "ok")


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        (Cause(signal=9), "killed by SIGKILL"),
        (Cause(signal=11), "killed by SIGSEGV"),
        (Cause(code=3), "exited with code 3"),
        (Cause(signal=9, out_of_memory=True), "out of memory"),
    ],
)
def test_death_is_told_at_once_and_survivors_are_interrupted(cause: Cause, words: str) -> None:
    world = start(3)
    cell = world.execute("work()")
    world.say(
        world.ranks[1],
        "iopub",
        "stream",
        {"name": "stdout", "text": "last\n"},
        world.ranks[1].inbox[0],
    )
    world.die(world.ranks[1], cause, "Fatal: at the end\n")
    world.pass_time_until(lambda: bool(cell.errors))
    (error,) = cell.errors
    trace = "\n".join(error["traceback"])
    assert "rank 1" in error["evalue"] and words in error["evalue"]
    assert "Fatal: at the end" in trace and "hint:" in trace
    kinds = [effect.msg_type for effect in cell.effects]
    assert kinds.index("stream") < kinds.index("error")
    assert interrupted(world) == [(0, 2)]
    assert not cell.replies
    world.settle()
    assert cell.reply["ename"] == "RankLost"
    assert "1 │" in cell.reply["traceback"][0]


def test_survivors_that_do_not_listen_are_killed_and_it_says_so() -> None:
    world = start(2)
    cell = world.execute("stuck()")
    world.die(world.ranks[1])
    stuck = world.ranks[0]
    world.pass_time_until(lambda: stuck.stopping)  # it hears nothing: only time passes
    assert world.effects[-1] == Stop((0,), now=True)
    world.die(stuck, Cause(signal=9))
    assert "still busy 5 s after its interrupt" in cell.errors[-1]["evalue"]
    assert "rank 1 died" in cell.reply["evalue"]


def test_next_cell_fails_naming_the_dead_rank_and_processes_recovers() -> None:
    world = start(3)
    world.die(world.ranks[1])
    cell = world.run("pass")
    assert "rank 1 died" in cell.reply["evalue"]
    assert "hint: `%restart dead`" in cell.errors[0]["traceback"][-1]
    kept = world.ranks[0], world.ranks[2]
    assert world.run("%processes 3").reply["status"] == "ok"
    assert (world.ranks[0], world.ranks[2]) == kept
    assert world.run("pass").reply["status"] == "ok"


def test_headless_cells_stop_the_others_after_an_error() -> None:
    world = start(2)
    cell = world.execute("f()", allow_stdin=False)
    world.answer_shell(world.ranks[0], error=True)
    stuck = world.ranks[1]
    world.pass_time_until(lambda: stuck.interrupted)
    world.pass_time_until(lambda: stuck.stopping)
    world.die(stuck)
    assert cell.reply["evalue"] == "why"


def test_interactive_cells_let_the_others_go_on() -> None:
    world = start(2)
    cell = world.execute("f()", allow_stdin=True)
    world.answer_shell(world.ranks[0], error=True)
    while world.timers:
        key = min(world.timers, key=lambda key: world.timers[key])
        if key[0] == "fence":
            break
        world.fire(key)
    assert not interrupted(world)
    world.settle()
    assert cell.reply["status"] == "error"


def test_a_lost_idle_does_not_hang_the_cell() -> None:
    world = start(2)
    cell = world.execute("flood()")
    world.answer_shell(world.ranks[0])
    rank = world.ranks[1]
    request = rank.inbox.popleft()
    world.say(rank, "shell", "execute_reply", {"status": "ok"}, request)
    world.settle()
    assert cell.reply["status"] == "ok"
    assert "rank 1" in cell.text and "may be missing" in cell.text


def test_a_lost_reply_does_not_hang_the_cell() -> None:
    """SIGINT between the end of a cell and its reply: ipykernel swallows both."""
    world = start(2)
    cell = world.execute("work()")
    world.answer_shell(world.ranks[0])
    world.feed(Signalled(world.tick(), 2))
    rank = world.ranks[1]
    rank.inbox.popleft()
    world.settle()
    assert cell.reply["ename"] == "KeyboardInterrupt"
    assert "rank 1 ended its part" in cell.reply["evalue"]
    assert len(cell.errors) == 1


def test_interrupt_reaches_the_ranks_that_still_run() -> None:
    world = start(3)
    cell = world.execute("loop()")
    world.answer_shell(world.ranks[1])
    world.feed(Signalled(world.tick(), 2))
    assert interrupted(world) == [(0, 2)]
    world.settle()
    assert cell.reply["status"] == "ok"


def test_user_expressions_and_payload_are_merged() -> None:
    world = start(2)
    cell = world.execute("x", user_expressions={"v": "x"})
    for rank, value in zip(list(world.ranks.values()), ("1", "2"), strict=True):
        request = rank.inbox.popleft()
        page = {"source": "page", "data": {"text/plain": "help"}, "start": 0}
        reply = {
            "status": "ok",
            "payload": [page],
            "user_expressions": {"v": {"status": "ok", "data": {"text/plain": value}}},
        }
        world.say(rank, "shell", "execute_reply", reply, request)
        world.say(rank, "iopub", "status", {"execution_state": "idle"}, request)
    assert cell.reply["payload"] == [{"source": "page", "data": {"text/plain": "help"}, "start": 0}]
    value = cell.reply["user_expressions"]["v"]
    assert value["data"]["text/plain"] == "0 │ 1\n1 │ 2"


def test_late_output_reaches_its_own_cell() -> None:
    world = start(2)
    first = world.run("thread()")
    request = first.message
    world.execute("other()")
    world.say(world.ranks[1], "iopub", "stream", {"name": "stdout", "text": "late\n"}, request)
    world.settle()
    assert first.text == "1 │ late\n"


def test_output_of_a_query_belongs_to_the_running_cell() -> None:
    world = start(2, subshells=True)
    cell = world.execute("work()")
    query = world.ask("complete_request", {"code": "a", "cursor_pos": 1})
    (request,) = next(inbox for inbox in world.ranks[0].subshells.values() if inbox)
    world.say(world.ranks[0], "iopub", "stream", {"name": "stdout", "text": "t\n"}, request)
    world.settle()
    assert cell.text == "0 │ t\n" and not query.text


def test_bad_requests_are_answered() -> None:
    world = start()
    for raw in (b"[]", b"{}", b'{"code": 5}', b"{"):
        cell = world.ask("execute_request", None, raw=raw)
        assert cell.reply["status"] == "error"
        assert cell.states == ["busy", "idle"]


def test_magic_errors_leave_the_state_alone() -> None:
    world = start(2)
    before = dict(world.ranks)
    for code in ("%processes 0", "%processes 4 --frsh", "%%rank 9\nx", "x = 1\n%processes 4"):
        cell = world.run(code)
        assert cell.reply["status"] == "error"
        assert "hint:" in cell.errors[0]["traceback"][-1]
    assert world.ranks == before


def test_help_pages_once() -> None:
    world = start(2)
    cell = world.run("%processes?")
    (page,) = cell.reply["payload"]
    assert page["source"] == "page" and "%processes N" in page["data"]["text/plain"]


def test_a_cell_leaves_no_cycles_behind() -> None:
    """What one cell needed is freed with it: no growth until the garbage collector comes by."""
    world = start(4)
    world.run("pass")
    gc.collect()
    gc.disable()
    try:
        cell = world.execute("print()")
        for rank in world.ranks.values():
            text = {"name": "stdout", "text": f"{rank.rank}\n"}
            world.say(rank, "iopub", "stream", text, rank.inbox[0])
        world.settle()
        assert cell.reply["status"] == "ok"
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_of_the_replies_of_a_rank_the_first_one_counts() -> None:
    world = start(2)
    cell = world.execute("f()")
    for rank in world.ranks.values():
        request = rank.inbox.popleft()
        world.say(rank, "shell", "execute_reply", {"status": "ok", "payload": [1]}, request)
        world.say(rank, "shell", "execute_reply", {"status": "error", "payload": [2]}, request)
        world.say(rank, "iopub", "status", {"execution_state": "idle"}, request)
    assert cell.reply["status"] == "ok"
    assert cell.reply["payload"] == [1]


def test_what_ranks_are_told_of_a_cell() -> None:
    """The queue and its abortion are ours; a line magic's round is no cell of its own."""
    world = start(2)
    world.execute("%rank 1 x\ny", user_expressions={"v": "y"}, stop_on_error=True)
    first = json.loads(world.ranks[1].inbox[0].content)
    assert (first["store_history"], first["stop_on_error"]) == (False, False)
    assert first["user_expressions"] == {}
    world.answer_shell(world.ranks[1])
    for rank in world.ranks.values():
        second = json.loads(rank.inbox[-1].content)
        assert (second["store_history"], second["stop_on_error"]) == (True, False)
        assert second["user_expressions"] == {"v": "y"}


def test_who_is_interrupted_already_is_not_interrupted_again() -> None:
    world = start(2)
    world.execute("f()", allow_stdin=False)
    world.answer_shell(world.ranks[0], error=True)
    world.feed(Signalled(world.tick(), 2))
    (key,) = [key for key in world.timers if key[0] == "on-error"]
    world.fire(key)
    assert interrupted(world) == [(1,)]


def test_an_exit_of_some_ranks_is_not_the_end() -> None:
    world = start(2)
    cell = world.execute("exit() if RANK else None")
    for rank in list(world.ranks.values()):
        request = rank.inbox.popleft()
        payload = [{"source": "ask_exit", "keepkernel": False}] * rank.rank
        world.say(rank, "shell", "execute_reply", {"status": "ok", "payload": payload}, request)
        world.say(rank, "iopub", "status", {"execution_state": "idle"}, request)
    world.settle()
    assert cell.reply["status"] == "ok"
    assert not world.exits


def test_exit_that_keeps_the_kernel_is_not_the_end() -> None:
    world = start(1)
    world.execute("exit(keep_kernel=True)")
    rank = world.ranks[0]
    request = rank.inbox.popleft()
    payload = [{"source": "ask_exit", "keepkernel": True}]
    world.say(rank, "shell", "execute_reply", {"status": "ok", "payload": payload}, request)
    world.say(rank, "iopub", "status", {"execution_state": "idle"}, request)
    world.settle()
    assert not world.exits and world.ranks


def test_nothing_of_a_cell_is_left_when_it_ends() -> None:
    world = start(2)
    cell = world.execute("f()", allow_stdin=False)
    for rank in world.ranks.values():
        world.say(
            rank, "iopub", "stream", {"name": "stdout", "text": f"{rank.rank}"}, rank.inbox[0]
        )
    world.answer_shell(world.ranks[0], error=True)
    world.feed(Signalled(world.tick(), 2))
    world.die(world.ranks[1])
    assert len(cell.replies) == 1
    assert [key for key in world.timers if cell.message.msg_id in key] == []


def test_when_all_ranks_die_the_first_one_is_named() -> None:
    world = start(2)
    cell = world.execute("f()")
    for number in (1, 0):
        world.die(world.ranks[number])
    assert cell.reply["traceback"][0].startswith("1 │ ")
    assert len(cell.errors) == 2


def test_who_is_about_to_finish_when_another_rank_dies_does_so() -> None:
    world = start(3)
    cell = world.execute("f()")
    world.die(world.ranks[2])
    assert not world.ranks[0].interrupted
    world.answer_shell(world.ranks[0])
    world.fire(("on-error", cell.message.msg_id))
    assert world.ranks[1].interrupted and not world.ranks[0].interrupted
    world.answer_shell(world.ranks[1], error=True)
    assert cell.reply["ename"] == "RankLost"


def test_no_timer_outlives_its_cell() -> None:
    world = start(3)
    cell = world.execute("f()", allow_stdin=False)
    world.answer_shell(world.ranks[0], error=True)
    world.die(world.ranks[2])
    assert ("on-error", cell.message.msg_id) in world.timers
    world.answer_shell(world.ranks[1])
    assert len(cell.replies) == 1
    assert [key for key in world.timers if cell.message.msg_id in key] == []


def test_an_interrupt_explains_a_lost_idle() -> None:
    world = start(2)
    cell = world.execute("f()")
    world.answer_shell(world.ranks[0])
    world.feed(Signalled(world.tick(), 2))
    rank = world.ranks[1]
    world.say(rank, "shell", "execute_reply", {"status": "ok"}, rank.inbox.popleft())
    world.settle()
    assert cell.reply["status"] == "ok" and cell.text == ""


def test_it_is_asked_again_as_long_as_something_is_missing() -> None:
    world = start(2)
    cell = world.execute("f()")
    first, second = world.ranks.values()
    request = first.inbox.popleft()
    world.say(first, "shell", "execute_reply", {"status": "ok"}, request)
    key = ("fence", cell.message.msg_id)
    world.fire(key)
    assert [m.msg_type for m in first.inbox] == ["kernel_info_request"]
    first.inbox.clear()  # dropped, too
    assert key in world.timers
    world.say(second, "iopub", "status", {"execution_state": "idle"}, second.inbox.popleft())
    world.fire(key)
    assert [m.msg_type for m in second.inbox] == ["kernel_info_request"]
    world.settle()
    assert cell.reply["ename"] == "ReplyLost"


def test_queued_cells_that_fail_at_once_all_get_their_reply() -> None:
    world = start(1)
    cells = [world.execute("x", stop_on_error=False) for _ in range(4)]
    world.die(world.ranks[0])
    assert ["rank 0 died" in cell.reply["evalue"] for cell in cells] == [True] * 4


def test_cells_do_not_come_on_stdin() -> None:
    world = start(1)
    cell = world.ask("execute_request", {"code": "x"}, channel="stdin")
    assert cell.reply["ename"] == "BadMessage"
    assert cell.replies[0].channel == "stdin"
    assert [log.level for log in world.logs] == ["warning"]
    assert sent_codes(world, 0) == []


def test_shutdown_shows_what_the_running_cell_has_written() -> None:
    world = start(2)
    cell = world.execute("f()")
    world.say(
        world.ranks[0],
        "iopub",
        "stream",
        {"name": "stdout", "text": "a\n"},
        world.ranks[0].inbox[0],
    )
    world.ask("shutdown_request", {}, channel="control")
    assert cell.text == "0 │ a\n"
    assert cell.kinds[-2:] == ["execute_reply", "status"]
    assert [key for key in world.timers if cell.message.msg_id in key] == []


def test_a_language_that_counts_otherwise_shows_our_count() -> None:
    """Cells of ours alone (`%ranks`) are not counted by a kernel that we cannot pad."""
    world = start(1, language="R")
    world.run("1")
    world.run("%ranks")
    cell = world.execute("2")
    rank = world.ranks[0]
    result = {"execution_count": 2, "data": {}, "metadata": {}}
    world.say(rank, "iopub", "execute_result", result, rank.inbox[0])
    world.settle()
    assert json.loads(cell.of("execute_input")[0].content)["execution_count"] == 3
    assert json.loads(cell.of("execute_result")[0].content)["execution_count"] == 3
    assert cell.reply["execution_count"] == 3


def test_an_interrupted_cell_of_a_kernel_that_says_no_more_than_abort() -> None:
    world = start(2, language="R")
    cell = world.execute("Sys.sleep(9)")
    world.feed(Signalled(world.tick(), 2))
    for rank in world.ranks.values():
        request = rank.inbox.popleft()
        world.say(rank, "shell", "execute_reply", {"status": "abort"}, request)
        world.say(rank, "iopub", "status", {"execution_state": "idle"}, request)
    world.settle()
    assert (cell.reply["status"], cell.reply["ename"]) == ("error", "KeyboardInterrupt")


def test_an_error_without_name_and_traceback_is_still_one_line() -> None:
    world = start(2, language="bash")
    cell = world.execute("[ $RANK = 0 ]")
    rank = world.ranks[1]
    error = {"ename": "", "evalue": "1", "traceback": []}
    request = rank.inbox.popleft()
    world.say(rank, "iopub", "error", error, request)
    world.say(rank, "shell", "execute_reply", {"status": "error", **error}, request)
    world.say(rank, "iopub", "status", {"execution_state": "idle"}, request)
    world.settle()
    shown = json.loads(cell.of("error")[0].content)
    assert shown["traceback"] == cell.reply["traceback"] == ["1 │ Error: 1"]


def test_execute_requests_on_control_are_cells_in_their_turn() -> None:
    world = start(2)
    contents = [{"code": f"{n}", "silent": False} for n in range(3)]
    cells = [world.ask("execute_request", content, channel="control") for content in contents]
    world.settle()
    assert [cell.reply["execution_count"] for cell in cells] == [1, 2, 3]
    assert {cell.replies[0].channel for cell in cells} == {"control"}


def test_a_merged_reply_says_when_it_started() -> None:
    world = start(2)
    cell = world.execute("f()")
    for number, rank in world.ranks.items():
        request = rank.inbox.popleft()
        reply = {"status": "error" if number else "ok", "ename": "E", "evalue": "", "traceback": []}
        metadata = {"started": f"2020-01-0{number + 1}", "status": reply["status"]}
        world.say(rank, "shell", "execute_reply", reply, request, metadata)
        world.say(rank, "iopub", "status", {"execution_state": "idle"}, request)
    world.settle()
    assert cell.replies[0].metadata == {"started": "2020-01-01", "status": "error"}
