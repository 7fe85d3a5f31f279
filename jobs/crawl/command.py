"""The command line of the crawler."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from crawl.job import Job
from crawl.links import normalise
from crawl.run import run
from tubeq_spark.programs import EPILOG, BadUseError, report_error, seconds_of, whole_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PROGRAM = "crawl"


def _parser(read: Callable[..., Any], least: float) -> Callable[[Any], Any]:
    def parse(value: Any) -> Any:
        try:
            return read(str(value), least)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None

    return parse


def _count(text: str) -> Any:
    return typer.Option(help=text, parser=_parser(whole_of, 1), metavar="N")


def _seconds(text: str) -> Any:
    return typer.Option(help=text, parser=_parser(seconds_of, 0.001), metavar="TIME")


app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)


@app.command(epilog=EPILOG)
def crawl(
    ctx: typer.Context,
    location: Annotated[
        str, typer.Option(metavar="FOLDER", help="Folder of the queue and the pages")
    ],
    urls: Annotated[
        list[str] | None, typer.Argument(help="Where to begin; only these hosts are visited")
    ] = None,
    max_pages: Annotated[int | None, _count("Stop at this number of stored pages")] = None,
    max_depth: Annotated[int | None, _count("Most links from the seeds to a page")] = None,
    consumers: Annotated[int, _count("Hosts at a time")] = 1,
    batch_size: Annotated[int, _count("URLs of a batch, of one host")] = 400,
    threads: Annotated[int, _count("Threads that fetch a batch")] = 16,
    timeout: Annotated[float, _seconds("Time limit of a page")] = 10.0,
    retry_delay: Annotated[float, _seconds("Delay before a second try")] = 30.0,
    lease: Annotated[float, _seconds("Time until a dead crawler's tasks are released")] = 60.0,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show tracebacks of errors")] = False,
) -> None:
    """Crawl web sites on a queue.

    Pages go to the Delta table _crawl_pages beside it. A crawl can be stopped at any time; the same location goes on,
    also without URLs.
    """
    options = ctx.params | {"seeds": ()}
    for name in ("urls", "json", "verbose"):
        del options[name]

    log = logging.getLogger("tubeq_spark")
    level = log.level
    try:
        if not verbose:
            # Errors become one sentence.
            log.setLevel(logging.CRITICAL)
        job = Job(**options | {"seeds": _seeds(urls or ())})
        code = run(job, Console(stderr=json), as_json=json)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  the last one to hear of it
        code = report_error(PROGRAM, error, verbose=verbose)
    finally:
        log.setLevel(level)
    raise typer.Exit(code)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the crawler as a program.

    Args:
        argv: The arguments; by default those of the process.

    Returns:
        The exit code.
    """
    try:
        app(args=sys.argv[1:] if argv is None else [*argv], prog_name=PROGRAM)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    return 0


def _seeds(urls: Sequence[str]) -> list[str]:
    seeds = []
    for url in urls:
        seed = normalise(url)
        if seed is None:
            msg = f"{url!r} must be an http or https URL"
            raise BadUseError(msg)
        seeds.append(seed)
    return seeds
