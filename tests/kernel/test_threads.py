"""Text of threads, tasks, C code and children: none is lost, and each finds its rank and its cell."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from spmd_kernel.core.outputs.labels import parse_label

from .client import Kernel

SETUP = """
import asyncio, atexit, ctypes, logging, os, subprocess, sys, threading, time
import multiprocessing
fork = multiprocessing.get_context('fork')
r = int(os.environ['RANK'])
"""
LINE = re.compile(r"<(\d+)\.(\d+)\.(\d+)>")


@pytest.fixture(autouse=True)
def _watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """ipykernel leaves file descriptors alone where it finds this variable."""
    monkeypatch.delenv("PYTEST_CURRENT_TEST")


@pytest.fixture
def ranks(four: Kernel) -> Kernel:
    four.ok(SETUP)
    return four


@pytest.fixture
def two(pair: Kernel) -> Kernel:
    pair.ok(SETUP)
    return pair


def texts(kernel: Kernel, parent: str | None = None) -> str:
    """What came outside of the cell that was waited for; of one parent, or all of it."""
    return "".join(
        m["content"]["text"]
        for m in kernel.stray
        if m["header"]["msg_type"] == "stream"
        and parent in (None, m["parent_header"].get("msg_id"))
    )


def wait_for(kernel: Kernel, *words: str, parent: str | None = None) -> None:
    while not all(word in texts(kernel, parent) for word in words):
        kernel.stray.append(kernel.client.get_iopub_msg(timeout=90))


def check_lines(text: str, ranks: int, threads: int) -> dict[tuple[int, int], int]:
    """Each line has the label of its rank; how many came of each thread, in order and once."""
    counts: Counter[tuple[int, int]] = Counter()
    for line in text.splitlines():
        if found := LINE.search(line):
            rank, thread, number = map(int, found.groups())
            assert parse_label(line) == ((rank,), found[0]), line
            assert number == counts[rank, thread], f"lost, doubled or out of order: {line}"
            counts[rank, thread] += 1
    assert set(counts) == {(r, t) for r in range(ranks) for t in range(threads)}
    return dict(counts)


def test_many_threads_at_once(ranks: Kernel) -> None:
    code = """
def write(t):
    for i in range(5000):
        sys.stdout.write(f'<{r}.{t}.{i}>\\n')
threads = [threading.Thread(target=write, args=(t,)) for t in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
None
"""
    counts = check_lines(ranks.ok(code).text, 4, 8)
    assert set(counts.values()) == {5000}


def test_threads_that_write_while_cells_begin_and_end(two: Kernel) -> None:
    code = """
stop = threading.Event()
def write(t):
    i = 0
    while not stop.is_set():
        sys.stdout.write(f'<{r}.{t}.{i}>\\n')
        i += 1
        if i % 20 == 0:
            time.sleep(0.001)
    sys.stdout.write(f'<end {r}.{t}.{i}>\\n')
threads = [threading.Thread(target=write, args=(t,)) for t in range(3)]
[t.start() for t in threads]
None
"""
    said = two.ok(code).text
    for number in range(15):
        said += two.ok(f"x = {number}").text
        two.request("complete_request", {"code": "sy", "cursor_pos": 2})
        two.request("kernel_info_request", {})
    said += two.ok("stop.set(); [t.join() for t in threads]; None").text
    while not is_complete(said + texts(two)):  # what names another cell may come a moment later
        two.stray.append(two.client.get_iopub_msg(timeout=90))


def is_complete(text: str) -> bool:
    """Each of six threads has said all of its lines, and none of them twice."""
    numbers: dict[tuple[str, str], list[int]] = {}
    for rank, thread, number in LINE.findall(text):
        numbers.setdefault((rank, thread), []).append(int(number))
    ends = re.findall(r"<end (\d)\.(\d)\.(\d+)>", text)
    for said in numbers.values():
        assert len(said) == len(set(said)), "doubled"
    return len(ends) == 6 and all(len(numbers[r, t]) == int(count) for r, t, count in ends)


def test_c_code_and_commands_are_labelled_and_in_their_cell(ranks: Kernel) -> None:
    code = """
os.write(1, b'raw %d\\n' % r); os.write(2, b'raw err %d\\n' % r)
libc = ctypes.CDLL(None); libc.printf(b'printf %d\\n', r); libc.fflush(None)
subprocess.run(['sh', '-c', 'echo sub $RANK; echo sub err $RANK >&2'])
None
"""
    for _ in range(10):
        result = ranks.ok(code)
        for rank in range(4):
            for words in ("raw", "raw err", "printf", "sub", "sub err"):
                assert f"{rank} │ {words} {rank}\n" in result.text, (rank, words)
        errors = "".join(c["text"] for c in result.of("stream") if c["name"] == "stderr")
        assert errors.count("err") == 8 and "printf" not in errors
    assert texts(ranks) == ""


def test_a_flood_of_a_command_can_be_stopped(two: Kernel) -> None:
    """It fills the pipe, and its reader waits until there is room; what answers does not."""
    msg_id = two.send("flood = subprocess.Popen(['yes', 'y' * 60])\nwhile True: sys.stdout.flush()")
    two.wait_iopub(lambda m: "yyyy" in str(m["content"].get("text", "")))
    assert two.request("kernel_info_request", {}, "control")["status"] == "ok"
    two.manager.interrupt_kernel()
    assert two.collect(msg_id).reply["ename"] == "KeyboardInterrupt"
    two.ok("flood.kill()\nNone")
    assert "on\n" in two.ok("print('on')").text


def test_forked_children_write_whole_lines_and_nothing_twice(ranks: Kernel) -> None:
    code = """
def work(child):
    for i in range(20):
        print('child', r, child, i)
print('parent', r)
children = [fork.Process(target=work, args=(c,)) for c in range(3)]
[c.start() for c in children]
[c.join() for c in children]
print('done')
pid = os.fork()
if pid == 0:
    print('forked', r, flush=True)
    os._exit(0)
os.waitpid(pid, 0)
with fork.Pool(2) as pool:
    pool.map(print, ['pooled %d' % r] * 3)
"""
    text = ranks.ok(code).text
    lines = Counter(text.splitlines())
    for rank in range(4):
        assert lines.pop(f"{rank} │ forked {rank}") == 1
        assert lines.pop(f"{rank} │ pooled {rank}") == 3
        for child in range(3):
            for i in range(20):
                assert lines.pop(f"{rank} │ child {rank} {child} {i}") == 1
        assert lines.pop(f"{rank} │ parent {rank}") == 1
    assert set(lines) == {"done"} or sum(lines.values()) <= 4


def test_a_fork_while_threads_write(two: Kernel) -> None:
    """Their lock is not held for ever in the child, and their text is not the child's."""
    code = """
stop = threading.Event()
def write():
    i = 0
    while not stop.is_set():
        sys.stdout.write(f'<{r}.0.{i}>\\n')
        i += 1
threads = [threading.Thread(target=write)]
threads[0].start()
for n in range(20):
    pid = os.fork()
    if pid == 0:
        print('fork', r, n, flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
stop.set()
threads[0].join()
"""
    text = two.ok(code).text
    check_lines(text, 2, 1)
    for rank in range(2):
        assert all(text.count(f"{rank} │ fork {rank} {n}\n") == 1 for n in range(20))


def test_workers_of_a_data_loader(two: Kernel) -> None:
    code = """
import torch.utils.data as data
class Items(data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, i):
        print('item', r, i)
        return i
list(data.DataLoader(Items(), num_workers=2, batch_size=2))
None
"""
    lines = Counter(two.ok(code).stdout.splitlines())
    assert lines == {f"{rank} │ item {rank} {i}": 1 for rank in range(2) for i in range(8)}


def test_logging_handlers_and_their_threads(two: Kernel) -> None:
    two.ok("logging.basicConfig(level=logging.INFO)\nlogging.info('first %d', r)")
    two.ok("pass")
    code = """
logging.info('later %d', r)
t = threading.Thread(target=lambda: logging.warning('thread %d', r)); t.start(); t.join()
"""
    text = two.ok(code).text
    for rank in range(2):
        assert f"{rank} │ INFO:root:later {rank}\n" in text
        assert f"{rank} │ WARNING:root:thread {rank}\n" in text
    assert texts(two) == ""


def test_tasks_that_outlive_their_cell_speak_into_it(two: Kernel) -> None:
    code = """
go = asyncio.Event()
async def late():
    await go.wait()
    print('task', r)
task = asyncio.ensure_future(late())
asyncio.get_running_loop().call_later(0.01, lambda: print('timer', r))
class Last:
    def __del__(self):
        print('gone', r)
last = Last()
"""
    first = two.send(code)
    two.collect(first)
    second = two.ok("go.set()\nawait task\ndel last")
    assert sorted(second.stdout.splitlines()) == ["0 │ gone 0", "1 │ gone 1"]
    wait_for(two, *(f"{rank} │ {what} {rank}\n" for rank in (0, 1) for what in ("task", "timer")), parent=first)  # fmt: skip


def test_a_thread_names_its_parent_and_takes_it_back(two: Kernel) -> None:
    code = """
ip, go = get_ipython(), threading.Event()
parent = ip.get_parent()
def late():
    go.wait()
    token = ip.set_thread_parent(parent)
    print('to the first', r, flush=True)
    ip.reset_thread_parent(token)
    print('to the second', r, flush=True)
thread = threading.Thread(target=late); thread.start()
"""
    first = two.send(code)
    two.collect(first)
    second = two.ok("go.set(); thread.join()")
    assert "to the first" not in second.text
    for rank in range(2):
        assert f"{rank} │ to the second {rank}\n" in second.text
    wait_for(two, "0 │ to the first 0\n", "1 │ to the first 1\n", parent=first)


def test_no_request_takes_a_thread_from_its_cell(two: Kernel, tmp_path: Path) -> None:
    """A request makes ipykernel forget whose threads those are: a query, a fence, a widget's message."""
    code = f"""
from comm import create_comm
opened = create_comm(target_name='t', data={{'rank': r}})
def late():
    for n in range(6):
        while not os.path.exists({str(tmp_path)!r} + f'/{{n}}'):
            time.sleep(0.01)
        print('late', n, r, flush=True)
thread = threading.Thread(target=late, daemon=True); thread.start()
"""
    first = two.send(code)
    opens = two.collect(first).of("comm_open")

    def comm() -> None:
        data = {"comm_id": opens[0]["comm_id"], "data": {}}
        message = two.client.session.msg("comm_msg", data)
        two.client.shell_channel.send(message)
        two.wait_iopub(
            lambda m: (
                m["parent_header"].get("msg_id") == message["header"]["msg_id"]
                and m["content"].get("execution_state") == "idle"
            )
        )

    def ask(kind: str, content: object, channel: str = "shell") -> None:
        two.request(kind, content, channel)  # type: ignore[arg-type]

    between = [
        lambda: ask("complete_request", {"code": "pri", "cursor_pos": 3}),
        lambda: ask("kernel_info_request", {}),
        lambda: ask(
            "history_request", {"hist_access_type": "tail", "n": 1, "output": False, "raw": True}
        ),
        comm,
        lambda: ask("spmd_request", {"command": "where"}, "control"),
        lambda: ask("inspect_request", {"code": "print", "cursor_pos": 3, "detail_level": 0}),
    ]
    for number, request in enumerate(between):
        request()
        (tmp_path / str(number)).touch()
        words = [f"late {number} {rank}\n" for rank in (0, 1)]
        wait_for(two, *words, parent=first)


@pytest.mark.parametrize("end", ["%restart all", "%processes 2 --fresh", "shutdown"])
def test_last_words(two: Kernel, end: str) -> None:
    last = two.send(
        "atexit.register(print, 'bye', r)\natexit.register(os.write, 1, b'raw bye\\n')\n1"
    )
    two.collect(last)
    if end != "shutdown":
        said = two.ok(end).text
    else:
        two.client.shutdown()
        wait_for(two, "bye 0", "bye 1", parent=last)
        said = texts(two)
    for rank in range(2):
        assert f"{rank} │ bye {rank}\n" in said
    wait_for(two, "raw bye\n", parent=last)
