"""Cuts the power of a queue's disk while processes work on it; this needs root: `python -m tests.power`.

Each cut is another file system: tasks are put and written down, processes call verbs at random, natively
and, if asked for, on Spark; then its power is cut, it is mounted again, and the journals of the processes,
which are elsewhere, prove what is lost.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.power.cut import SHORT_LOG, PowerCut
from tests.power.disk import Disk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def main() -> int:
    """Cut the power some times, and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cuts", type=int, default=20)
    parser.add_argument("--durability", choices=("commit", "table", "none"), default="commit")
    parser.add_argument(
        "--seconds", type=float, default=6.0, help="from the first verbs to the cut, at most"
    )
    parser.add_argument(
        "--seed", type=int, default=7, help="of the first cut; each has the next one"
    )
    parser.add_argument("--workers", type=int, default=3, help="native processes")
    parser.add_argument(
        "--short-logs",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="shorten logs after some ten versions; each second cut by default",
    )
    parser.add_argument("--spark", action=argparse.BooleanOptionalAction, default=False)
    given = parser.parse_args()
    # The journals tell what matters.
    logging.getLogger("tubeq_spark").propagate = False
    logging.getLogger("tubeq_spark").addHandler(logging.NullHandler())
    spark = _session() if given.spark else None
    bad = 0
    for number in range(given.cuts):
        seed = given.seed + number
        shorten = number % 2 == 0 if given.short_logs is None else given.short_logs
        with tempfile.TemporaryDirectory(prefix="tubeq-power-") as directory:
            place = Path(directory)
            with Disk(place) as disk:
                power = PowerCut(
                    place,
                    disk,
                    seed=seed,
                    durability=given.durability,
                    workers=given.workers,
                    log=SHORT_LOG if shorten else None,
                    spark=spark,
                )
                cut = power.run(given.seconds)
        print(f"cut {number + 1}, seed {seed}, {given.durability}: {cut}", flush=True)
        for text in cut.findings[:20]:
            print("  FOUND:", text[:500], flush=True)
        bad += bool(cut.findings)
    print(f"{bad} of {given.cuts} cuts with findings")
    return 1 if bad else 0


def _session() -> SparkSession:
    from tubeq_spark import local_session  # noqa: PLC0415

    return local_session("power", **{"spark.master": "local[1]", "spark.ui.enabled": "false"})


if __name__ == "__main__":
    sys.exit(main())
