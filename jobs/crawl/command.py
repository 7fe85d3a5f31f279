"""The command line of the crawler."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from rich.console import Console

from crawl.job import Job
from crawl.links import normalise
from crawl.run import run
from tubeq_spark.programs import BadUseError, run_program

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAM = "crawl"


def _parser() -> argparse.ArgumentParser:
    """The command line."""
    parse = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Crawl web sites on a queue. Pages go to the Delta table _crawl_pages beside it. "
        "Stop it at any time: the same location goes on, without URLs, too.",
    )
    add = parse.add_argument
    add("urls", nargs="*", metavar="URL", help="where to begin; only these hosts are visited")
    add("--location", required=True, metavar="FOLDER", help="of the queue and the pages")
    count: dict[str, Any] = {"type": _count, "metavar": "N"}
    seconds: dict[str, Any] = {"type": _seconds, "metavar": "S"}
    add("--max-pages", **count, help="stop when so many pages are stored (no limit)")
    add("--max-depth", **count, help="most links from the seeds to a page (no limit)")
    add("--consumers", default=1, **count, help="hosts at a time (%(default)s)")
    add("--batch-size", default=400, **count, help="URLs of a batch, of one host (%(default)s)")
    add("--threads", default=16, **count, help="that fetch a batch (%(default)s)")
    add("--timeout", default=10.0, **seconds, help="of a page (%(default)g s)")
    add("--retry-delay", default=30.0, **seconds, help="before a second try (%(default)g s)")
    add("--lease", default=60.0, **seconds, help="of a crawler that died (%(default)g s)")
    add("--verbose", action="store_true", help="show where an error came from")
    return parse


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        msg = "must be 1 or more"
        raise argparse.ArgumentTypeError(msg)
    return number


def _seconds(text: str) -> float:
    number = float(text)
    if not 0 < number < 86_400:
        msg = "must be above 0 and less than a day"
        raise argparse.ArgumentTypeError(msg)
    return number


def main(argv: Sequence[str] | None = None) -> int:
    """Run the crawler as a program.

    Args:
        argv: The arguments; by default those of the process.

    Returns:
        The exit code.
    """
    options = vars(_parser().parse_args(argv))
    urls, verbose = options.pop("urls"), options.pop("verbose")

    def work() -> int:
        return run(Job(seeds=_seeds(urls), **options), Console())

    return run_program(PROGRAM, work, verbose=verbose, on_spark=False)


def _seeds(urls: Sequence[str]) -> list[str]:
    seeds = []
    for url in urls:
        seed = normalise(url)
        if seed is None:
            msg = f"{url!r} is no http or https URL"
            raise BadUseError(msg)
        seeds.append(seed)
    return seeds
