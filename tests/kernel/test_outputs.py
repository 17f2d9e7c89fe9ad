"""Outputs of several real ranks as a plain client sees them."""

from __future__ import annotations

from .client import Kernel

RANK = "int(__import__('os').environ['RANK'])"


def test_equal_text_is_one_line_and_different_text_is_labelled(four: Kernel) -> None:
    assert four.ok("print('same')").stdout == "same\n"
    text = four.ok(f"r = {RANK}\nprint('even' if r % 2 == 0 else 'odd')").stdout
    assert sorted(text.splitlines()) == ["0,2 │ even", "1,3 │ odd"]


def test_results(four: Kernel) -> None:
    (agreed,) = four.ok("6 * 7").of("execute_result")
    assert agreed["data"]["text/plain"] == "42"
    assert agreed["metadata"]["spmd"]["ranks"] == [0, 1, 2, 3]
    values = four.ok(f"{RANK} // 2").of("execute_result")
    assert [v["metadata"]["spmd"]["ranks"] for v in values] == [[0, 1], [2, 3]]
    assert [v["data"]["text/plain"] for v in values] == ["0-1 │ 0", "2-3 │ 1"]


def test_displays_and_updates_are_per_rank(pair: Kernel) -> None:
    code = f"""
from IPython.display import display
handle = display({{"text/html": "<b>%d</b>" % {RANK}}}, raw=True, display_id="same")
handle.update({{"text/html": "<i>%d</i>" % {RANK}}}, raw=True)
"""
    result = pair.ok(code)
    shown = [c for c in result.of("display_data") if c["metadata"]["spmd"].get("role") != "caption"]
    updates = result.of("update_display_data")
    assert sorted(c["metadata"]["spmd"]["ranks"] for c in shown) == [[0], [1]]
    ids = {c["transient"]["display_id"]: c["data"]["text/html"] for c in shown}
    assert len(ids) == 2
    for update in updates:
        first = ids[update["transient"]["display_id"]]
        assert update["data"]["text/html"] == first.replace("b>", "i>")


def test_errors_name_their_ranks(four: Kernel) -> None:
    result = four.run(f"if {RANK} == 2:\n    print('before')\n    raise KeyError('two')")
    assert result.status == "error"
    assert result.reply["ename"] == "KeyError"
    (error,) = result.errors
    assert error.startswith("2 │ ")
    kinds = [m["header"]["msg_type"] for m in result.messages]
    assert kinds.index("stream") < kinds.index("error")
    # Equal errors fold if they come within 100 ms, which a busy machine need not keep.
    same = four.run("raise ValueError('all')")
    heads = [error.splitlines()[0] for error in same.errors]
    assert (len(heads) == 1 and "│" not in heads[0]) or all("│" in head for head in heads)


def test_error_is_shown_while_others_run(pair: Kernel) -> None:
    """Nothing waits for the ranks that still run: the other rank waits until we have seen it."""
    code = f"""
if {RANK} == 0:
    raise ValueError('early')
answer = input('go on? ')
"""
    msg_id = pair.send(code, allow_stdin=True)
    pair.wait_iopub(lambda m: m["header"]["msg_type"] == "error")
    question = pair.client.get_stdin_msg(timeout=60)
    assert question["content"]["prompt"] in ("go on? ", "1 │ go on? ")
    pair.client.input("yes")
    result = pair.collect(msg_id)
    assert result.reply["evalue"] == "early"
    assert "yes" in pair.ok("%rank 1 answer").text


def test_input_is_asked_once_for_all(four: Kernel) -> None:
    msg_id = four.send("name = input('who? ')", allow_stdin=True)
    question = four.client.get_stdin_msg(timeout=60)
    assert question["content"] == {"prompt": "who? ", "password": False}
    four.client.input("ann")
    assert four.collect(msg_id).status == "ok"
    assert four.ok("print(name)").stdout == "ann\n"


def test_input_without_stdin_fails_fast(pair: Kernel) -> None:
    assert pair.run("input()").reply["ename"] == "StdinNotImplementedError"


def test_comms_reach_their_rank(pair: Kernel) -> None:
    code = f"""
from comm import create_comm
got = []
cm = create_comm(target_name='t', data={{'rank': {RANK}}})
cm.on_msg(lambda msg: got.append(msg['content']['data']['v']))
"""
    opens = pair.ok(code).of("comm_open")
    ids = {content["data"]["rank"]: content["comm_id"] for content in opens}
    listed = pair.request("comm_info_request", {"target_name": "t"})["comms"]
    assert set(listed) == set(ids.values())
    for rank, comm_id in ids.items():
        message = pair.client.session.msg("comm_msg", {"comm_id": comm_id, "data": {"v": rank}})
        pair.client.shell_channel.send(message)
    text = pair.ok("print(got)").stdout
    assert sorted(text.splitlines()) == ["0 │ [0]", "1 │ [1]"]


def test_thread_output_after_the_cell_is_not_lost(pair: Kernel) -> None:
    """A plain thread's words follow the rank's last request; they must only not get lost."""
    code = """
import threading
go = threading.Event()
def late():
    go.wait()
    print('late words', flush=True)
thread = threading.Thread(target=late); thread.start()
"""
    pair.ok(code)
    pair.stray.extend(pair.ok("go.set(); thread.join()").messages)
    pair.wait_iopub(lambda m: "late words" in str(m["content"].get("text", "")))


def test_a_thread_that_names_its_cell_prints_there(pair: Kernel) -> None:
    code = """
import threading
ip, go = get_ipython(), threading.Event()
parent = ip.get_parent()
def late():
    ip.set_parent(parent)
    go.wait()
    print('to the first cell', flush=True)
thread = threading.Thread(target=late); thread.start()
"""
    first = pair.send(code)
    pair.collect(first)
    second = pair.ok("go.set(); thread.join()")
    assert "to the first cell" not in second.text
    late = pair.wait_iopub(lambda m: "to the first cell" in str(m["content"].get("text", "")))
    assert late["parent_header"]["msg_id"] == first


def test_shell_escapes_and_magics_run_on_every_rank(pair: Kernel) -> None:
    text = pair.ok("!echo sh-$RANK").text
    assert "sh-0" in text and "sh-1" in text
    pair.ok("%env SOME=thing")
    assert pair.ok("import os; print(os.environ['SOME'])").stdout == "thing\n"


def test_big_output_is_complete(pair: Kernel) -> None:
    text = pair.ok(f"for i in range(20000): print({RANK}, i)").text
    for rank in (0, 1):
        lines = [line for line in text.splitlines() if line.startswith(f"{rank} │ ")]
        assert lines == [f"{rank} │ {rank} {i}" for i in range(20000)]


def test_nothing_is_lost_at_one_rank(kernel: Kernel) -> None:
    code = """
from IPython.display import display
for i in range(12000):
    display({'text/plain': f'number {i}'}, raw=True)
"""
    shown = [c["data"]["text/plain"] for c in kernel.ok(code).of("display_data")]
    assert shown == [f"number {i}" for i in range(12000)]
