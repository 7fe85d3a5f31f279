"""The sweeper: writes states that time has changed in all tubes of a queue, and tidies up.

    python jobs/sweeper.py --location /data/q                # until it is stopped
    python jobs/sweeper.py --location /data/q --once         # one pass, for schedulers
    spark-submit --packages ... jobs/sweeper.py --location main.tubeq

No verb waits for it, because all verbs compute states from the clock. It makes tasks ready, expires
and releases them, so that tables and change feeds show their states, and it keeps the tables small.
Any number of sweepers may run on one queue. With `--once` it starts no Spark for a queue on local
files, and no stream, so that it also runs where streams have only the trigger `availableNow`, as on
serverless compute. Without `--once` it is a stream of ticks.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tubeq_spark.programs import end, run_tubeq

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run `tubeq sweeper`; returns its exit code."""
    return run_tubeq("sweeper", *(sys.argv[1:] if argv is None else argv))


if __name__ == "__main__":
    end(main())
