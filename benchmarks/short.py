"""The short benchmark: N ranks under this kernel against N bare kernels that one client drives itself.

The second is the *floor*: what a kernel in front of N kernels would cost if it cost nothing.  Both
run the same cells in turn (A B B A), so that a busy machine bends both; ratios are of medians.
CPU seconds are of the kernel process alone, which the floor does not have.

    python benchmarks/short.py [--n 1,8] [--repeats 6]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path

import zmq.asyncio
from jupyter_client import AsyncKernelClient, AsyncKernelManager

TICK = os.sysconf("SC_CLK_TCK")
IMAGES = "for _ in range(5): display({'image/png': png}, raw=True)"
LINES = "for i in range({n}): print(f'{{RANK}} {{i:06d}}', 'x' * 69)"
SETUP = "import os, base64; RANK = int(os.environ['RANK']); png = base64.b64encode(os.urandom(750_000)).decode()"
WORKLOADS = {
    "pass": "pass",
    "print": "print(RANK)",
    "20,000 lines": LINES.format(n=20_000),
    "5 images of 1 MB": IMAGES,
}


@dataclass
class Pipe:
    """One kernel and its client; its IOPub is read raw, as counting is all that is wanted."""

    manager: AsyncKernelManager
    client: AsyncKernelClient
    received: int = 0

    @classmethod
    async def open(cls, name: str, env: dict[str, str]) -> Pipe:
        manager = AsyncKernelManager(kernel_name=name)
        await manager.start_kernel(env={**os.environ, **env})
        client = manager.client()
        client.start_channels()
        client.iopub_channel.socket.setsockopt(zmq.RCVHWM, 0)
        await client.wait_for_ready(timeout=120)
        return cls(manager, client)

    async def run(self, code: str) -> None:
        msg_id = self.client.execute(code, allow_stdin=False)
        reply = asyncio.ensure_future(self.client.get_shell_msg(timeout=120))
        socket, idle = self.client.iopub_channel.socket, False
        while not idle:
            frames = await socket.recv_multipart()
            self.received += sum(map(len, frames))
            idle = b'"idle"' in frames[-1] and msg_id.encode() in frames[-3]
        if (await reply)["content"]["status"] != "ok":
            raise RuntimeError(f"{code!r} failed")

    async def close(self) -> None:
        self.client.stop_channels()
        await self.manager.shutdown_kernel(now=True)


@dataclass
class Contender:
    pipes: list[Pipe]
    seconds: dict[str, list[float]] = field(default_factory=dict)
    cpu: dict[str, list[float]] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)

    async def run(self, code: str) -> None:
        await asyncio.gather(*(pipe.run(code) for pipe in self.pipes))

    async def measure(self, name: str, code: str, times: int) -> None:
        before, bytes_before, begin = self.cpu_now(), self.received, time.perf_counter()
        for _ in range(times):
            await self.run(code)
        self.seconds.setdefault(name, []).append((time.perf_counter() - begin) / times)
        self.cpu.setdefault(name, []).append((self.cpu_now() - before) / times)
        self.sent[name] = (self.received - bytes_before) // times

    @property
    def received(self) -> int:
        return sum(pipe.received for pipe in self.pipes)

    def cpu_now(self) -> float:
        """Seconds of CPU of the kernel process, its ranks not included."""
        if len(self.pipes) != 1:
            return 0.0
        pid = self.pipes[0].manager.provisioner.pid
        user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / TICK


async def compare(n: int, repeats: int) -> list[str]:
    floor = Contender([await Pipe.open("python3", {"RANK": str(r)}) for r in range(n)])
    spmd = Contender([await Pipe.open("spmd-python3", {"SPMD_PROCESSES": str(n)})])
    try:
        for contender in (floor, spmd):
            await contender.run(SETUP)
            await contender.run("from IPython.display import display")
        for name, code in WORKLOADS.items():
            times = 40 if name in ("pass", "print") else 1
            for turn in range(repeats):
                order = (floor, spmd) if turn % 2 else (spmd, floor)
                for contender in order:
                    await contender.measure(name, code, times)
    finally:
        await asyncio.gather(*(pipe.close() for pipe in (*floor.pipes, *spmd.pipes)))
    return [row(n, name, floor, spmd) for name in WORKLOADS]


def row(n: int, name: str, floor: Contender, spmd: Contender) -> str:
    mine, theirs = (statistics.median(c.seconds[name]) for c in (spmd, floor))
    cpu = statistics.median(spmd.cpu[name])
    amount = spmd.sent[name] / max(1, floor.sent[name])
    return (
        f"| {n} | {name} | {mine * 1e3:.1f} | {theirs * 1e3:.1f} | {mine / theirs:.2f}"
        f" | {cpu * 1e3:.1f} | {amount:.2f} |"
    )


HEAD = """\
| N | cell | wall, ms | floor, ms | ratio | kernel process CPU, ms | bytes / floor |
|---|---|---|---|---|---|---|"""


async def main(sizes: list[int], repeats: int) -> None:
    print(HEAD)
    for n in sizes:
        for line in await compare(n, repeats):
            print(line, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", default="1,8", help="world sizes, with commas")
    parser.add_argument("--repeats", type=int, default=6)
    arguments = parser.parse_args()
    asyncio.run(main([int(n) for n in arguments.n.split(",")], arguments.repeats))
