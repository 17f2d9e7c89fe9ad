"""Forked ranks: nobody can tell them from spawned ones; and what happens where forking does not work."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spmd_kernel.core.model import LaunchRequest, RankSpec
from spmd_kernel.engines import supervisor as supervisor_module
from spmd_kernel.engines.plan import Plan, plan
from spmd_kernel.kernelspecs import Kernelspec, find
from spmd_kernel.rank.messages import Wire

from .ranks import engine, evaluate, request


@pytest.fixture(autouse=True)
def runtime_dir(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path_factory.mktemp("run")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(path))
    return path


# ---------------------------------------------------------------- forked or spawned


LOOK = """
import gc, json, locale, os, signal, sys, threading, IPython
seen = {
    "argv": [word.replace("r1.", "r0.") for word in sys.argv],
    "orig_argv": [word.replace("r1.", "r0.") for word in sys.orig_argv],
    "path": sys.path, "flags": repr(sys.flags), "xoptions": sys._xoptions,
    "warnoptions": sys.warnoptions, "executable": sys.executable, "prefix": sys.prefix,
    "main": sorted(k for k in vars(sys.modules["__main__"]) if k[:2] == "__"),
    "spec": repr(getattr(sys.modules["__main__"], "__spec__", None)),
    "signals": [repr(signal.getsignal(s)).split(" at ")[0] for s in signal.valid_signals()],
    "ignored": [l for l in open("/proc/self/status") if l[:6] in ("SigIgn", "SigBlk")],
    "threads": sorted({"".join(c for c in t.name if not c.isdigit()) for t in threading.enumerate()}),
    "files": sorted({os.readlink(f"/proc/self/fd/{n}").split(":")[0].replace("r1.", "r0.")
                    for n in os.listdir("/proc/self/fd") if os.path.islink(f"/proc/self/fd/{n}")}),
    "environ": sorted(set(os.environ) - {"LD_SOMETHING"}),
    "cwd": os.getcwd(), "umask": os.umask(0o022), "locale": locale.setlocale(locale.LC_ALL),
    "encodings": [sys.stdin.encoding, sys.__stdout__.encoding, sys.__stderr__.errors],
    "buffered": sys.__stdout__.line_buffering, "gc": gc.isenabled(),
    "parent": os.getppid() == int(os.environ["JPY_PARENT_PID"]),
    "leader": os.getpid() == os.getsid(0) == os.getpgid(0),
    "wakeup": signal.set_wakeup_fd(-1), "frozen": getattr(sys, "frozen", None),
    "limits": list(__import__("resource").getrlimit(7)),
}
seen = json.dumps(seen)
"""


def test_a_forked_rank_looks_like_a_spawned_one() -> None:
    async def main() -> None:
        async with engine() as (local, watcher):
            local.start(request(1, generation=1))
            forked = (await watcher.started(1))[0]
            # What the linker reads cannot be changed after the fork, nor for some ranks only.
            specs = (RankSpec(0, {}), RankSpec(1, {"LD_SOMETHING": "1"}))
            watcher.endpoints.clear()
            local.start(LaunchRequest("python3", 2, specs))
            spawned = (await watcher.started(2))[0]
            assert (forked.start, spawned.start) == ("fork", "spawn")
            views = []
            for endpoint in (forked, spawned):
                text, modules = await evaluate(
                    endpoint, LOOK, "seen", "'\\n'.join(__import__('sys').modules)"
                )
                views.append((json.loads(eval(text)), set(eval(modules).splitlines())))
            one, other = views
            for view, endpoint in ((one[0], forked), (other[0], spawned)):
                for name in ("argv", "orig_argv", "files"):
                    # What sqlite has open for a moment, while it writes the history.
                    passing = [w for w in view[name] if w + "/history.sqlite" in view[name]]
                    view[name] = [w for w in view[name] if not w.endswith("-journal")]
                    view[name] = [w for w in view[name] if w not in passing]
                    view[name] = [w.replace(directory(endpoint), "DIR") for w in view[name]]
            assert one[0] == other[0]
            assert not other[1] - one[1]
            more = {name.partition(".")[0] for name in one[1] - other[1]}
            # What a traceback needs; nothing that a user would notice (numpy, matplotlib).
            shown = {"stack_data", "executing", "asttokens", "pure_eval", "_spmd_kernel_zygote"}
            assert more - shown <= sys.stdlib_module_names, more - shown

    asyncio.run(main())


def directory(endpoint: Any) -> str:
    return str(Path(endpoint.addresses["shell"].removeprefix("ipc://")).parent)


def test_a_rank_has_the_folder_for_temporary_files_that_its_environment_names(
    tmp_path: Path,
) -> None:
    where = "__import__('tempfile').gettempdir()"

    async def main() -> None:
        async with engine() as (local, watcher):
            local.start(request(1))
            first = (await watcher.started(1))[0]
            usual = await evaluate(first, "", where)  # the fork server has looked meanwhile
            local.start(LaunchRequest("python3", 2, (RankSpec(1, {"TMPDIR": str(tmp_path)}),)))
            other = (await watcher.started(2))[1]
            assert (first.start, other.start) == ("fork", "fork")
            assert [usual, await evaluate(other, "", where)] == [
                [repr(tempfile.gettempdir())],
                [repr(str(tmp_path))],
            ]

    asyncio.run(main())


WORKS = """
import asyncio, multiprocessing, os, random, signal, subprocess, sys, tempfile, threading
import debugpy
done = [subprocess.run([sys.executable, "-c", "print(6 * 7)"], capture_output=True).stdout]
for how in ("fork", "spawn", "forkserver"):
    context = multiprocessing.get_context(how)
    with context.Pool(1) as pool:
        done.append(pool.apply(abs, (-7,)))
async def ask():
    process = await asyncio.create_subprocess_exec("true")
    return await process.wait()
done.append(await ask())
done.append(threading.main_thread() is threading.current_thread())
done = repr(done)
"""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_processes_and_threads_work_in_forked_ranks() -> None:
    async def main() -> None:
        async with engine() as (local, watcher):
            local.start(request(1))
            endpoints = await watcher.started(1)
            assert await evaluate(endpoints[0], WORKS, "done") == [
                repr(repr([b"42\n", 7, 7, 7, 0, True]))
            ]

    asyncio.run(main())


def test_what_is_random_differs_between_ranks_and_atexit_runs(tmp_path: Path) -> None:
    code = f"""if True:
        import atexit, random, numpy, torch, uuid, tempfile
        file = {str(tmp_path)!r} + "/" + __import__("os").environ["N"]
        atexit.register(lambda: open(file, "w").close())
        drawn = [random.random(), numpy.random.rand(), torch.rand(1).item(),
                 uuid.uuid4().hex, tempfile.mktemp()]
        exit = __import__("signal").raise_signal  # SIGTERM: ipykernel leaves in an orderly way
    """
    specs = tuple(RankSpec(rank, {"N": str(rank)}) for rank in range(2))

    async def main() -> None:
        async with engine() as (local, watcher):
            local.start(LaunchRequest("python3", 1, specs, preload=("numpy", "torch")))
            endpoints = await watcher.started(2)
            assert endpoints[0].start == "fork"
            drawn = [eval((await evaluate(endpoints[r], code, "drawn"))[0]) for r in range(2)]
            assert all(a != b for a, b in zip(*drawn, strict=True))
            await shut_down(endpoints[0])
            await watcher.exited(1)
            assert (tmp_path / "0").exists()

    asyncio.run(main())


async def shut_down(endpoint: Any) -> None:
    def ask() -> None:
        import zmq
        from jupyter_client.session import Session

        session = Session(key=endpoint.key, session="tests")
        with zmq.Context() as context, context.socket(zmq.DEALER) as control:
            control.connect(endpoint.addresses["control"])
            session.send(control, "shutdown_request", {"restart": False})
            assert control.poll(60_000)

    await asyncio.to_thread(ask)


# ---------------------------------------------------------------- where it does not work


def spec_with(argv: list[str]) -> Kernelspec:
    return replace(find("python3"), argv=tuple(argv))


def wrapper(folder: Path, first: str) -> Kernelspec:
    """An interpreter that does ``first`` instead of running the zygote."""
    python = folder / "python3"
    python.write_text(
        f'#!/bin/sh\ncase "$*" in *zygote.py*) {first};; esac\nexec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    return spec_with([str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"])


@pytest.mark.parametrize("first", ["exit 3", "exec sleep 1000", "kill -9 $$"])
def test_an_interpreter_that_is_no_fork_server_spawns(
    first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor_module, "READY_SECONDS", 2.0)

    async def main() -> None:
        async with engine(wrapper(tmp_path, first)) as (local, watcher):
            local.start(request(2))
            endpoints = await watcher.started(2)
            assert [endpoints[rank].start for rank in range(2)] == ["spawn", "spawn"]
            assert await evaluate(endpoints[1], "x = 1", "x") == ["1"]

    asyncio.run(main())


def test_without_ipykernel_the_rank_says_so(tmp_path: Path) -> None:
    for name in ("ipykernel", "ipykernel_launcher"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('no such wheel: boom')")

    async def main() -> None:
        async with engine() as (local, watcher):
            local.start(request(1, env={"PYTHONPATH": str(tmp_path)}))
            causes = await watcher.exited(1)
            assert causes[0].code == 1
            assert "no such wheel: boom" in watcher.stderr(0)
            assert watcher.endpoints[0].start == "spawn"

    asyncio.run(main())


def test_ranks_are_told_apart_from_their_supervisors_by_ps() -> None:
    async def main() -> None:
        async with engine() as (local, watcher):
            local.start(request(1))
            rank = (await watcher.started(1))[0]
            (shown,) = await evaluate(rank, "", "open('/proc/self/cmdline').read().strip(chr(0))")
            shown = eval(shown)
            assert shown.split()[1:4] == ["-m", "ipykernel_launcher", "-f"]
            assert shown.endswith("r0.json")

    asyncio.run(main())


# ---------------------------------------------------------------- preload


def preloading(name: str, generation: int = 1, **env: str) -> LaunchRequest:
    return LaunchRequest("python3", generation, (RankSpec(0, env),), preload=(name,))


async def prepare(local: Any, wanted: LaunchRequest) -> str:
    told = asyncio.get_running_loop().create_future()
    local.preload(wanted, told.set_result)
    return str(await asyncio.wait_for(told, 60))


def test_preload(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text("import os; where = os.getpid()")
    (tmp_path / "threads.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(999,), daemon=True).start()"
    )
    env = {"PYTHONPATH": str(tmp_path)}

    async def main() -> None:
        async with engine() as (local, watcher):
            assert "bad cannot be imported: ModuleNotFoundError" in await prepare(
                local, preloading("bad", **env)
            )
            (tmp_path / "bad.py").write_text("raise SystemExit('nothing to see')")
            assert "SystemExit: nothing" in await prepare(local, preloading("bad", **env))
            assert "started 1 threads" in await prepare(local, preloading("threads", **env))
            assert await prepare(local, preloading("good", **env)) == ""
            local.start(preloading("good", **env))
            rank = (await watcher.started(1))[0]
            where, parent = await evaluate(rank, "import good, os", "good.where", "os.getppid()")
            assert where == parent
        spec = spec_with([sys.executable, "-c", "pass", "{connection_file}"])
        async with engine(spec) as (local, watcher):
            assert "ipykernel_launcher" in await prepare(local, preloading("good"))

    asyncio.run(main())


def test_after_an_installation_ranks_are_forked_from_a_new_interpreter(tmp_path: Path) -> None:
    packages = tmp_path / "dist-packages"
    packages.mkdir()
    env = {"PYTHONPATH": str(packages)}

    async def main() -> None:
        async with engine() as (local, watcher):
            parents = []
            for generation in range(3):
                watcher.endpoints.clear()
                local.start(request(1, generation=generation, env=env))
                rank = (await watcher.started(1))[0]
                parents += await evaluate(rank, "import os", "os.getppid()")
                local.stop([0], now=True)
                await watcher.exited(generation + 1)
                if generation == 1:
                    (packages / "new.pth").write_text("")
            assert parents[0] == parents[1] != parents[2]

    asyncio.run(main())


# ---------------------------------------------------------------- the plan


def planned(spec: Kernelspec, *envs: dict[str, str], preload: tuple[str, ...] = ()) -> Plan:
    ranks = [RankSpec(rank, env) for rank, env in enumerate(envs or ({},))]
    return plan(spec, {"HOME": "/h"}, ranks, preload)


LAUNCH = ["-m", "ipykernel_launcher", "-f", "{connection_file}"]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["/v/bin/python", *LAUNCH], ("/v/bin/python",)),
        (["/v/bin/python3.13t", "-Xfrozen_modules=off", *LAUNCH], ("/v/bin/python3.13t", "-Xfrozen_modules=off")),
        (["/v/bin/python3", "-X", "dev", "-m", "ipykernel", "-f", "{connection_file}", "--pylab"], ("/v/bin/python3", "-X", "dev")),
        (["/v/bin/python3", "-I", *LAUNCH], ()),
        (["/v/bin/python3", "-S", *LAUNCH], ()),
        (["/v/bin/python3", "-m", "xeus_python", "{connection_file}"], ()),
        (["/usr/bin/env", "python3", *LAUNCH], ()),
        (["conda-run.sh", *LAUNCH], ()),
        (["/v/bin/python3", "-c", "import x"], ()),
    ],
)  # fmt: skip
def test_which_kernelspecs_are_forked(argv: list[str], words: tuple[str, ...]) -> None:
    found = planned(spec_with(argv))
    assert (found.words, bool(found.module)) == (words, bool(words))
    assert bool(found.why) == (not words)


def test_another_provisioner_is_not_ours_to_replace() -> None:
    spec = replace(find("python3"), metadata={"kernel_provisioner": {"provisioner_name": "k8s"}})
    assert not planned(spec).module


def test_what_an_interpreter_reads_early_decides_where_to_fork_from() -> None:
    spec = find("python3")
    base = planned(spec)
    assert dict(base.environ) == {"HOME": "/h"}
    assert planned(spec, {"RANK": "0", "OMP_NUM_THREADS": "1"}) == base
    path = {"PYTHONPATH": "/p"}
    assert dict(planned(spec, path, path).environ) == {"HOME": "/h", "PYTHONPATH": "/p"}
    assert not planned(spec, path, {}).module
    assert "PYTHONPATH" in planned(spec, path, {}).why
    threads = {"OMP_NUM_THREADS": "1", "MASTER_PORT": "7"}
    warm = planned(spec, threads, preload=("torch",))
    assert dict(warm.environ) == {"HOME": "/h", "OMP_NUM_THREADS": "1"}
    assert not planned(spec, threads, {"OMP_NUM_THREADS": "2"}, preload=("torch",)).module


# ---------------------------------------------------------------- the wire


def test_messages_of_any_size_arrive_whole_with_their_descriptors() -> None:
    ends = socket.socketpair()
    for end in ends:
        end.setblocking(False)
    one, other = map(Wire, ends)
    sizes = [0, 10, 300_000, 5, 70_000]
    for number, size in enumerate(sizes):
        read_end, write_end = os.pipe()
        os.write(write_end, str(number).encode())
        os.close(write_end)
        one.put({"text": "x" * size}, [read_end] if number != 3 else (os.close(read_end), ())[1])
    received = []
    while len(received) < len(sizes):
        one.flush()
        assert other.fill()
        while item := other.take():
            message, fds = item
            content = [os.read(fd, 10) for fd in fds]
            for fd in fds:
                assert not os.get_inheritable(fd)
                os.close(fd)
            received.append((len(message["text"]), content))
    assert received == [(0, [b"0"]), (10, [b"1"]), (300_000, [b"2"]), (5, []), (70_000, [b"4"])]
    one.close()
    assert not other.fill()
    other.put({"after": "the end"})
    assert other.flush()
    other.close()
