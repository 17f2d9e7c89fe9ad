"""GPU memory of processes, from the NVIDIA driver's own library (NVML), by ctypes.

Asked on a thread of its own and with a deadline: a driver that hangs must not hang the kernel.
Nothing here is touched on a machine without a driver.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import threading
from collections.abc import Callable, Iterator, Mapping

LIBRARY = "libnvidia-ml.so.1"
SECONDS = 2.0  # the first question initialises the driver, which can take one
TOO_SMALL = 7  # NVML_ERROR_INSUFFICIENT_SIZE
UNKNOWN = 2**64 - 1  # NVML_VALUE_NOT_AVAILABLE

Used = Mapping[int, int]  # bytes by pid, all devices together


class _Process(ctypes.Structure):
    """``nvmlProcessInfo_t`` since driver 450."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class GpuMemory:
    def __init__(self, loop: asyncio.AbstractEventLoop, read: Callable[[], Used] | None = None):
        self._loop = loop
        self._read = read or read_used
        self._looking = False

    def ask(self, answer: Callable[[Used], None]) -> None:
        """``answer`` is called on the loop, once; with nothing if the driver does not tell in time."""
        if self._looking:  # it hangs since an earlier question
            answer({})
            return
        waiting = [answer]

        def answered(used: Used) -> None:
            if waiting:
                waiting.pop()(used)

        def told(used: Used) -> None:
            self._looking = False
            deadline.cancel()
            answered(used)

        self._looking = True
        deadline = self._loop.call_later(SECONDS, answered, {})
        threading.Thread(target=self._look, args=(told,), daemon=True).start()

    def _look(self, told: Callable[[Used], None]) -> None:
        try:
            used = self._read()
        except (OSError, AttributeError, RuntimeError):  # no library, an old one, no permission
            used = {}
        with contextlib.suppress(RuntimeError):  # the kernel has ended
            self._loop.call_soon_threadsafe(told, used)


def read_used(library: str = LIBRARY) -> Used:
    """Raises `OSError`, `AttributeError` or `RuntimeError` where there is no driver of this kind."""
    nvml = ctypes.CDLL(library)
    _check(nvml.nvmlInit_v2())
    try:
        used: dict[int, int] = {}
        for device in _devices(nvml):
            for process in _processes(nvml, device):
                if process.used != UNKNOWN:
                    used[process.pid] = used.get(process.pid, 0) + process.used
        return used
    finally:
        nvml.nvmlShutdown()


def _devices(nvml: ctypes.CDLL) -> Iterator[ctypes.c_void_p]:
    count = ctypes.c_uint()
    _check(nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)))
    for index in range(count.value):
        device = ctypes.c_void_p()
        if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) == 0:
            yield device


def _processes(nvml: ctypes.CDLL, device: ctypes.c_void_p) -> list[_Process]:
    """Of one device; none if it does not tell."""
    try:
        ask = nvml.nvmlDeviceGetComputeRunningProcesses_v3
    except AttributeError:
        ask = nvml.nvmlDeviceGetComputeRunningProcesses_v2
    size = 64
    while size < 2**16:
        count, found = ctypes.c_uint(size), (_Process * size)()
        status = ask(device, ctypes.byref(count), found)
        if status != TOO_SMALL:
            return list(found[: count.value]) if status == 0 else []
        size *= 4
    return []


def _check(status: int) -> None:
    if status != 0:
        raise RuntimeError(f"NVML status {status}")
