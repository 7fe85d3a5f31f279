"""The command line of `tubeq crawl` and `jobs/crawl.py`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from tubeq_spark.jobs.crawler.fetch import Limits
from tubeq_spark.jobs.crawler.run import Job, run
from tubeq_spark.jobs.crawler.settings import Settings
from tubeq_spark.jobs.crawler.urls import normalise
from tubeq_spark.jobs.program.arguments import EPILOG, positive_count
from tubeq_spark.programs import BadUseError, Defaults, open_spark, quiet_loggers, run_program

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAM = "crawl.py"
#: Spark slots besides those for fetches, which mostly wait: commits and heartbeats must not wait behind them.
_SPARE_SLOTS = 2


def _parser(program: str) -> argparse.ArgumentParser:
    """The command line."""
    parse = argparse.ArgumentParser(
        prog=program,
        description="Crawl web sites on a tubeq_spark queue. Pages go to the Delta table "
        "_crawl_pages at the location, failures are tried three times. Without URLs it goes on "
        "with what is queued there.",
        epilog=EPILOG,
    )
    add = parse.add_argument
    add("urls", nargs="*", metavar="URL", help="where to begin; only these hosts are visited")
    add("--location", required=True, help="of the queue: a path, a URI, or catalog.schema")
    add("--seeds", type=Path, metavar="FILE", help="more URLs, one a line")
    add(
        "--max-pages",
        type=positive_count,
        metavar="N",
        help="stop at so many pages (default: no limit)",
    )
    add(
        "--max-depth",
        type=positive_count,
        metavar="N",
        help="links from the seeds (default: no limit)",
    )
    add(
        "--consumers",
        type=positive_count,
        default=1,
        metavar="N",
        help="hosts at a time (%(default)s)",
    )
    add(
        "--batch-size",
        type=positive_count,
        default=400,
        metavar="N",
        help="URLs of a batch (%(default)s)",
    )
    add(
        "--partitions", type=positive_count, default=4, metavar="N", help="of a batch (%(default)s)"
    )
    add(
        "--threads",
        type=positive_count,
        default=8,
        metavar="N",
        help="of a partition (%(default)s)",
    )
    add("--timeout", type=_seconds, default=10.0, metavar="S", help="of a page (%(default)g s)")
    add(
        "--max-bytes",
        type=positive_count,
        default=1_000_000,
        metavar="N",
        help="of a page (%(default)s)",
    )
    add("--retry-delay", type=_seconds, default=30.0, metavar="S", help="(%(default)g s)")
    add(
        "--lease",
        type=_seconds,
        default=60.0,
        metavar="S",
        help="of a dead crawler (%(default)g s)",
    )
    add("--agent", default="tubeq-crawl/1", help="name given to servers (%(default)s)")
    add(
        "--engine",
        choices=("auto", "native", "spark"),
        default="auto",
        help="spark fetches on executors; native in this process, without Java; auto is native where "
        "the location is on local files (%(default)s)",
    )
    add("--kick", action="store_true", help="try again what was buried")
    add("--verbose", action="store_true", help="show where an error came from")
    parse.set_defaults(program=program)
    return parse


def _seconds(text: str) -> float:
    number = float(text)
    if not 0 < number < 86_400:
        msg = "must be above 0 and less than a day"
        raise argparse.ArgumentTypeError(msg)
    return number


def main(argv: Sequence[str] | None = None, program: str = PROGRAM) -> int:
    """Run the crawler as a program.

    Args:
        argv: Its arguments; those of the process if not given.
        program: The name of the program, for its messages.

    Returns:
        The exit code.
    """
    arguments = _parser(program).parse_args(argv)

    def work() -> int:
        job = _job(arguments)
        slots = max(os.cpu_count() or 1, job.consumers * job.settings.partitions + _SPARE_SLOTS)
        console = Console()
        if not Defaults(location=job.location, engine=arguments.engine).needs_spark():
            console.print("Opening the queue …")
            return run(None, job, console)
        console.print("Starting Spark and opening the queue …")
        with quiet_loggers(verbose=arguments.verbose, of_spark=True):
            spark = open_spark("tubeq-crawl", None, **{"spark.master": f"local[{slots}]"})
            return run(spark, job, console)

    return run_program(program, work, verbose=arguments.verbose, on_spark=False)


def _job(arguments: argparse.Namespace) -> Job:
    """The job that the command line describes.

    Raises:
        BadUseError: A seed is no URL.
        OSError: The file of seeds cannot be read.
    """
    return Job(
        location=arguments.location,
        seeds=_seeds(arguments.urls, arguments.seeds),
        consumers=arguments.consumers,
        lease=arguments.lease,
        kick=arguments.kick,
        settings=Settings(
            max_pages=arguments.max_pages,
            max_depth=arguments.max_depth,
            batch_size=arguments.batch_size,
            partitions=arguments.partitions,
            retry_delay=arguments.retry_delay,
            agent=arguments.agent,
            limits=Limits(
                seconds=arguments.timeout,
                body_bytes=arguments.max_bytes,
                threads=arguments.threads,
            ),
        ),
    )


def _seeds(urls: Sequence[str], file: Path | None) -> list[str]:
    lines = [] if file is None else file.read_text(encoding="utf-8").splitlines()
    given = [*urls, *(line for line in map(str.strip, lines) if line and not line.startswith("#"))]
    seeds = {url: normalise(url) for url in given}
    for url, seed in seeds.items():
        if seed is None:
            msg = f"{url!r} is no http or https URL"
            raise BadUseError(msg)
    return list(dict.fromkeys(seed for seed in seeds.values() if seed is not None))
