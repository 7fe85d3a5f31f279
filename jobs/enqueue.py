r"""Puts the rows of files or of a table into a tube, all in one commit.

    python jobs/enqueue.py --location /data/q --tube crawl urls.jsonl --key urls-2026-11-21
    python jobs/enqueue.py --location main.tubeq --tube mail main.shop.orders \
        --where "status = 'new'" --select id --select email --utube customer --create utubettl

A second run with the same `--key` adds nothing, so repeat a run that may have failed.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tubeq_spark.programs import end, run_tubeq

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run `tubeq enqueue`; returns its exit code."""
    return run_tubeq("enqueue", *(sys.argv[1:] if argv is None else argv))


if __name__ == "__main__":
    end(main())
