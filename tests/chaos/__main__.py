"""Kills processes that share a queue at random, and proves that nothing is lost: `python -m tests.chaos`.

Native processes call verbs at random, for tasks (`worker.py`) and for Arrow tables (`batches.py`), some
work tubes off by `Tube.work` (`looper.py`), and, if asked for, a Spark job moves batches (`spark_job.py`), all on one location with tubes of several
types (`plan.py`), on local files or on an emulated S3. They are killed by SIGKILL at random moments and started anew, or stopped by SIGSTOP,
at times until their leases are over. Each writes into a journal of its own what it is about to do, and
what came of it. At the end all are gone and their leases over; the tubes are drained, and the journals
prove what `checker.py` says.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.chaos.plan import STORE_URL
from tests.chaos.run import Chaos
from tests.concurrency.s3_store import served

if TYPE_CHECKING:
    from tests.chaos.outcome import Outcome


def main() -> int:
    """Run a chaos and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=300.0, help="how long it goes on")
    parser.add_argument("--seed", type=int, default=7, help="what its decisions hang on")
    parser.add_argument("--workers", type=int, default=8, help="native processes")
    parser.add_argument("--every", type=float, default=1.2, help="seconds between kills and pauses")
    parser.add_argument("--spark", action=argparse.BooleanOptionalAction, default=False)
    parser.add_argument("--store", action="store_true", help="on an emulated S3, not local files")
    parser.add_argument("--keep", type=Path, help="a new directory for the queue and the journals")
    given = parser.parse_args()
    if given.store and STORE_URL not in os.environ:
        with served() as store:
            # All its processes find the store by their environment.
            found = os.environ | {STORE_URL: store.url}
            return subprocess.call([sys.executable, "-m", "tests.chaos", *sys.argv[1:]], env=found)
    with tempfile.TemporaryDirectory(prefix="tubeq-chaos-") as directory:
        place = given.keep or Path(directory)
        chaos = Chaos(place, given.seed, given.workers, spark=given.spark)
        outcome = chaos.run(given.seconds, given.every)
    _tell(outcome)
    return 1 if outcome.findings else 0


def _tell(outcome: Outcome) -> None:
    print(f"{outcome.kills} kills, {sum(outcome.ops.values())} verbs")
    print("pauses, as to a session's lease:", dict(outcome.pauses))
    print("verbs:", dict(sorted(outcome.ops.items())))
    print("killed in:", dict(outcome.killed_in))
    print("compactions:", outcome.compactions)
    print("tasks (all, left at the end):", outcome.tasks)
    print("left:", dict(outcome.left))
    for text, count in outcome.warnings.most_common(20):
        print(f"warned {count} times: {text}")
    for text in outcome.findings[:50]:
        print("FOUND:", text)
    print(f"{len(outcome.findings)} findings")


if __name__ == "__main__":
    sys.exit(main())
