"""What the setup code changes in a rank, seen in real ranks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from spmd_kernel.core.model import LaunchRequest, RankSpec, Settings
from spmd_kernel.core.outputs.stream import glued
from spmd_kernel.core.topology import World, rank_environment
from spmd_kernel.engines.ports import HeldPorts
from spmd_kernel.rank.flow import ACK, QUANTUM, weight
from spmd_kernel.settings import SETUP, setup_code

from .ranks import engine, evaluate, request, send

JAX = """
import jax
jax.distributed.initialize()
world = (jax.process_index(), jax.process_count(), jax.device_count())
from jax._src.clusters import ClusterEnv
first = ClusterEnv._cluster_types[0].name
jax.distributed.shutdown()
"""


@pytest.fixture(autouse=True)
def runtime_dir(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("run")))


def test_jax_finds_its_world_without_arguments() -> None:
    held = HeldPorts(2)
    settings = Settings(session="s", environ=dict(os.environ))
    world = World(2, 0, held.ports[0], held.ports[1], "run")
    # What another launcher left behind must not be found first.
    extra = {"JAX_PLATFORMS": "cpu", "OMPI_MCA_orte_hnp_uri": "1.0;tcp://10.0.0.1:1"}
    specs = tuple(RankSpec(r, *rank_environment(settings, world, r, extra)) for r in range(2))

    async def main() -> None:
        async with engine() as (local, watcher):
            local.start(LaunchRequest("python3", 1, specs))
            endpoints = await watcher.started(2)
            for rank in range(2):
                imported = "any(name == 'jax' for name in __import__('sys').modules)"
                assert await evaluate(endpoints[rank], setup_code(), imported, silent=True) == [
                    "False"
                ]
            answers = await asyncio.gather(
                *(evaluate(endpoints[rank], JAX, "world", "first") for rank in range(2))
            )
            assert answers == [[f"({rank}, 2, 2)", "'spmd_kernel'"] for rank in range(2)]

    asyncio.run(main())
    held.close()


def test_jax_that_is_already_imported_is_told_too() -> None:
    code = f"""if True:
        import jax._src.clusters as clusters
        {setup_code()}
        environ = clusters.ClusterEnv._cluster_types[0]
        print(environ.name, environ.is_env_present(), environ.get_coordinator_address(1, "7"),
              environ.get_process_count(), environ.get_process_id(), environ.get_local_process_id())
    """
    variables = {
        "JAX_COORDINATOR_ADDRESS": "127.0.0.1:5", "JAX_NUM_PROCESSES": "4", "JAX_PROCESS_ID": "3",
    }  # fmt: skip
    assert python(code, **variables) == "spmd_kernel True 127.0.0.1:7 4 3 None"
    assert python(code, **variables, JAX_LOCAL_DEVICE_IDS="3").endswith(" 3")


def test_without_a_world_jax_sees_no_cluster_of_ours() -> None:
    code = f"""if True:
        {setup_code()}
        from jax._src.clusters import ClusterEnv
        print(ClusterEnv._cluster_types[0].name, ClusterEnv._cluster_types[0].is_env_present())
    """
    assert python(code) == "spmd_kernel False"


@pytest.mark.parametrize(("size", "warnings"), [("2", 1), ("1", 0)])
def test_mpi4py_in_a_world_of_more_than_one_warns_once(
    size: str, warnings: int, tmp_path: Path
) -> None:
    (tmp_path / "mpi4py.py").write_text("MPI = 'real'\n")
    code = f"""if True:
        import sys, warnings
        sys.path.insert(0, {str(tmp_path)!r})
        {setup_code()}
        import importlib.util
        assert importlib.util.find_spec("mpi4py") is not None  # asking is no import
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            from mpi4py import MPI
            import mpi4py
        import inspect
        assert MPI == "real" and inspect.getsource(mpi4py) == "MPI = 'real'\\n"
        print(len(caught), *[w.filename for w in caught])
    """
    expected = f"{warnings} <string>" if warnings else "0"
    assert python(code, WORLD_SIZE=size) == expected


def test_run_again_it_changes_only_what_the_world_size_changes(tmp_path: Path) -> None:
    (tmp_path / "mpi4py.py").write_text("MPI = 'real'\n")
    code = f"""if True:
        import os, sys, warnings
        sys.path.insert(0, {str(tmp_path)!r})
        sys.modules["jax._src.clusters"] = clusters = type(sys)("clusters")
        clusters.ClusterEnv = type("ClusterEnv", (), {{
            "_cluster_types": [],
            "__init_subclass__": classmethod(lambda c: c._cluster_types.append(c)),
        }})
        for size in ("1", "3", "2"):
            os.environ["WORLD_SIZE"] = size
            {setup_code()}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            import mpi4py
        print(len(clusters.ClusterEnv._cluster_types),
              [type(f).__name__ for f in sys.meta_path].count("PostImport"),
              [str(w.message)[:44] for w in caught])
    """
    assert python(code) == "1 1 ['MPI.COMM_WORLD has size 1 in each of the 2 r']"


def test_a_plain_python_is_left_alone() -> None:
    code = f"""if True:
        import sys
        before = set(globals()), set(sys.modules)
        {setup_code()}
        import json, xml.dom
        print(sorted(set(globals()) - before[0]))
    """
    assert python(code, WORLD_SIZE="4") == "['before', 'json', 'xml']"


def test_the_setup_needs_nothing_of_ours_and_no_new_python() -> None:
    """Every file of it, as an old interpreter would compile it."""
    import ast

    for path in SETUP.parent.glob("*.py"):
        ast.parse(path.read_text(), feature_version=(3, 8))
    assert python(setup_code() + "; import sys; print('spmd_kernel' in sys.modules)") == "False"


@pytest.mark.parametrize(("size", "interval"), [("2", "0.05"), ("1", "0.2")])
def test_streams_are_flushed_sooner_by_more_than_one(size: str, interval: str) -> None:
    async def main() -> None:
        async with engine() as (local, watcher):
            local.start(request(1, env={"WORLD_SIZE": size}))
            endpoint = (await watcher.started(1))[0]
            out, err, left = await evaluate(
                endpoint,
                setup_code(),
                "__import__('sys').stdout.flush_interval",
                "__import__('sys').stderr.flush_interval",
                "sorted(name for name in globals() if name[0] != '_')",
                silent=True,
            )
            assert (out, err) == (interval, interval)
            assert left == "['In', 'Out', 'exit', 'get_ipython', 'open', 'quit']"

    asyncio.run(main())


MANY = 6_000  # more than the default marks and the buffers of the sockets hold


def displays(iopub: zmq.Socket[bytes]) -> int:
    """How many of `MANY` a reader gets that tells the rank how far it is."""
    seen = size = told = 0
    while seen < MANY and iopub.poll(60_000):
        frames = iopub.recv_multipart()
        seen += b'"display_data"' in b"".join(frames)
        size += weight(frames)
        if size > (told + 1) * QUANTUM:
            told += 1
            (iopub.subscribe if told % 2 else iopub.unsubscribe)(ACK)
    return seen


def test_nothing_published_is_lost_to_a_reader_that_is_behind() -> None:
    publish = f"""if True:
        from IPython.display import publish_display_data
        for number in range({MANY}): publish_display_data({{"text/plain": str(number)}})"""

    async def main() -> None:
        async with engine() as (local, watcher):
            local.start(request(1, env={"WORLD_SIZE": "2"}))
            endpoint = (await watcher.started(1))[0]
            with zmq.Context() as context, context.socket(zmq.SUB) as iopub:
                iopub.rcvhwm = 10  # the backlog must pile up at the rank
                iopub.subscribe(b"")
                iopub.connect(endpoint.addresses["iopub"])
                assert iopub.poll(60_000)  # iopub_welcome: it knows us
                await evaluate(endpoint, setup_code(), silent=True)
                publishing = asyncio.create_task(evaluate(endpoint, publish))
                assert await asyncio.to_thread(displays, iopub) == MANY
                await publishing

    asyncio.run(main())


WRITES = """if True:
    import random, sys
    random.seed(7)
    for _ in range(300):
        sys.stdout.write("".join(random.choices("ab\\x1f\\n", k=random.randint(0, 6))) + "|\\n")
    sys.stdout.write("of\\r\\na\\r\\ncommand\\r\\n")
    sys.stdout.flush()
"""


@pytest.mark.parametrize("size", ["2", "1"])
def test_writes_are_marked_and_nothing_that_was_written_changes(size: str) -> None:
    """U+001F after an inner newline; a text that has it itself arrives as it was."""
    random.seed(7)
    writes = ["".join(random.choices("ab\x1f\n", k=random.randint(0, 6))) + "|" for _ in range(300)]
    lines = "of\r\na\r\ncommand\r\n"
    text = asyncio.run(_printed(WRITES, size))
    if size == "1":
        assert text == "".join(f"{write}\n" for write in writes) + lines
        return
    assert text.endswith(lines)  # no marks there: pieces of a command's output mean nothing
    assert glued(text.removesuffix(lines).split("\n")) == [*writes, ""]


PIECES = """if True:
    import os, subprocess, sys, time
    os.write(1, ("é" * 5000 + "\\n").encode())
    subprocess.run(["sh", "-c", r"printf 'one\\ntwo \037\\nthree\\n'; echo 'the pipe is read'"])
"""


def test_text_of_c_code_and_children_comes_whole_and_unmarked() -> None:
    """Read from a pipe in pieces: no character is torn, and no piece stands for a write."""
    text = asyncio.run(_printed(PIECES, "2", "the pipe is read\n"))
    assert glued(text.split("\n")) == ["é" * 5000, "one", "two \x1f", "three", ""]


async def _printed(code: str, size: str, end: str = "the end\n") -> str:
    """The text of the stream messages of one rank."""
    async with engine() as (local, watcher):
        local.start(request(1, env={"WORLD_SIZE": size}))
        endpoint = (await watcher.started(1))[0]
        with zmq.Context() as context, context.socket(zmq.SUB) as iopub:
            iopub.subscribe(b"stream.stdout")  # welcomes have that topic too
            iopub.connect(endpoint.addresses["iopub"])
            assert iopub.poll(60_000)  # it knows us
            await evaluate(endpoint, setup_code(), silent=True)
            (length,) = await evaluate(endpoint, code, "sys.stdout.write('the end\\n')")
            assert length == "8"
            text = ""
            while end not in text:
                assert iopub.poll(60_000)
                text += json.loads(iopub.recv_multipart()[-1]).get("text", "")
            return text.partition(end)[0]


def test_a_crash_leaves_the_line_where_it_happened() -> None:
    async def main() -> None:
        async with engine() as (local, watcher):
            local.start(request(1))
            endpoint = (await watcher.started(1))[0]
            await evaluate(endpoint, setup_code(), silent=True)
            await send(endpoint, "import ctypes\ndef mine(): ctypes.string_at(0)\nmine()")
            assert (await watcher.exited(1))[0].signal == signal.SIGSEGV
            report = watcher.stderr(0)
            assert report.startswith("Fatal Python error: Segmentation fault")
            assert "in mine" in report

    asyncio.run(main())


# ---------------------------------------------------------------- waits for peers

RENDEZVOUS = (SETUP.parent / "rendezvous.py").read_text()


@contextlib.contextmanager
def held_port() -> Iterator[int]:
    """It is bound, but nobody listens."""
    held = HeldPorts(1)
    yield held.ports[0]
    held.close()


def rendezvous() -> dict[str, Any]:
    namespace: dict[str, Any] = {"__name__": "rendezvous"}
    exec(RENDEZVOUS, namespace)
    return namespace


def test_processes_wait_until_all_are_there_at_once() -> None:
    code = (
        RENDEZVOUS
        + """if True:
        name, me, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
        gathering = Gathering()
        print(gathering.wait(name, me, size, 60), flush=True)
        sys.stdin.read()
    """
    )
    name = f"spmd-kernel-test-{os.getpid()}"

    def come(me: int) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", code, name, str(me), "3"]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)

    gathering = rendezvous()["Gathering"]()
    first = come(0)
    gone = come(1)
    assert gathering.wait(name, 2, 2, 60) == []  # both have come: they wait for the third
    gathering.leave()
    gone.kill()
    gone.communicate()
    assert gathering.wait(name, 2, 3, 0.01) == [1]  # who has gone is not there, though once it was
    gathering.leave()
    again = come(1)
    assert gathering.wait(name, 2, 3, 60) == []
    for process in (first, again):
        assert process.stdout is not None and process.stdout.readline() == "[]\n"
        process.communicate()
    gathering.leave()
    assert gathering.wait(name, 2, 3, 0.01) == [0, 1]  # nothing is left of them
    gathering.leave()


def test_a_port_on_which_nobody_listens_is_not_reached() -> None:
    reach = rendezvous()["reach"]
    with held_port() as port:
        assert not reach("127.0.0.1", port, 0.05)
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert reach("localhost", server.getsockname()[1], 30)
    assert not reach("127.0.0.1", 1 << 20, 0.05)


def test_torch_is_told_when_nobody_comes_and_counts_its_groups_anew() -> None:
    code = f"""if True:
        {setup_code()}
        import datetime, torch.distributed as dist
        from torch.distributed import distributed_c10d as c10d
        try:
            dist.init_process_group("gloo", timeout=datetime.timedelta(milliseconds=50))
        except dist.DistNetworkError as error:
            print(error, c10d._world.group_count)
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        client = dist.TCPStore("127.0.0.1", port=store.port)
        client.set("a", "b")
        print(store.get("a"))
        try: dist.TCPStore(1, 2, 3, 4, 5)
        except TypeError: print("its own error")
    """
    with held_port() as port:
        said = python(
            code, RANK="1", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)
        )
    assert said == (
        f"The client socket has timed out after 50ms while trying to connect to (127.0.0.1, {port})."
        " 0\nb'b'\nits own error"
    )


def test_jax_is_told_who_does_not_come_and_may_try_again() -> None:
    code = f"""if True:
        {setup_code()}
        import jax
        for _ in range(2):
            try: jax.distributed.initialize(initialization_timeout=0)
            except RuntimeError as error: print(error)
        try: jax.distributed.initialize("127.0.0.1:1", 3, 1, initialization_timeout=0)
        except RuntimeError as error: print(error)
    """
    with held_port() as port:
        said = python(
            code, RANK="0", WORLD_SIZE="2", JAX_COORDINATOR_ADDRESS=f"127.0.0.1:{port}",
            JAX_NUM_PROCESSES="2", JAX_PROCESS_ID="0", JAX_PLATFORMS="cpu",
            TORCHELASTIC_RUN_ID=f"test-{os.getpid()}",
        )  # fmt: skip
    missing = [line.partition(" had not come within 0 s")[0] for line in said.splitlines()]
    assert missing == [f"DEADLINE_EXCEEDED: process {process}" for process in (1, 1, 0)]


def python(code: str, **environ: str) -> str:
    names = ("WORLD_SIZE", "JAX_COORDINATOR_ADDRESS", "JAX_PROCESS_ID", "JAX_NUM_PROCESSES")
    inherited = {name: value for name, value in os.environ.items() if name not in names}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**inherited, **environ}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
