"""Lets two driver programs share a new queue on a platform, and kills one of them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.platforms.driver import MARK
from tests.programs import environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

#: Tasks of each program: by put_df, and by single puts while it consumes.
ROWS, PUTS = 60, 2
#: Batches that a program has acked before it is killed, with the next one in its hands.
ACKED = 1


@dataclass
class Driver:
    """A running driver program.

    Attributes:
        process: Its Python.
        put: The tasks of which it told that it has put them.
        acked: The tasks of which it told that it has acked them.
        taken: The tasks of the batch of which it has told no ack.
    """

    process: subprocess.Popen[str]
    put: list[str] = field(default_factory=list)
    acked: list[str] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)

    def words(self) -> Iterator[tuple[str, list[Any]]]:
        """What it tells, until it ends; a line that it did not come to the end of is none."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not line.startswith(MARK) or not line.endswith("\n"):
                continue
            word, *values = json.loads(line.removeprefix(MARK))
            if word == "put":
                self.put += values
            elif word == "taken":
                self.taken = values
            elif word == "acked":
                self.acked += self.taken
                self.taken = []
            yield word, values

    def ask(self, step: str, *arguments: object) -> None:
        """Let it take a step."""
        assert self.process.stdin is not None
        print(json.dumps([step, *arguments]), file=self.process.stdin, flush=True)

    def answer(self) -> Any:
        """The result of the step that it takes."""
        for word, values in self.words():
            if word == "done":
                return values[0]
        raise AssertionError("a driver program failed: see its stderr")

    def do(self, step: str, *arguments: object) -> Any:
        """Let it take a step, and wait for that."""
        self.ask(step, *arguments)
        return self.answer()

    def kill_while_it_acks(self) -> None:
        """Kill its Python when it has acked some batches and begins to ack another; its JVM may still do that."""
        takes = (word for word, _ in self.words() if word == "taken")
        for _ in range(ACKED + 1):
            next(takes)
        self.process.kill()
        for _ in takes:
            pass


def together(drivers: list[Driver], step: str, *arguments: object) -> list[Any]:
    """Let all take a step at once."""
    for driver in drivers:
        driver.ask(step, *arguments)
    return [driver.answer() for driver in drivers]


def try_with(programs: int, location: str, settings: Mapping[str, str], folder: Path) -> None:
    """Put, take, ack and sweep by driver programs at once, kill the last one if there are two, and count.

    Args:
        programs: How many driver programs.
        location: Of a queue that does not exist.
        settings: Of the programs' sessions; `remote` alone for a Spark Connect server.
        folder: The working directory of the programs.
    """
    with ExitStack() as stack:

        def start() -> Driver:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.platforms.driver", location, json.dumps(settings)],
                cwd=folder,
                env=environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return Driver(process)

        drivers = [start() for _ in range(programs)]
        for driver in drivers:
            driver.answer()
        first, last = drivers[0], drivers[-1]
        together(drivers, "open")
        _share_utubes(first, last)
        rows = ROWS * programs
        put = [f"task {number}" for number in range(PUTS)] + [f"row {n}" for n in range(rows)]
        last.do("put", *put[:PUTS])
        # A put of a key that is there adds nothing.
        assert sum(together(drivers, "put_df", rows)) == rows
        first.do("put_ended")
        swept = together(drivers, "sweep")
        assert [sum(numbers) for numbers in zip(*(s[:2] for s in swept), strict=True)] == [1, 0]

        for number, driver in enumerate(drivers):
            driver.ask("consume", f"driver {number}", PUTS)
        if programs > 1:
            last.kill_while_it_acks()
        first.answer()
        survived = len(first.acked)
        (expired, released, error), total = first.do("finish")

        assert (expired, error, total) == (0, None, 0)
        assert released == len(first.acked) - survived
        acked = Counter(task for driver in drivers for task in driver.acked)
        put += [task for driver in drivers for task in driver.put]
        assert set(acked.values()) == {1}
        # The killed one may have acked a batch, or put a task, without telling.
        assert set(put) - set(acked) in [set(), set(last.taken)]
        assert set(acked) - set(put) <= {f"driver 1 {len(last.put)}"}
        assert all(driver.acked for driver in drivers)


def _share_utubes(first: Driver, last: Driver) -> None:
    """Take tasks of two sub-queues, each of them held by one program at a time."""
    first.do("put_hosts", "a1", "a2", "b1")
    assert [first.do("take_host"), last.do("take_host"), first.do("take_host")] == [
        "a1",
        "b1",
        None,
    ]
    first.do("ack_host", "a1")
    assert last.do("take_host") == "a2"
    for host in ("a2", "b1"):
        last.do("ack_host", host)
