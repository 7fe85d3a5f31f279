"""Processes the tasks of a tube in batches with your function.

    python jobs/consume.py --location /data/q --tube crawl --results /data/pages work:fetch
    python jobs/consume.py --location main.tubeq --tube mail --once work:send

`fetch(df)` gets the tasks as a DataFrame (`task_id, data, attempts` and more) and returns one with
a `task_id` for the table of results, or None. The order of the steps, and what a crash between any
two leaves, is described in `tubeq_spark/jobs/consumer.py`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tubeq_spark.programs import end, run_tubeq

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run `tubeq consume`; returns its exit code."""
    return run_tubeq("consume", *(sys.argv[1:] if argv is None else argv))


if __name__ == "__main__":
    end(main())
