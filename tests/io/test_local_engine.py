"""Real processes: how they start, what they inherit, how their ends are told, and what is left."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from spmd_kernel.core.errors import UsageError
from spmd_kernel.core.model import Cause, LaunchRequest, RankSpec
from spmd_kernel.engines import cgroup, rundir
from spmd_kernel.engines.local import rank_arguments, rank_environ
from spmd_kernel.kernelspecs import find

from .ranks import (
    engine,
    evaluate,
    gone,
    is_alive,
    program,
    request,
    send,
    vanished,
    written,
)

SLEEP = "import time; time.sleep(3600)"


@pytest.fixture(autouse=True)
def runtime_dir(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Directories of engines under test are made here, so that what is left can be seen."""
    path = tmp_path_factory.mktemp("run")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(path))
    return path


# ---------------------------------------------------------------- start


def test_two_ipykernels_start_and_answer(runtime_dir: Path) -> None:
    async def main() -> None:
        leak = os.open(os.devnull, os.O_RDONLY)
        os.set_inheritable(leak, True)
        async with engine() as (local, watcher):
            local.start(request(2, env={"ANSWER": "42"}))
            endpoints = await watcher.started(2)
            assert local.pids() == {rank: endpoint.pid for rank, endpoint in endpoints.items()}
            for rank in (0, 1):
                pid, session, answer, parents, stdin, inherited, history = await evaluate(
                    endpoints[rank],
                    "import os",
                    "os.getpid()",
                    "os.getsid(0)",
                    "os.environ['ANSWER']",
                    "os.environ['JPY_PARENT_PID'] == str(os.getppid())"
                    " and get_ipython().kernel.parent.parent_handle == os.getppid()",
                    "os.readlink('/proc/self/fd/0')",
                    f"os.path.exists('/proc/self/fd/{leak}')"
                    f" and os.readlink('/proc/self/fd/{leak}') == '/dev/null'",
                    "get_ipython().history_manager.hist_file",
                )
                assert pid == session == str(endpoints[rank].pid)
                assert (answer, parents) == ("'42'", "True")
                assert (stdin, inherited) == ("'/dev/null'", "False")
                assert (history == "':memory:'") == (rank == 1)
            [directory] = entries(runtime_dir)
            assert stat.S_IMODE(directory.stat().st_mode) == 0o700
            for file in directory.glob("*.json"):
                assert stat.S_IMODE(file.stat().st_mode) == 0o600
                assert json.loads(file.read_bytes())["kernel_name"] == "python3"
            assert all(len(a) < 100 for e in endpoints.values() for a in e.addresses.values())
        os.close(leak)

    asyncio.run(main())
    assert not entries(runtime_dir)


def test_a_rank_blocks_no_signal_that_we_block() -> None:
    code = "import signal; raise SystemExit(len(signal.pthread_sigmask(signal.SIG_BLOCK, ())))"

    async def main() -> None:
        async with engine(program(code)) as (local, watcher):
            local.start(request(1))
            assert await watcher.exited(1) == {0: Cause(code=0)}

    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        asyncio.run(main())
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_a_program_that_is_not_there_is_named() -> None:
    async def main() -> None:
        broken = program("")
        broken = type(broken)(**{**fields(broken), "argv": ("/nowhere/python", "-V")})
        async with engine(broken) as (local, watcher):
            local.start(request(2, kernel="gone"))
            causes = await watcher.exited(2)
            assert set(causes) == {0, 1}
            assert "'gone'" in causes[0].missing
            assert "/nowhere/python" in causes[0].missing
            assert not watcher.endpoints

    asyncio.run(main())


def test_a_kernelspec_that_is_not_there_is_named(runtime_dir: Path) -> None:
    async def main() -> None:
        async with engine() as (local, watcher):
            local.start(request(1, kernel="no-such-kernel"))
            causes = await watcher.exited(1)
            assert "no-such-kernel" in causes[0].missing
            assert "python3" in causes[0].missing  # what is installed

    asyncio.run(main())


def test_ranks_stopped_before_they_were_spawned_are_reported_once() -> None:
    async def main() -> None:
        async with engine(program(SLEEP)) as (local, watcher):
            local.start(request(3))
            local.stop((0, 1, 2), now=True)
            await watcher.exited(3)
            assert not watcher.endpoints
            assert local.pids() == {}
        assert sorted(rank for rank, *_ in watcher.exits) == [0, 1, 2]

    asyncio.run(main())


# ---------------------------------------------------------------- death


@pytest.mark.parametrize("pidfd", [True, False])
def test_causes_of_death(pidfd: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not pidfd:
        monkeypatch.delattr(os, "pidfd_open")
    code = """if True:
        import os, signal, sys
        rank = int(os.environ["N"])
        if rank == 3: sys.exit("no luck")
        if rank == 2: os.kill(os.getpid(), signal.SIGSEGV)
        if rank == 1: os._exit(3)
        os.kill(os.getpid(), signal.SIGKILL)"""
    specs = tuple(RankSpec(rank, {"N": str(rank)}) for rank in range(4))

    async def main() -> None:
        async with engine(program(code)) as (local, watcher):
            local.start(LaunchRequest("program", 7, specs))
            assert await watcher.exited(4) == {
                0: Cause(signal=signal.SIGKILL),
                1: Cause(code=3),
                2: Cause(signal=signal.SIGSEGV),
                3: Cause(code=1),
            }
            assert watcher.stderr(3) == "no luck"
            assert {generation for _, generation, *_ in watcher.exits} == {7}
            assert local.pids() == {}

    asyncio.run(main())


def test_an_ipykernel_that_crashes() -> None:
    async def main() -> None:
        async with engine() as (local, watcher):
            local.start(request(1))
            endpoints = await watcher.started(1)
            await send(endpoints[0], "import os; os.kill(os.getpid(), 11)")
            assert await watcher.exited(1) == {0: Cause(signal=signal.SIGSEGV)}

    asyncio.run(main())


def test_last_words_are_the_last_lines_even_of_much_output() -> None:
    code = "import os; [os.write(2, b'%07d\\n' % i) for i in range(100_000)]; os.abort()"

    async def main() -> None:
        async with engine(program(code)) as (local, watcher):
            local.start(request(1))
            await watcher.exited(1)
            assert watcher.stderr(0).splitlines() == [f"{i:07d}" for i in range(99_980, 100_000)]

    asyncio.run(main())


def test_a_descendant_that_holds_the_pipe_does_not_delay_the_report(tmp_path: Path) -> None:
    code = f"""if True:
        import subprocess, sys
        child = subprocess.Popen(["sleep", "3600"], start_new_session=True)
        open({str(tmp_path / "pid")!r}, "w").write(f"{{child.pid}}\\n")
        sys.exit(5)"""

    async def main() -> None:
        async with engine(program(code)) as (local, watcher):
            local.start(request(1))
            assert await watcher.exited(1) == {0: Cause(code=5)}
            daemon = int(await written(tmp_path / "pid"))
            assert is_alive(daemon)  # it asked to outlive its rank …
        assert not is_alive(daemon)  # … but nothing outlives the kernel

    asyncio.run(main())


def test_the_group_and_session_of_a_dead_rank_go_with_it(tmp_path: Path) -> None:
    code = f"""if True:
        import os, subprocess
        same = subprocess.Popen(["sleep", "3600"])
        other = subprocess.Popen(["sleep", "3600"], process_group=0)
        open({str(tmp_path / "pids")!r}, "w").write(f"{{same.pid}} {{other.pid}}\\n")
        os._exit(0)"""

    async def main() -> None:
        async with engine(program(code)) as (local, watcher):
            local.start(request(1))
            await watcher.exited(1)
            await gone([int(pid) for pid in (await written(tmp_path / "pids")).split()])

    asyncio.run(main())


def test_memory_is_named_only_for_a_kill_that_is_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    kills = iter(range(100))
    monkeypatch.setattr(cgroup, "oom_kills", lambda: next(kills))  # somebody dies every time

    async def main() -> None:
        async with engine(program(SLEEP)) as (local, watcher):
            local.start(request(3))
            pids = {rank: e.pid for rank, e in (await watcher.started(3)).items()}
            os.kill(pids[0], signal.SIGKILL)
            await watcher.exited(1)
            local.signal([1], signal.SIGKILL)
            await watcher.exited(2)
            os.kill(pids[2], signal.SIGTERM)
            assert await watcher.exited(3) == {
                0: Cause(signal=signal.SIGKILL, out_of_memory=True),
                1: Cause(signal=signal.SIGKILL),
                2: Cause(signal=signal.SIGTERM),
            }

    asyncio.run(main())


def test_adopted_orphans_are_reaped_and_ranks_keep_their_status(tmp_path: Path) -> None:
    """A daemon ends while its rank lives: no zombie stays, and the rank's code is still told."""
    code = f"""if True:
        import os, sys, time
        supervisor = os.getppid()
        if os.fork() == 0:
            if os.fork() == 0:
                while os.getppid() != supervisor: time.sleep(0.01)
                open({str(tmp_path / "daemon")!r}, "w").write(f"{{os.getpid()}}\\n")
            os._exit(0)
        os.wait()
        while not os.path.exists({str(tmp_path / "go")!r}): time.sleep(0.01)
        sys.exit(9)"""

    async def main() -> None:
        async with engine(program(code)) as (local, watcher):
            local.start(request(1))
            daemon = int(await written(tmp_path / "daemon"))
            await vanished(Path(f"/proc/{daemon}"))
            (tmp_path / "go").touch()
            assert await watcher.exited(1) == {0: Cause(code=9)}

    asyncio.run(main())


# ---------------------------------------------------------------- signals, stop, close


def test_a_signal_reaches_the_whole_group(tmp_path: Path) -> None:
    code = f"""if True:
        import subprocess
        child = subprocess.Popen(["sleep", "3600"])
        open({str(tmp_path / "pid")!r}, "w").write(f"{{child.pid}}\\n")
        try: child.wait(); child.wait()
        except KeyboardInterrupt: raise SystemExit(child.wait())"""

    async def main() -> None:
        async with engine(program(code)) as (local, watcher):
            local.start(request(1))
            child = int(await written(tmp_path / "pid"))
            local.signal([0, 5], signal.SIGINT)
            await gone([child])
            await watcher.exited(1)
            local.signal([0], signal.SIGINT)  # gone: nothing to signal, nothing to complain of

    asyncio.run(main())


def test_interrupting_a_shell_command_of_ipython_ends_it(tmp_path: Path) -> None:
    file = tmp_path / "pid"

    async def main() -> None:
        async with engine() as (local, watcher):
            local.start(request(1))
            endpoints = await watcher.started(1)
            cell = f"!echo $$ > {file}; sleep 3600; echo not reached"
            running = asyncio.create_task(evaluate(endpoints[0], cell, "1 + 1"))
            shell = int(await written(file))
            assert os.getsid(shell) == shell  # IPython gave it a terminal of its own
            local.signal([0], signal.SIGINT)
            assert await running == ["2"]
            assert not is_alive(shell)

    asyncio.run(main())


STUBBORN = """if True:
    import os, signal, subprocess, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen(["sleep", "3600"], start_new_session=True)
    open(os.environ["FILE"], "w").write(f"{child.pid}\\n")
    time.sleep(3600)"""
POLITE = STUBBORN.replace("signal.SIG_IGN", "lambda *_: exit(4)")


@pytest.mark.parametrize(
    ("code", "now", "frozen", "cause"),
    [
        (POLITE, False, False, Cause(code=4)),
        (POLITE, False, True, Cause(code=4)),
        (POLITE, True, False, Cause(signal=signal.SIGKILL)),
        (STUBBORN, False, False, Cause(signal=signal.SIGKILL)),
    ],
    ids=["polite", "frozen", "now", "stubborn"],
)
def test_stop_ends_a_rank_and_its_daemons(
    code: str, now: bool, frozen: bool, cause: Cause, tmp_path: Path, runtime_dir: Path
) -> None:
    async def main() -> None:
        async with engine(program(code)) as (local, watcher):
            local.start(request(1, env={"FILE": str(tmp_path / "pid")}))
            daemon = int(await written(tmp_path / "pid"))
            if frozen:
                local.signal([0], signal.SIGSTOP)
            local.stop([0], now=now)
            assert await watcher.exited(1) == {0: cause}
            await gone([daemon])
            assert not entries(runtime_dir)
            local.start(request(1, generation=2, env={"FILE": str(tmp_path / "pid2")}))
            await written(tmp_path / "pid2")

    asyncio.run(main())


def test_close_leaves_no_process_and_no_directory(tmp_path: Path, runtime_dir: Path) -> None:
    code = """if True:
        import os, subprocess, time
        subprocess.Popen(["setsid", "sh", "-c", "nohup setsid sleep 3601 & sleep 3602"])
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0: os.execvp("sleep", ["sleep", "3603"])
            os._exit(0)
        os.wait()
        open(os.environ["FILE"], "w").write("ready\\n")
        time.sleep(3600)"""

    stranger = subprocess.Popen(["sleep", "3604"])  # ours, but not the engine's

    async def main() -> None:
        async with engine(program(code)) as (local, watcher):
            for rank in (0, 1):
                spec = RankSpec(rank, {"FILE": str(tmp_path / str(rank))})
                local.start(LaunchRequest("program", rank, (spec,)))
            for rank in (0, 1):
                await written(tmp_path / str(rank))
            await asyncio.gather(local.close(), local.close())
            assert {rank: cause.signal for rank, _, cause, _ in watcher.exits} == {0: 9, 1: 9}
            assert children() == [stranger.pid]
            await local.close()
            local.start(request(1, generation=9))
            assert (await watcher.exited(3))[0].missing

    asyncio.run(main())
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()
    assert not entries(runtime_dir)


def test_ranks_die_with_the_kernel_process_and_the_next_engine_sweeps(runtime_dir: Path) -> None:
    kernel = textwrap.dedent(
        f"""
        import asyncio
        from tests.io.ranks import engine, program, request
        async def main():
            async with engine(program({SLEEP!r})) as (local, watcher):
                local.start(request(2))
                print(*[e.pid for e in (await watcher.started(2)).values()], flush=True)
                await asyncio.sleep(3600)
        asyncio.run(main())
        """
    )
    with subprocess.Popen([sys.executable, "-c", kernel], stdout=subprocess.PIPE) as process:
        assert process.stdout
        pids = [int(word) for word in process.stdout.readline().split()]
        assert len(pids) == 2
        assert all(map(is_alive, pids))
        [directory] = entries(runtime_dir)
        process.kill()
    asyncio.run(gone(pids))
    asyncio.run(vanished(directory))
    stale = runtime_dir / f"{rundir.PREFIX}stale"  # as if its supervisor had been killed, too
    stale.mkdir(mode=0o700)

    async def main() -> None:
        async with engine(program(SLEEP)) as (local, watcher):
            assert not entries(runtime_dir)
            local.start(request(1))
            await watcher.started(1)
            async with engine(program(SLEEP)):  # somebody else's sweep spares what is in use
                assert len(entries(runtime_dir)) == 1

    asyncio.run(main())


def entries(directory: Path) -> list[Path]:
    return list(directory.iterdir())


def children() -> list[int]:
    found = []
    for entry in os.listdir("/proc"):
        try:
            fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid():
            found.append(int(entry))
    return found


def fields(kernelspec: object) -> dict[str, object]:
    return {name: getattr(kernelspec, name) for name in type(kernelspec).__dataclass_fields__}  # type: ignore[attr-defined]


# ---------------------------------------------------------------- without processes


def test_only_rank_0_of_an_ipykernel_writes_the_history() -> None:
    ours = ["--HistoryManager.hist_file=:memory:"]
    ipykernel = find("python3")
    assert rank_arguments(ipykernel, 0, ["--x"]) == ["--x"]
    assert rank_arguments(ipykernel, 1, ["--x"]) == ["--x", *ours]
    mine = ["--HistoryManager.hist_file=/h.sqlite"]
    assert rank_arguments(ipykernel, 0, mine) == mine
    assert rank_arguments(ipykernel, 1, mine) == ours
    assert rank_arguments(program(""), 1, ["--x"]) == ["--x"]


def test_the_environment_is_layered() -> None:
    spec = find("python3")
    spec = type(spec)(**{**fields(spec), "env": {"A": "$HOME/a", "B": "spec", "C": "spec"}})
    inherited = {
        "HOME": "/h", "B": "inherited", "PMI_RANK": "3", "SPMD_PROCESSES": "8",
        "SPMD_MAX_PROCESSES": "16", "PYTHONEXECUTABLE": "/x",
    }  # fmt: skip
    assert rank_environ(spec, inherited, RankSpec(1, {"C": "rank"}, frozenset({"PMI_RANK"}))) == {
        "HOME": "/h", "A": "/h/a", "B": "spec", "C": "rank",
        "SPMD_MAX_PROCESSES": "16",
    }  # fmt: skip


def test_a_long_runtime_directory_is_passed_over(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 90)
    long.mkdir()
    directory = rundir.RunDirectory.create({"XDG_RUNTIME_DIR": str(long)})
    try:
        assert not directory.path.startswith(str(long))
        assert len(directory.path) <= rundir.LONGEST
    finally:
        directory.remove()
    directory.remove()
    assert not Path(directory.path).exists()


def test_a_sweep_touches_nothing_but_stale_directories_of_ours(runtime_dir: Path) -> None:
    environ = {"XDG_RUNTIME_DIR": str(runtime_dir)}
    used = rundir.RunDirectory.create(environ)
    stale = runtime_dir / f"{rundir.PREFIX}stale"
    stale.mkdir(mode=0o700)
    (stale / "r0.json").touch()
    for name in ("other", f"{rundir.PREFIX}open"):
        (runtime_dir / name).mkdir()
        (runtime_dir / name).chmod(0o755)
    (runtime_dir / f"{rundir.PREFIX}link").symlink_to(runtime_dir / "other")
    rundir.sweep(environ)
    left = {path.name for path in runtime_dir.iterdir()}
    assert left == {
        Path(used.path).name, "other", f"{rundir.PREFIX}open", f"{rundir.PREFIX}link",
    }  # fmt: skip
    used.remove()


def test_usage_errors_carry_their_hint() -> None:
    with pytest.raises(UsageError) as caught:
        find("no-such-kernel")
    assert "python3" in caught.value.hint
