"""input(), getpass and debuggers at real ranks, as a client with a keyboard sees them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zmq
from jupyter_client import BlockingKernelClient

from spmd_kernel.core.outputs.labels import parse_label

from .client import DEADLINE, Kernel, Result

SETUP = "import os, getpass; r = int(os.environ['RANK'])"
EVERYBODY = (0, 1, 2, 3)


@pytest.fixture
def asking(four: Kernel) -> Kernel:
    four.ok(SETUP)
    return four


def send(kernel: Kernel, code: str) -> str:
    return kernel.send(code, allow_stdin=True)


def question(kernel: Kernel) -> dict[str, Any]:
    content: dict[str, Any] = kernel.client.get_stdin_msg(timeout=DEADLINE)["content"]
    return content


def prompts_until_reply(
    kernel: Kernel, msg_id: str, answer: Callable[[str], str]
) -> tuple[Result, list[str]]:
    """Answer whatever is asked until the cell's reply is there."""
    stdin, shell = kernel.client.stdin_channel.socket, kernel.client.shell_channel.socket
    poller = zmq.Poller()
    poller.register(stdin, zmq.POLLIN)
    poller.register(shell, zmq.POLLIN)
    prompts = []
    while True:
        ready = dict(poller.poll(DEADLINE * 1000))
        assert ready, f"no question and no reply; asked so far: {prompts}"
        if stdin in ready:
            prompts.append(question(kernel)["prompt"])
            kernel.client.input(answer(parse_label(prompts[-1])[1]))
        elif shell in ready:
            return kernel.collect(msg_id), prompts


def converse(kernel: Kernel, code: str, answer: Callable[[str], str]) -> tuple[Result, list[str]]:
    return prompts_until_reply(kernel, send(kernel, code), answer)


def asked_of(prompt: str, everybody: tuple[int, ...] = EVERYBODY) -> tuple[int, ...]:
    """No label: of all.  Equal prompts come as one if they are 100 ms apart at most."""
    return parse_label(prompt)[0] or everybody


def nothing_is_asked(kernel: Kernel) -> bool:
    return not kernel.client.stdin_channel.socket.poll(0)


def test_questions_in_a_loop_reach_every_rank_in_order(asking: Kernel) -> None:
    code = "got = [input(f'q{i}: ') for i in range(20)]"
    result, prompts = converse(asking, code, lambda prompt: prompt[1:-2])
    assert result.status == "ok"
    assert asking.ok("print(got == [str(i) for i in range(20)])").stdout == "True\n"
    questions = [(rank, parse_label(p)[1]) for p in prompts for rank in asked_of(p)]
    assert sorted(questions) == sorted((rank, f"q{i}: ") for rank in EVERYBODY for i in range(20))


def test_different_prompts_come_one_by_one_with_their_rank(asking: Kernel) -> None:
    answers = {f"{rank}? ": f"answer {rank}" for rank in EVERYBODY}
    result, prompts = converse(asking, "x = input(f'{r}? ')", answers.__getitem__)
    assert result.status == "ok"
    assert sorted(prompts) == [f"{rank} │ {rank}? " for rank in EVERYBODY]
    assert asking.ok("print(x == f'answer {r}')").stdout == "True\n"


def test_a_password_is_one_and_prompts_may_be_anything(asking: Kernel) -> None:
    msg_id = send(asking, "key = getpass.getpass('key: ')")
    asked = question(asking)
    assert asked["password"] is True and asked["prompt"].endswith("key: ")
    asking.client.input("s3cret")
    prompts_until_reply(asking, msg_id, lambda _: "s3cret")
    assert asking.ok("print(key)").stdout == "s3cret\n"
    for prompt in ("", "one\ntwo: ", "line\n", "größe 大 │ 🙂? ", "x" * 1_000_000):
        result, prompts = converse(asking, f"y = input({prompt!r})", lambda _: "y")
        assert result.status == "ok" and prompts
        assert all(p.replace("0-3 │ ", "").endswith(prompt[-4:]) for p in prompts)
    result, prompts = converse(asking, "y = r == 2 and input('one\\ntwo: ')", lambda _: "y")
    assert prompts == ["2 │ one\n2 │ two: "]


def test_a_rank_that_asks_later_is_asked_for_itself(asking: Kernel, tmp_path: Path) -> None:
    go = tmp_path / "go"
    code = f"""
import time
while r == 3 and not os.path.exists({str(go)!r}):
    time.sleep(0.01)
name = input('name? ')
"""
    msg_id = send(asking, code)
    first = question(asking)["prompt"]
    assert 3 not in asked_of(first) and first.endswith("name? ")
    go.touch()
    asking.client.input("first")
    result, prompts = prompts_until_reply(asking, msg_id, lambda _: "second")
    assert result.status == "ok"
    assert "3 │ name? " in prompts
    assert asking.ok("%rank 3 print(name)").stdout.endswith("second\n")


def test_others_go_on_while_one_asks(asking: Kernel) -> None:
    code = """
if r == 1:
    n = int(input('how many? '))
else:
    for i in range(200):
        print('busy', r, i, flush=True)
    print('worked', r)
"""
    msg_id = send(asking, code)
    assert question(asking)["prompt"] == "1 │ how many? "
    seen = ""
    while not all(f"worked {rank}" in seen for rank in (0, 2, 3)):
        seen += asking.wait_iopub(lambda m: m["header"]["msg_type"] == "stream")["content"]["text"]
        asking.stray.clear()
    asking.client.input("3")
    assert asking.collect(msg_id).status == "ok"
    assert asking.ok("%rank 1 print(n)").stdout.endswith("3\n")


# ---------------------------------------------------------------- withdrawn


def test_stop_withdraws_the_question_and_a_late_answer_is_nobodys(asking: Kernel) -> None:
    msg_id = send(asking, "x = input('old? ')")
    late = asking.client.get_stdin_msg(timeout=DEADLINE)
    asking.manager.interrupt_kernel()
    result = asking.collect(msg_id)
    assert result.reply["ename"] == "KeyboardInterrupt"
    msg_id = send(asking, "x = input('new? ')")
    assert question(asking)["prompt"].endswith("new? ")
    # JupyterLab names the question that it answers.
    reply = asking.client.session.msg("input_reply", {"value": "late"}, parent=late)
    asking.client.stdin_channel.send(reply)
    asking.client.input("in time")
    result, _ = prompts_until_reply(asking, msg_id, lambda _: "in time")
    assert result.status == "ok"
    assert asking.ok("print(x)").stdout == "in time\n"


def test_the_death_of_a_rank_withdraws_what_is_asked(asking: Kernel) -> None:
    msg_id = send(asking, "import os\nx = input(f'{r}? ')")
    assert question(asking)["prompt"]
    pid = int(asking.request("spmd_request", {"command": "status"}, "control")["data"]["ranks"][2]["pid"])  # fmt: skip
    os.kill(pid, signal.SIGKILL)
    result = asking.collect(msg_id)
    assert result.status == "error" and "rank 2 died" in result.text
    while not nothing_is_asked(asking):
        question(asking)
    asking.ok("%restart dead")
    asking.ok(SETUP)
    result, _ = converse(asking, "x = input('again? ')", lambda _: "yes")
    assert result.status == "ok"
    assert asking.ok("print(x)").stdout == "yes\n"


def test_an_interrupt_of_one_rank_withdraws_its_question_alone(asking: Kernel) -> None:
    msg_id = send(asking, "x = input(f'{r}? ') if r < 2 else None")
    first = asked_of(question(asking)["prompt"])[0]
    command = {"command": "interrupt", "arguments": {"ranks": [first]}}
    assert asking.request("spmd_request", command, "control")["data"] == {"interrupted": [first]}
    assert question(asking)["prompt"] == f"{1 - first} │ {1 - first}? "
    asking.client.input("mine")
    result = asking.collect(msg_id)
    assert result.reply["ename"] == "KeyboardInterrupt"
    assert asking.ok(f"%rank {1 - first} print(x)").stdout.endswith("mine\n")


def test_new_ranks_wait_for_a_cell_that_asks_and_a_restart_ends_it(asking: Kernel) -> None:
    msg_id = send(asking, "x = input('x? ')")
    question(asking)
    processes = {"command": "processes", "arguments": {"size": 2}}
    refused = asking.request("spmd_request", processes, "control")
    assert refused["status"] == "error" and "running" in refused["evalue"]
    smaller = asking.send("%processes 2")  # behind the cell that asks
    asking.client.input("1")
    result, _ = prompts_until_reply(asking, msg_id, lambda _: "1")
    assert result.status == "ok"
    assert asking.collect(smaller).status == "ok"
    msg_id = send(asking, "x = input('y? ')")
    question(asking)
    asking.manager.restart_kernel()
    asking.client.wait_for_ready(timeout=DEADLINE)
    assert asking.ok("print('up')").stdout == "up\n"


# ---------------------------------------------------------------- nobody is there


def test_without_a_keyboard_whatever_asks_fails_at_once(asking: Kernel) -> None:
    for code in ("input()", "getpass.getpass()", "import pdb\npdb.set_trace()\nx = 1"):
        result = asking.run(code)
        assert result.reply["ename"] == "StdinNotImplementedError", result.text
        assert "does not support" in result.text
        assert nothing_is_asked(asking)
    asking.run("1 / (r - r)")
    assert asking.run("%debug").reply["ename"] == "StdinNotImplementedError"
    asking.ok("%pdb on")
    result = asking.run("1 / (r - r)")
    assert result.reply["ename"] == "ZeroDivisionError"
    asking.ok("%pdb off")
    assert asking.ok("import subprocess; print(subprocess.run(['cat']).returncode)").stdout == "0\n"
    assert nothing_is_asked(asking)


# ---------------------------------------------------------------- threads and clients


def test_threads_ask_too(asking: Kernel) -> None:
    code = """
import threading
got = []
asks = threading.Thread(target=lambda: got.append(input(f'thread {r // 2}? ')))
asks.start()
asks.join()
"""
    result, prompts = converse(asking, code, lambda prompt: prompt[-3])
    assert result.status == "ok"
    assert {asked_of(prompt) for prompt in prompts} <= {(0, 1), (2, 3), (0,), (1,), (2,), (3,)}
    assert asking.ok("print(got == [str(r // 2)])").stdout == "True\n"


def test_a_thread_may_wait_for_its_answer_when_the_cell_is_over(asking: Kernel) -> None:
    code = """
import threading
got = []
asking = threading.Event()
def ask(read=input):
    asking.set()
    got.append(read('still? '))
asks = threading.Thread(target=ask)
asks.start()
asking.wait()
"""
    msg_id = send(asking, code)
    assert asking.collect(msg_id).status == "ok"
    left = set(EVERYBODY)
    while left:
        prompt = question(asking)["prompt"]
        assert prompt.endswith("still? ")
        asking.client.input("yes")
        left -= set(asked_of(prompt))
    assert asking.ok("asks.join(); print(got)").stdout == "['yes']\n"


def test_who_sent_the_cell_is_asked(asking: Kernel) -> None:
    other = BlockingKernelClient(connection_file=asking.manager.connection_file)
    other.load_connection_file()  # a session of its own
    other.start_channels()
    try:
        other.wait_for_ready(timeout=DEADLINE)
        msg_id = send(asking, "x = input('mine? ')")
        question(asking)
        assert not other.stdin_channel.socket.poll(0)
        other.input("not mine")
        asking.client.input("mine")
        prompts_until_reply(asking, msg_id, lambda _: "mine")
        theirs = other.execute("x = input('theirs? ')", allow_stdin=True)
        assert other.get_stdin_msg(timeout=DEADLINE)["content"]["prompt"].endswith("theirs? ")
        assert nothing_is_asked(asking)
        other.input("theirs")
        while other.stdin_channel.socket.poll(500):
            other.get_stdin_msg(timeout=DEADLINE)
            other.input("theirs")
        while other.get_shell_msg(timeout=DEADLINE)["parent_header"]["msg_id"] != theirs:
            pass
    finally:
        other.stop_channels()
    assert asking.ok("print(x)").stdout == "theirs\n"


# ---------------------------------------------------------------- debuggers

PDB = """
import pdb
def f(n):
    pdb.set_trace()
    total = n
    total += 1
    return total
value = f(r)
"""


@pytest.mark.parametrize("size", [1, 2, 4])
def test_pdb_goes_on_in_step(kernel: Kernel, size: int) -> None:
    kernel.ok(f"%processes {size}")
    kernel.ok(SETUP)
    msg_id = send(kernel, PDB)
    everybody = tuple(range(size))
    commands: dict[int, list[str]] = {
        rank: ["n", "n", "p ('total', total)", "total = total + 10", "c"] for rank in everybody
    }
    while any(commands.values()):
        ranks = asked_of(prompt := question(kernel)["prompt"], everybody)
        assert prompt.endswith("pdb> ")
        (command,) = {commands[rank].pop(0) for rank in ranks}
        kernel.client.input(command)
    result = kernel.collect(msg_id)
    assert result.status == "ok", result.text
    for rank in everybody:
        assert f"('total', {rank + 1})" in result.text
    assert kernel.ok("print(value == r + 11)").stdout == "True\n"


def test_post_mortem_debuggers_of_all_ranks(pair: Kernel) -> None:
    pair.ok(SETUP)
    pair.run("secret = r - r\n1 / secret")
    answers = iter(["p secret"] * 2 + ["q"] * 100)
    result, prompts = converse(pair, "%debug", lambda _: next(answers))
    assert result.status == "ok" and prompts
    assert all("pdb> " in prompt for prompt in prompts)
    pair.ok("%pdb on")
    result, prompts = converse(pair, "1 / secret", lambda _: "q")
    assert result.reply["ename"] == "ZeroDivisionError" and prompts
    pair.ok("%pdb off")


def test_stop_leaves_a_debugger_which_may_be_used_again(pair: Kernel) -> None:
    pair.ok(SETUP)
    msg_id = send(pair, PDB)
    question(pair)
    pair.manager.interrupt_kernel()
    result, _ = prompts_until_reply(pair, msg_id, lambda _: "q")
    assert "--KeyboardInterrupt--" in result.text
    assert pair.ok("print(r >= 0)").stdout == "True\n"
