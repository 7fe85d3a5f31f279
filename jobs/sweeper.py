"""The sweeper: writes down what time has changed in all tubes of a queue, and tidies up.

    python jobs/sweeper.py --location /data/q                # until it is stopped
    python jobs/sweeper.py --location /data/q --once         # one pass, for schedulers
    spark-submit --packages ... jobs/sweeper.py --location main.tubeq

No verb waits for it: they all judge by the clock. It readies, expires and releases what nobody has
looked at, so that counts and change feeds show it, and it keeps the tables small. Any number of
sweepers may work on one queue. With `--once` it starts no Spark for a queue on local files, and no stream, so that it runs where streams have no
trigger but `availableNow`, as on serverless compute; else it is a stream of ticks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubeq_spark.jobs.program.starting import end, start

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; returns its exit code."""
    return start("tubeq_spark.jobs.sweeping.command", "spark", argv)


if __name__ == "__main__":
    end(main())
