"""A demonstration: crawl three web servers of this very machine through the queue.

The servers run in this process, on loopback, over the trees of Python's standard library, pyspark
and pandas, of which nothing runs; the crawler is `jobs/crawl.py` as it is, without Java. Some pages
fail on purpose. Several consumers
work at the same time, each on a host of its own, and in the end the page table tells whether they
did.
"""

from __future__ import annotations

import argparse
import os
import sys
import sysconfig
import tempfile
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import crawl
from loopback import FAULTS, serve
from program.starting import MISSING, end

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Where the servers listen if a later run shall find them again.
_KEPT_PORT = 18_480


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demonstration; returns its exit code."""
    parse = argparse.ArgumentParser(prog="demo.py", description="Crawl three local web servers.")
    parse.add_argument("--pages", default="2000", metavar="N", help="how many (%(default)s)")
    parse.add_argument("--consumers", default="2", metavar="N", help="at once (%(default)s)")
    parse.add_argument(
        "--engine", default="native", metavar="NAME", help="native or spark (%(default)s)"
    )
    parse.add_argument("--location", help="keep the queue and the pages, to look at or to go on")
    arguments = parse.parse_args(argv)
    roots = [_package(name) for name in ("pyspark", "pandas")]
    if None in roots:
        sys.stderr.write("demo.py: pip install 'tubeq-spark[spark,native,jobs]' first\n")
        return MISSING
    # All the rest takes a second or two to import.
    print("Starting three web servers on this machine, and a crawler of them …", flush=True)
    with ExitStack() as stack:
        location = arguments.location or stack.enter_context(
            tempfile.TemporaryDirectory(prefix="tubeq-demo-")
        )
        port = _KEPT_PORT if arguments.location else 0
        trees = [Path(sysconfig.get_path("stdlib")), *(root for root in roots if root)]
        hosts = stack.enter_context(serve(trees, port=port))
        options = ["--batch-size=600", "--retry-delay=2", "--lease=20", "--partitions=1"]
        # A proxy, if this network has one, would look for these addresses elsewhere.
        os.environ["no_proxy"] = ",".join(urlsplit(host).hostname or "" for host in hosts)
        seeds = [*hosts, hosts[0] + FAULTS.lstrip("/")]
        options += [f"--consumers={arguments.consumers}", f"--max-pages={arguments.pages}"]
        options += [f"--engine={arguments.engine}"]
        return crawl.main([f"--location={location}", *options, *seeds])


def _package(name: str) -> Path | None:
    """The directory of an installed package, without importing it."""
    spec = find_spec(name)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


if __name__ == "__main__":
    end(main())
