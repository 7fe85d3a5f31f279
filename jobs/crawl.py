"""A web crawler with a queue: URLs are tasks, and pages are stored in a Delta table.

    python jobs/crawl.py --location /data/crawl https://example.org/

It stays on the hosts of the URLs given. Stop it at any time: the same location goes on. The order
of its steps, and what a crash between any two leaves, is described in `tubeq_spark/jobs/crawler/loop.py`. With
--consumers several hosts are fetched at the same time, each by one consumer.

For a queue on local files it needs no Spark and does everything in this process. With --engine
spark, and on other storage, executors fetch. spark-submit runs it on a cluster without changes; the
executors need httpx and beautifulsoup4, but no file of this folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubeq_spark.jobs.program.starting import end, start

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; returns its exit code."""
    return start("tubeq_spark.jobs.crawler.command", "native,jobs", argv)


if __name__ == "__main__":
    end(main())
