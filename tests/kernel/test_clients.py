"""Clients that others wrote, each from its own start to its own end. More in test_consumers, test_headless."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

import nbformat
import papermill
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from papermill.exceptions import PapermillExecutionError
from testbook import testbook
from tornado.websocket import websocket_connect

from .client import ANSI, DEADLINE, Kernel
from .test_consumers import convert
from .test_headless import notebook, text_of

RANK = "import os; rank = int(os.environ['RANK'])"


# ---------------------------------------------------------------- jupyter run


def jupyter_run(*words: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "jupyter_client.runapp", "--kernel", "spmd-python3", *words],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=170,
        env={**os.environ, "SPMD_PROCESSES": "2"},  # it gives a script no more than 10 s
    )


def test_jupyter_run_of_a_file(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"{RANK}\nprint('I am', rank)\n")
    done = jupyter_run(str(script))
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["0 │ I am 0", "1 │ I am 1"]


def test_jupyter_run_of_what_fails() -> None:
    done = jupyter_run(stdin=f"{RANK}\nprint('before')\n1 / rank")
    assert done.returncode != 0
    assert "before" in done.stdout
    assert "ZeroDivisionError" in done.stderr and "0 │" in done.stderr


# ---------------------------------------------------------------- nbclient, papermill, nbconvert


def test_nbclient_in_somebody_else_s_loop() -> None:
    """Two notebooks at once, one of which fails."""
    good = notebook("%processes 2", RANK, "print('I am', rank)", "rank")
    wrong = notebook("%processes 2", RANK, "assert rank == 0, 'not well'")

    async def main() -> Any:
        clients = [
            NotebookClient(n, kernel_name="spmd-python3", timeout=120) for n in (good, wrong)
        ]
        return await asyncio.gather(*(c.async_execute() for c in clients), return_exceptions=True)

    executed, error = asyncio.run(main())
    assert executed is good
    nbformat.validate(good)
    assert "0 │ I am 0\n" in text_of(good.cells[2]) and "1 │ I am 1\n" in text_of(good.cells[2])
    assert [o.data["text/plain"] for o in good.cells[3].outputs] == ["0 │ 0", "1 │ 1"]
    assert isinstance(error, CellExecutionError)
    said = ANSI.sub("", str(error))
    assert "AssertionError: not well" in said and "1 │" in said


def test_papermill_marks_the_failed_cell_and_goes_on_from_its_output(tmp_path: Path) -> None:
    source, target = tmp_path / "in.ipynb", tmp_path / "out.ipynb"
    nb = notebook("limit = 1", "%processes 2", RANK, "assert rank < limit, rank", "print('done')")
    nb.cells[0].metadata["tags"] = ["parameters"]
    nbformat.write(nb, source)
    options = {"progress_bar": False, "kernel_name": "spmd-python3"}
    with pytest.raises(PapermillExecutionError, match="AssertionError"):
        papermill.execute_notebook(source, target, **options)
    failed = nbformat.read(target, as_version=4)
    tags = [cell.metadata.get("tags", []) for cell in failed.cells]
    assert ["papermill-error-cell-tag"] in tags  # the note above the cell
    assert not failed.cells[-1].outputs

    again = papermill.execute_notebook(target, target, parameters={"limit": 2}, **options)
    texts = [text_of(cell) for cell in again.cells if cell.cell_type == "code"]
    assert "done" in texts[-1]
    assert not any("papermill-error-cell-tag" in c.metadata.get("tags", []) for c in again.cells)


def test_nbconvert_to_a_script(tmp_path: Path) -> None:
    nb = notebook("%processes 2", RANK, "%%rank 0\nprint('only one')", "print('both')")
    nb = NotebookClient(nb, kernel_name="spmd-python3", timeout=120).execute()
    nbformat.write(nb, tmp_path / "all.ipynb")
    text = convert(tmp_path / "all.ipynb", "script")
    compile(text, "all.py", "exec")  # magics became calls, as IPython's own do
    assert "run_line_magic('processes', '2')" in text
    assert "run_cell_magic('rank', '0'" in text
    assert RANK in text


def test_testbook(tmp_path: Path) -> None:
    """It reads values back and calls functions: what the ranks agree on, and what they do not."""
    path = tmp_path / "functions.ipynb"
    cells = (
        "%processes 2",
        RANK,
        "def twice(x): return 2 * x",
        "shared = {'a': [1, 2]}",
        "print('text')",
    )
    nbformat.write(notebook(*cells), path)
    with testbook(path, execute=True, kernel_name="spmd-python3", timeout=120) as tb:
        assert tb.cell_output_text(4) == "text"
        assert tb.value("shared['a'] + [3]") == [1, 2, 3]
        assert tb.ref("shared") == {"a": [1, 2]}
        assert tb.ref("twice")(21) == 42
        tb.inject("shared['b'] = rank")
        tb.inject("print(rank)", pop=True)
        with pytest.raises(Exception, match="ZeroDivisionError"):
            tb.inject("1 / rank")


# ---------------------------------------------------------------- VS Code


def test_vs_code_s_start(kernel: Kernel, tmp_path: Path) -> None:
    """Set-up cells that are not silent but stored nowhere, then the user's cells, then its own again."""

    def own(code: str) -> Any:
        options = {"silent": False, "store_history": False, "stop_on_error": False}
        return kernel.run(code, allow_stdin=True, **options)

    folder = str(tmp_path)
    set_up = (
        "import os as _own_os; _own_os.environ['OWN_SET_UP'] = '1'",
        f"import os as _own_os, sys as _own_sys\n_own_os.chdir({folder!r}); _own_sys.path.append({folder!r})",
        f"globals().update({{'__own_file__': {folder + '/a.ipynb'!r}}})",
        "%config InlineBackend.figure_formats = ['png']",
        "def _own_variables(): return sorted(n for n in globals() if n[0] != '_')",
    )
    kernel.request("kernel_info_request", {})
    for code in set_up:
        reply = own(code).reply
        assert (reply["status"], reply["execution_count"]) == ("ok", 0)
    assert own("import sys; print(sys.executable)").stdout.startswith("/")

    report = kernel.ok("%processes 2", allow_stdin=True)
    assert report.reply["execution_count"] == 1
    code = (
        "import os, sys; print(os.getcwd(), sys.path[-1], __own_file__, os.environ['OWN_SET_UP'])"
    )
    result = kernel.ok(code, allow_stdin=True)
    assert set(result.stdout.splitlines()) - {""} <= {
        label + f"{folder} {folder} {folder}/a.ipynb 1" for label in ("", "0 │ ", "1 │ ")
    }
    assert "'mine'" not in own("print(_own_variables())").stdout
    kernel.ok("mine = 1", allow_stdin=True)
    assert "'mine'" in own("print(_own_variables())").stdout
    assert kernel.ok("1").reply["execution_count"] == 4
    kernel.ok("%processes 3", allow_stdin=True)  # what it set up is there again, not the user's
    assert kernel.ok("print(__own_file__)").stdout.count("a.ipynb") in (1, 2, 3)
    assert "NameError" in kernel.run("mine").text


# ---------------------------------------------------------------- jupyter_server


class Server:
    """A Jupyter server without a token, on a port of its own."""

    def __init__(self, folder: Path):
        options = {"ip": "127.0.0.1", "port": 0, "open_browser": False, "root_dir": str(folder)}
        options |= {"allow_root": True, "disable_check_xsrf": True, "log_level": 20}
        words = [f"--ServerApp.{name}={value}" for name, value in options.items()]
        words += ["--IdentityProvider.token=", "--ServerApp.allow_unauthenticated_access=True"]
        folders = {
            f"JUPYTER_{kind}_DIR": str(folder / kind) for kind in ("CONFIG", "RUNTIME", "DATA")
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "jupyter_server", *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **folders},
        )
        self.address = self._address()
        self._wait()

    def _address(self) -> str:
        assert self.process.stderr is not None
        said = []
        for line in self.process.stderr:
            said.append(line)
            if found := re.search(r"(http://127\.0\.0\.1:\d+)/", line):
                return found[1]
        raise AssertionError("".join(said))

    def _wait(self) -> None:
        """It tells its address shortly before it listens there."""
        deadline = time.monotonic() + DEADLINE
        while True:
            try:
                self.call("GET", "status")
                return
            except URLError:
                assert self.process.poll() is None and time.monotonic() < deadline
                time.sleep(0.05)

    def call(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.address}/api/{path}", data, method=method)
        with urllib.request.urlopen(request, timeout=DEADLINE) as response:
            raw = response.read()
        return json.loads(raw) if raw else None

    def close(self) -> None:
        assert self.process.stderr is not None
        self.process.terminate()
        self.process.stderr.read()  # it may have much to say before it ends
        self.process.stderr.close()
        self.process.wait(30)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    yield server
    server.close()


class Socket:
    """The websocket of a kernel; messages are JSON texts with their channel in them."""

    def __init__(self, connection: Any):
        self.connection = connection
        self.count = 0

    @classmethod
    async def open(cls, server: Server, kernel_id: str) -> Socket:
        url = server.address.replace("http", "ws") + f"/api/kernels/{kernel_id}/channels"
        return cls(await asyncio.wait_for(websocket_connect(url), DEADLINE))

    async def send(self, msg_type: str, content: dict[str, Any], channel: str = "shell") -> str:
        self.count += 1
        msg_id = f"{id(self)}-{self.count}"  # clients hear of each other's requests
        header = {"msg_id": msg_id, "msg_type": msg_type, "session": "s", "username": "u"}
        header |= {"version": "5.3", "date": "2020-01-01T00:00:00Z"}
        message = {"header": header, "parent_header": {}, "metadata": {}, "content": content}
        await self.connection.write_message(json.dumps({**message, "channel": channel}))
        return msg_id

    async def until(self, msg_id: str, *wanted: str) -> list[dict[str, Any]]:
        """The answers to a request until each of the ``wanted`` kinds (or states) has come."""
        got: list[dict[str, Any]] = []
        left = set(wanted)
        while left:
            raw = await asyncio.wait_for(self.connection.read_message(), DEADLINE)
            assert raw is not None, "the server closed the connection"
            message = json.loads(raw)
            if message["parent_header"].get("msg_id") == msg_id:
                got.append(message)
                left -= {message["msg_type"], message["content"].get("execution_state")}
        return got

    async def run(self, code: str) -> list[dict[str, Any]]:
        content = {"code": code, "silent": False, "store_history": True, "allow_stdin": True}
        msg_id = await self.send("execute_request", content)
        return await self.until(msg_id, "execute_reply", "idle")


def streamed(messages: list[dict[str, Any]]) -> list[str]:
    text = "".join(m["content"]["text"] for m in messages if m["msg_type"] == "stream")
    return sorted(text.splitlines())


def test_jupyter_server(server: Server) -> None:
    """REST and websocket: start, run, two clients, interrupt, restart, delete."""
    specs = server.call("GET", "kernelspecs")["kernelspecs"]
    assert specs["spmd-python3"]["spec"]["display_name"] == "Distributed (Python 3)"
    kernel_id = server.call("POST", "kernels", {"name": "spmd-python3"})["id"]

    async def main() -> None:
        socket = await Socket.open(server, kernel_id)
        other = await Socket.open(server, kernel_id)
        info = await socket.until(await socket.send("kernel_info_request", {}), "kernel_info_reply")
        assert info[-1]["content"]["status"] == "ok"
        await socket.run("%processes 2")
        assert streamed(await socket.run(f"{RANK}; print('I', rank)")) == ["0 │ I 0", "1 │ I 1"]
        assert streamed(await other.run("print('other', rank)")) == ["0 │ other 0", "1 │ other 1"]

        content = {"code": "import time; print('begun', flush=True); time.sleep(600)"}
        msg_id = await socket.send("execute_request", {**content, "silent": False})
        await socket.until(msg_id, "stream")
        state = await asyncio.to_thread(server.call, "GET", f"kernels/{kernel_id}")
        assert state["execution_state"] == "busy"
        await asyncio.to_thread(server.call, "POST", f"kernels/{kernel_id}/interrupt", {})
        stopped = await socket.until(msg_id, "execute_reply", "idle")
        (reply,) = [m["content"] for m in stopped if m["msg_type"] == "execute_reply"]
        assert reply["ename"] == "KeyboardInterrupt"

        await asyncio.to_thread(server.call, "POST", f"kernels/{kernel_id}/restart", {})
        gone = await socket.run("rank")
        assert "NameError" in [m["content"].get("ename") for m in gone if m["msg_type"] == "error"]
        socket.connection.close()
        other.connection.close()

    asyncio.run(main())
    server.call("DELETE", f"kernels/{kernel_id}")
    assert server.call("GET", "kernels") == []
    with pytest.raises(HTTPError):
        server.call("GET", f"kernels/{kernel_id}")
