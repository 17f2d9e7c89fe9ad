"""GPU memory, from a stand-in for NVIDIA's library: there is no driver where the tests run."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from spmd_kernel.io import nvml
from spmd_kernel.io.nvml import GpuMemory, read_used

SOURCE = r"""
typedef struct { unsigned int pid; unsigned long long used; unsigned int gi, ci; } info;
static int open_;
int nvmlInit_v2(void) { open_++; return INIT; }
int nvmlShutdown(void) { open_--; return 0; }
int nvmlDeviceGetCount_v2(unsigned int *count) { *count = 3; return open_ ? 0 : 1; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **device) {
    *device = (void *)(unsigned long)(index + 1);
    return index == 2 ? 15 : 0;  /* the third one is lost */
}
int PROCESSES(void *device, unsigned int *count, info *found) {
    unsigned int have = device == (void *)1 ? 100 : 2, i;
    if (*count < have) { *count = have; return 7; }
    for (i = 0; i < have; i++) {
        found[i].pid = 1000 + i; found[i].used = ((unsigned long long)i + 1) << 32;
        found[i].gi = found[i].ci = 0xffffffff;
    }
    if (have == 2) found[1].used = ~0ULL;
    *count = have;
    return 0;
}
"""


def stand_in(folder: Path, version: str = "v3", init: int = 0) -> str:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    name = f"nvmlDeviceGetComputeRunningProcesses_{version}"
    library = folder / "libnvidia-ml.so"
    command = [compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
    command += [f"-DPROCESSES={name}", f"-DINIT={init}"]
    subprocess.run(command, input=SOURCE.encode(), check=True, timeout=60)
    return str(library)


@pytest.mark.parametrize("version", ["v3", "v2"])
def test_all_devices_together(version: str, tmp_path: Path) -> None:
    used = read_used(stand_in(tmp_path, version))
    assert len(used) == 100
    assert used[1000] == 2 << 32  # on two devices
    assert used[1001] == 2 << 32  # the other device does not tell
    assert used[1099] == 100 << 32


def test_a_driver_that_does_not_work(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="999"):
        read_used(stand_in(tmp_path, init=999))
    with pytest.raises(OSError, match="nothing"):
        read_used(str(tmp_path / "nothing.so"))


def asked(loop: asyncio.AbstractEventLoop, memory: GpuMemory) -> asyncio.Future[Mapping[int, int]]:
    answer: asyncio.Future[Mapping[int, int]] = loop.create_future()
    memory.ask(answer.set_result)
    return answer


def test_it_answers_on_the_loop() -> None:
    async def main() -> None:
        loop, here = asyncio.get_running_loop(), threading.get_ident()
        memory = GpuMemory(loop, lambda: {7: int(threading.get_ident() != here)})
        assert await asked(loop, memory) == {7: 1}
        assert await asked(loop, memory) == {7: 1}

    asyncio.run(main())


def test_no_library_no_answer() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert await asked(loop, GpuMemory(loop, lambda: read_used("no-such-library.so"))) == {}

    asyncio.run(main())


def test_a_driver_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "SECONDS", 0.01)
    driver = threading.Event()

    def read() -> Mapping[int, int]:
        driver.wait(60)
        return {1: 1}

    async def main() -> None:
        loop = asyncio.get_running_loop()
        memory = GpuMemory(loop, read)
        assert await asked(loop, memory) == {}
        assert await asked(loop, memory) == {}  # at once: the thread is still busy
        driver.set()
        for _ in range(10_000):
            if used := await asked(loop, memory):
                break
            await asyncio.sleep(0.01)
        assert used == {1: 1}

    asyncio.run(main())
