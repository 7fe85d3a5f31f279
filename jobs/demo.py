"""A demonstration: crawls three web servers of this machine through the queue.

The servers run in this process, on loopback, over the trees of Python's standard library and of two
packages, whose code does not run. The crawler is the package `crawl` beside this file. Some pages fail on
purpose. Several consumers work at the same time, each on another host, and at the end a query over
the table of pages checks that.
"""

from __future__ import annotations

import argparse
import os
import sys
import sysconfig
import tempfile
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from loopback import FAULTS, serve

from tubeq_spark.programs import ExitCode, how_to_install

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: Where the servers listen if a later run shall find them again.
_KEPT_PORT = 18_480
#: Beside the standard library: what is there without Spark, and has a thousand files or so.
_PACKAGES = ("pyarrow", "pygments")
#: What the crawler imports.
_NEEDED = ("bs4", "deltalake", "filelock", "httpx", "rich")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demonstration; returns its exit code."""
    parse = argparse.ArgumentParser(prog="demo.py", description="Crawl three local web servers.")
    parse.add_argument("--pages", default="2000", metavar="N", help="how many (%(default)s)")
    parse.add_argument("--consumers", default="2", metavar="N", help="at once (%(default)s)")
    parse.add_argument("--location", help="keep the queue and the pages, to look at or to go on")
    arguments = parse.parse_args(argv)
    roots = [_package(name) for name in _PACKAGES]
    if None in [*roots, *map(find_spec, _NEEDED)]:
        sys.stderr.write(f"demo.py: first {how_to_install('demo')}\n")
        return ExitCode.BAD_USE
    print("Starting three web servers on this machine, and a crawler of them …", flush=True)
    from crawl import command  # noqa: PLC0415  takes a second or two

    with ExitStack() as stack:
        location = arguments.location or stack.enter_context(
            tempfile.TemporaryDirectory(prefix="tubeq-demo-")
        )
        trees = [Path(sysconfig.get_path("stdlib")), *(root for root in roots if root)]
        hosts = stack.enter_context(_served(trees, kept=bool(arguments.location)))
        options = ["--batch-size=400", "--threads=8", "--retry-delay=0.5", "--lease=20"]
        # A proxy, if this network has one, would look for these addresses elsewhere.
        os.environ["no_proxy"] = ",".join(urlsplit(host).hostname or "" for host in hosts)
        seeds = [*hosts, hosts[0] + FAULTS.lstrip("/")]
        options += [f"--consumers={arguments.consumers}", f"--max-pages={arguments.pages}"]
        code = command.main([f"--location={location}", *options, *seeds])
    if arguments.location and not code:
        _tell_what_is_next(arguments.location, int(arguments.pages))
    return code


@contextmanager
def _served(trees: Sequence[Path], *, kept: bool) -> Iterator[list[str]]:
    """The servers, if possible where an earlier run had them; yields their root URLs."""
    with ExitStack() as stack:
        try:
            hosts = stack.enter_context(serve(trees, port=_KEPT_PORT if kept else 0))
        except OSError:  # another demonstration is running
            hosts = stack.enter_context(serve(trees))
        yield hosts


def _tell_what_is_next(location: str, pages: int) -> None:
    """Say where the queue is, and what can be done with it."""
    python = Path(sys.executable)
    here = Path.cwd()
    folder = python.parent.relative_to(here) if python.is_relative_to(here) else python.parent
    print(
        f"\nThe queue is in {location}, its tube is crawl. Look at it, and go on:\n"
        f"  {folder}/tubeq --location {location} stats crawl\n"
        f"  {folder}/tubeq --location {location} top\n"
        f"  {folder}/python jobs/demo.py --location {location} --pages {2 * pages}\n"
        'A first queue of your own: README.md, "In a program"'
    )


def _package(name: str) -> Path | None:
    """The directory of an installed package, without importing it."""
    spec = find_spec(name)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


if __name__ == "__main__":
    sys.exit(main())
