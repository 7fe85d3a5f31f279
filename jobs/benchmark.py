"""Measures put, take and ack, and the bare Delta calls that do the same.

    python jobs/benchmark.py            # or: make bench
    python jobs/benchmark.py --engine native --quick --only batches --json bench.json

The queue and the bare calls take turns in one process, so a busy machine slows down both. Trust the
ratios; trust absolute numbers only from an idle machine.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tubeq_spark.programs import ExitCode, end, missing

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; returns its exit code."""
    try:
        from bench import command  # noqa: PLC0415  it needs Spark
    except ModuleNotFoundError as error:
        sys.stderr.write(f"{missing(error, 'spark')}\n")
        return ExitCode.BAD_USE
    return command.main(argv)


if __name__ == "__main__":
    end(main())
