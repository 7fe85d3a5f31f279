"""Starts the crawler.

python jobs/crawl --location ./crawl_q https://example.org/
"""

from __future__ import annotations

import sys
from pathlib import Path

from tubeq_spark.programs import missing


def main() -> int:
    """Run the crawler; returns its exit code."""
    # Python has put this folder there, not the one in which it is a package.
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    try:
        from crawl.command import main as run  # noqa: PLC0415
    except ModuleNotFoundError as error:
        sys.stderr.write(f"{missing(error, 'demo')}\n")
        return 2
    return run()


if __name__ == "__main__":
    sys.exit(main())
