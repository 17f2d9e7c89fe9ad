"""What the debugger of N ranks costs: memory while it is on, seconds to enable it, seconds for a step.

Memory is the growth of the PSS of the kernel process and of everything below it, per rank; a step is of
all ranks together, from the request to the `stopped` event of the rank that is looked at.

    python -m benchmarks.debugger [--n 2,8] [--repeats 3] [--steps 10]
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from pathlib import Path
from typing import Any

from jupyter_client import BlockingKernelClient, KernelManager

from tests.kernel.client import descendants

SECONDS = 120
CODE = "def f(a):\n" + "".join(f"    a += {i}\n" for i in range(40)) + "    return a\nx = f(1)\n"


class Client:
    def __init__(self, n: int):
        self.manager = KernelManager(kernel_name="spmd-python3")
        self.manager.start_kernel(env={**os.environ, "SPMD_PROCESSES": str(n)})
        self.client: BlockingKernelClient = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=SECONDS)
        self.run("pass")

    def run(self, code: str) -> None:
        self.client.execute_interactive(code, timeout=SECONDS, output_hook=lambda _: None)

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        content = {"type": "request", "seq": 1, "command": command, "arguments": arguments}
        message = self.client.session.msg("debug_request", content)
        self.client.control_channel.send(message)
        reply: dict[str, Any] = self.client.get_control_msg(timeout=SECONDS)["content"]
        if not reply["success"]:
            raise RuntimeError(f"{command}: {reply['message']}")
        return dict(reply.get("body") or {})

    def until(self, event: str) -> None:
        while True:
            content = self.client.get_iopub_msg(timeout=SECONDS)["content"]
            if content.get("event") == event:
                return

    def all_stopped(self, n: int) -> None:
        while True:
            told = self.ask("debugInfo")
            ranks = told["spmd"]["ranks"] if n > 1 else []
            if all(rank["state"] == "stopped" for rank in ranks) and told["stoppedThreads"]:
                return

    def pss(self) -> dict[str, int]:
        """kB by kind of process: those of debugpy, and all others."""
        found = {"adapters": 0, "others": 0}
        kernel = self.manager.provisioner.pid
        for pid in (kernel, *descendants(kernel)):
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
                rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            except OSError:
                continue
            pss = next(line for line in rollup.splitlines() if line.startswith("Pss:"))
            found["adapters" if b"debugpy" in command else "others"] += int(pss.split()[1])
        return found

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=False)
        self.manager.cleanup_resources()


def measure(n: int, steps: int) -> dict[str, float]:
    client = Client(n)
    try:
        before = client.pss()
        begin = time.perf_counter()
        client.ask("initialize", clientID="benchmark", adapterID="", pathFormat="path")
        client.ask("attach")
        enabled = time.perf_counter() - begin
        path = client.ask("dumpCell", code=CODE)["sourcePath"]
        points = [{"line": 2}]
        client.ask("setBreakpoints", source={"path": path}, breakpoints=points)
        client.client.execute(CODE)
        client.until("stopped")
        client.all_stopped(n)
        after = client.pss()
        taken = []
        for _ in range(steps):
            begin = time.perf_counter()
            client.ask("next", threadId=1)
            client.until("stopped")
            taken.append(time.perf_counter() - begin)
            client.all_stopped(n)
        client.ask("continue", threadId=1)
        client.ask("disconnect")
    finally:
        client.close()
    grown = {kind: (after[kind] - before[kind]) / 1024 / n for kind in after}
    return {
        "memory": sum(grown.values()),
        "adapters": grown["adapters"],
        "enable": enabled,
        "step": statistics.median(taken),
        "slowest": max(taken),
    }


HEAD = """\
| N | MB per rank | of it adapters | enable, s | step, s | slowest step, s |
|---|---|---|---|---|---|"""


def main(sizes: list[int], repeats: int, steps: int) -> None:
    print(HEAD)
    for n in sizes:
        runs = [measure(n, steps) for _ in range(repeats)]
        row = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        print(
            f"| {n} | {row['memory']:.1f} | {row['adapters']:.1f} | {row['enable']:.2f}"
            f" | {row['step']:.3f} | {row['slowest']:.3f} |",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", default="2,8", help="world sizes, with commas")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    arguments = parser.parse_args()
    main([int(n) for n in arguments.n.split(",")], arguments.repeats, arguments.steps)
