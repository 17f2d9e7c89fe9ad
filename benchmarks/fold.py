"""What folding costs: microseconds of the core for each line that a rank printed.

Scripted ranks print through the whole hub, which has no IO: every 50 ms of its own time each of them
sends a message.  The cost of a line must not grow with how many there are, and little with how many
ranks print; no single event may take long, for nothing else is served meanwhile.

    python -m benchmarks.fold [--n 8,64] [--lines 20000,200000] [--repeats 3]
"""

from __future__ import annotations

import argparse
import gc
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from spmd_kernel.core.model import Event, ToFront
from tests.world import World

FLUSH = 0.05  # s between messages of one rank, as `rank/setup.py` sets it
Line = Callable[[int, int], str]  # of a rank, by its number

LINES: dict[str, Line] = {
    "different": lambda rank, number: f"{rank:02d} {number:06d} {'x' * 69}\n",
    "equal": lambda rank, number: f"{number:06d} {'x' * 72}\n",
    "every tenth equal": lambda rank, number: f"{rank if number % 10 else 0} {number:06d} {'x' * 70}\n",
    "blocks of four": lambda rank, number: ("\x1f" if number % 4 else "") + f"{rank} {number:06d} {'x' * 70}\n",
    "coloured": lambda rank, number: f"\x1b[3{number % 8}m{rank} {number:06d}\x1b[0m {'x' * 60}\n",
}  # fmt: skip


@dataclass
class Cost:
    line: float  # microseconds of CPU
    longest: float  # milliseconds of the event that took longest


class Timed(World):
    """Costs the core alone: what a world keeps for its tests is dropped, so that no collector looks at it."""

    spent = longest = 0.0

    def feed(self, event: Event) -> None:
        begin = time.process_time()
        effects = self.hub.handle(event)
        seconds = time.process_time() - begin
        self.spent += seconds
        self.longest = max(self.longest, seconds)
        for effect in effects:
            if not (isinstance(effect, ToFront) and effect.msg_type == "stream"):
                self._perform(effect)


def cost(size: int, printing: int, each: int, batch: int, line: Line) -> Cost:
    """``printing`` of ``size`` ranks print ``each`` lines, ``batch`` in one message."""
    world = Timed(size)
    world.settle()
    world.execute("cell")
    texts = [["".join(lines) for lines in batches(rank, each, batch, line)] for rank in range(printing)]  # fmt: skip
    gc.collect()
    gc.freeze()
    world.spent = world.longest = 0.0
    for turn in itertools.zip_longest(*texts):
        pass_time(world, FLUSH)
        for rank, text in enumerate(turn):
            fake = world.ranks[rank]
            world.say(fake, "iopub", "stream", {"name": "stdout", "text": text}, fake.inbox[0])
    world.settle()
    return Cost(world.spent / (printing * each) * 1e6, world.longest * 1e3)


def batches(rank: int, each: int, batch: int, line: Line) -> Iterator[list[str]]:
    for begin in range(0, each, batch):
        yield [line(rank, number) for number in range(begin, min(each, begin + batch))]


def pass_time(world: World, seconds: float) -> None:
    """Timers fire when they are due."""
    until = world.at + seconds
    while world.timers and min(world.timers.values()) <= until:
        world.fire(min(world.timers, key=lambda key: world.timers[key]))
    world.at = max(world.at, until)


HEAD = """\
| ranks | that print | lines | in all | in a message | µs a line | longest event, ms |
|---|---|---|---|---|---|---|"""


def main(sizes: list[int], totals: list[int], repeats: int) -> None:
    print(HEAD)
    for name, line in LINES.items():
        for size, printing in [(sizes[0], 1), *((size, size) for size in sizes)]:
            for batch, total in itertools.product((1, 20, 1000), totals):
                each = total // printing
                if batch > each:
                    continue
                costs = [cost(size, printing, each, batch, line) for _ in range(repeats)]
                best = min(costs, key=lambda found: found.line)
                longest = min(found.longest for found in costs)
                print(
                    f"| {size} | {printing} | {name} | {total} | {batch}"
                    f" | {best.line:.2f} | {longest:.1f} |",
                    flush=True,
                )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", default="8,64", help="world sizes, with commas")
    parser.add_argument("--lines", default="20000,200000", help="lines of all ranks, with commas")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    numbers = [[int(n) for n in text.split(",")] for text in (arguments.n, arguments.lines)]
    main(*numbers, arguments.repeats)
