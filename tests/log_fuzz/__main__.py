"""Compares readers of our logs after random acts by the queue and by others: `python -m tests.log_fuzz`.

A sequence calls verbs of the queue and operations of other programs in a random order: appends, deletes,
compactions, checkpoints, VACUUM, the removal of old commits and, with `--spark`, those of a Spark
session. After every few of them it compares the rows that we read with those that deltalake, polars, Arrow's
dataset, DuckDB and Spark read.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from pathlib import Path

from tests.log_fuzz.sequence import Outcome, run


def main() -> int:
    """Run some sequences, and say what came of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sequences", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1, help="of the first one; each has the next")
    parser.add_argument("--steps", type=int, default=30, help="acts of a sequence")
    parser.add_argument("--every", type=int, default=3, help="compare after so many acts")
    parser.add_argument("--spark", action=argparse.BooleanOptionalAction, default=False)
    given = parser.parse_args()
    logging.getLogger("tubeq_spark").addHandler(logging.NullHandler())
    logging.getLogger("tubeq_spark").propagate = False
    spark = None
    if given.spark:
        from tubeq_spark import local_session  # noqa: PLC0415

        spark = local_session("log-fuzz", **{"spark.master": "local[1]"})
    total, bad, began = Outcome(), 0, time.monotonic()
    for seed in range(given.seed, given.seed + given.sequences):
        with tempfile.TemporaryDirectory(prefix="tubeq-fuzz-") as directory:
            outcome = run(Path(directory), seed, given.steps, given.every, spark)
        for text in outcome.findings[:3]:
            print("FOUND:", ascii(text)[:3000], flush=True)
        bad += bool(outcome.findings)
        total.add(outcome)
    print("acts:", dict(sorted(total.acts.items())))
    print(
        f"{given.sequences} sequences, {total.acts.total()} acts, {total.compared} comparisons of a table, "
        f"{time.monotonic() - began:.0f} s; {bad} sequences with differences"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
