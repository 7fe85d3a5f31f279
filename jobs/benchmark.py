"""What put, take and ack cost, beside the bare Delta statements that do the same.

    python jobs/benchmark.py            # or: make bench
    python jobs/benchmark.py --quick --only batches --json bench.json

The queue and the bare statements take turns in one session, so a busy machine slows down both:
trust the ratios, and the absolute numbers of an idle machine only.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; returns its exit code."""
    try:
        from bench.command import main as measure  # noqa: PLC0415  its packages may be missing
    except ModuleNotFoundError as exc:
        package = (exc.name or "").partition(".")[0]
        sys.stderr.write(f"{package} is not installed: pip install 'tubeq-spark[spark]'\n")
        return 1
    return measure(argv)


if __name__ == "__main__":
    sys.exit(main())
