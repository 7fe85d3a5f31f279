"""Proves that each of 200,000 rows has one result after kills of drivers: `python -m tests.chaos.results`.

Two driver programs put the rows by `put_df`, with keys, and process them into a Delta table, as a
handler should: by a MERGE that only inserts. They are killed at random moments and started anew; in half of
the cases their JVM goes on for a while. The queue is at a local path, where commits are native, or in
a schema of a Hive catalog (`--catalog`), where they are Spark's. The results are counted without Spark.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from deltalake import DeltaTable

from tests.platforms.conftest import HIVE, SERVERS, SMALL
from tests.programs import ROOT, environment, served

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMA = "spark_catalog.results_once"
DRIVERS, PATIENCE = 2, 3_600.0
#: After how many steps of a driver it is killed, and how many seconds after the last one.
STEPS, LATER = (2, 14), 4.0


class Driver:
    """A place for driver programs, each started when the one before was killed."""

    def __init__(self, arguments: list[str], errors: Path) -> None:
        self._arguments, self._errors = arguments, errors
        self.steps: Counter[str] = Counter()
        self.processes: list[subprocess.Popen[str]] = []
        self.start()

    def start(self) -> None:
        """Start the next one."""
        with self._errors.open("a") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.results_driver", *self._arguments],
                cwd=ROOT,
                env=environment(),
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        self.processes.append(process)
        self.here, self.last = 0, "start"
        threading.Thread(target=self._read, args=(process,), daemon=True).start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if process is self.processes[-1]:
                self.here, self.last = self.here + 1, line.strip()
            self.steps[line.strip()] += 1

    @property
    def has_ended(self) -> bool:
        """Whether the last one has ended by itself."""
        return self.processes[-1].poll() is not None

    def kill(self, *, whole: bool) -> None:
        """Kill its Python; `whole`: and its JVM."""
        process = self.processes[-1]
        if whole:
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.wait()

    def end(self) -> None:
        """End everything that it has started."""
        for process in self.processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def run(folder: Path, rows: int, kills: int, seed: int, *, catalog: bool) -> list[str]:
    """Let drivers work and kill them; returns what is wrong with the results."""
    if not catalog:
        return _run(folder, str(folder / "queue"), rows, kills, seed, SMALL)
    (folder / "metastore").mkdir()
    with served(SERVERS, folder / "metastore", "metastore", "") as uri:
        settings = HIVE | {
            "spark.hadoop.hive.metastore.uris": uri,
            "spark.sql.warehouse.dir": f"{folder}/warehouse",
        }
        return _run(folder, SCHEMA, rows, kills, seed, settings)


def _run(
    folder: Path, location: str, rows: int, kills: int, seed: int, settings: Mapping[str, str]
) -> list[str]:
    chance, results = random.Random(seed), folder / "results"
    arguments = [location, str(results), str(rows), json.dumps(settings)]
    until, killed_in, wrong = time.monotonic() + PATIENCE, Counter[str](), []
    drivers = [Driver(arguments, folder / f"errors{number}") for number in range(DRIVERS)]
    try:
        while killed_in.total() < kills and not any(d.has_ended for d in drivers):
            place, steps = chance.choice(drivers), chance.randint(*STEPS)
            while place.here < steps and not place.has_ended and time.monotonic() < until:
                time.sleep(0.05)
            time.sleep(chance.uniform(0, LATER))
            if place.has_ended:
                break
            killed_in[place.last] += 1
            place.kill(whole=chance.random() < 0.5)
            place.start()
        while not all(driver.has_ended for driver in drivers) and time.monotonic() < until:
            time.sleep(0.2)
        wrong += [
            f"a driver ended after {d.last!r}: {d._errors.read_text()[-2_000:]}"
            for d in drivers
            if d.last != "done"
        ]
        if killed_in.total() < kills:
            wrong.append(f"only {killed_in.total()} drivers were killed")
    finally:
        for driver in drivers:
            driver.end()
    print("killed after:", dict(killed_in))
    print("steps:", dict(sum((driver.steps for driver in drivers), Counter())))
    return wrong + _look(results, rows)


def _look(results: Path, rows: int) -> list[str]:
    """What is wrong with the table of results."""
    table = DeltaTable(results).to_pyarrow_table()
    ids, numbers = (table[name].to_pylist() for name in ("task_id", "number"))
    print(f"results: {len(ids):,} of {len({*ids}):,} tasks, {len({*numbers}):,} rows of {rows:,}")
    again = [number for number, count in Counter(numbers).items() if count > 1]
    missing = sorted({*range(rows)} - {*numbers})
    return [
        f"{what}: {len(found):,}, such as {found[:5]}"
        for what, found in (("LOST", missing), ("DOUBLE", again))
        if found
    ]


def main() -> int:
    """Run it once, and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--kills", type=int, default=8)
    parser.add_argument("--seed", type=int, default=7, help="what the kills hang on")
    parser.add_argument("--catalog", action="store_true", help="in a Hive catalog, not at a path")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tubeq-results-") as folder:
        found = run(Path(folder), given.rows, given.kills, given.seed, catalog=given.catalog)
    for text in found:
        print("FOUND:", text)
    print(f"{len(found)} findings")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
