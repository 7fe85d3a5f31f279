"""Measures put, take and ack, and the bare Delta calls that do the same.

    python jobs/benchmark.py            # or: make bench
    python jobs/benchmark.py --engine native --quick --only batches --json bench.json

The queue and the bare calls take turns in one process, so a busy machine slows down both. Trust the
ratios; trust absolute numbers only from an idle machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubeq_spark.jobs.program.starting import end, start

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; returns its exit code."""
    return start("bench.command", "spark", argv)


if __name__ == "__main__":
    end(main())
