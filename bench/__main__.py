"""Runs the benchmark, and prints its page: `python -m bench --quick`."""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from bench.measure import BenchError, Sizes
from bench.report import Page
from tubeq_spark.programs import ExitCode, end, missing

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

#: The groups, each a module, in the order in which they run. Spark is the last, because it starts a JVM.
GROUPS = ("single", "threads", "batches", "stores", "spark")
_QUICK = Sizes(
    rounds=1,
    calls=10,
    seconds=0.5,
    tasks=3_000,
    batch=10_000,
    few=1_000,
    many=20_000,
    workers=(1, 4),
)


def _parser() -> argparse.ArgumentParser:
    """The command line."""
    parse = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure a queue beside the bare commits that it makes, and beside SQLite and "
        "Postgres, and print one page of Markdown. TUBEQ_BENCH_POSTGRES names a server of Postgres, "
        "as postgresql://user@host/database does.",
    )
    parse.add_argument(
        "--only",
        type=_groups,
        default=GROUPS,
        metavar="GROUPS",
        help="some of: single (one task beside the direct commits, by durability), threads (calls one "
        "by one, and workers), batches (large batches, and many waiting tasks), stores (rivals on "
        "versitygw and moto, each request 50 ms late), spark (beside bare Delta statements)",
    )
    parse.add_argument("--quick", action="store_true", help="small sizes: a rough answer")
    parse.add_argument(
        "--location", type=Path, metavar="DIR", help="where the tables are (a temporary directory)"
    )
    return parse


def _groups(text: str) -> tuple[str, ...]:
    chosen = {part.strip() for part in text.split(",")}
    if not chosen <= {*GROUPS}:
        msg = f"{text!r}: must be some of {', '.join(GROUPS)}"
        raise argparse.ArgumentTypeError(msg)
    return tuple(group for group in GROUPS if group in chosen)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; returns its exit code."""
    arguments = _parser().parse_args(argv)
    words = sys.argv[1:] if argv is None else argv
    page = Page(" ".join(["python -m bench", *words]))
    with tempfile.TemporaryDirectory(
        prefix="tubeq-bench-", dir=arguments.location, ignore_cleanup_errors=True
    ) as place:
        try:
            for group in arguments.only:
                _measure(page, group, Path(place), _QUICK if arguments.quick else Sizes())
        except ModuleNotFoundError as error:
            sys.stderr.write(f"{missing(error, 'test')}\n")
            return ExitCode.BAD_USE
        except KeyboardInterrupt:
            page.stopped = True
        finally:
            sys.stdout.write(page.text())
    if page.stopped:
        return ExitCode.INTERRUPTED
    return ExitCode.FAILED if page.failed else ExitCode.DONE


def _measure(page: Page, group: str, place: Path, sizes: Sizes) -> None:
    """Measure a group; if one fails, the page says so, and the others go on."""
    module = importlib.import_module(f"bench.{group}")
    try:
        module.measure(page, place / group, sizes)
    except BenchError as error:
        sys.stderr.write(f"{group}: {error}\n")
        page.failed[f"{group} ended before everything was measured: {error}"] = None


if __name__ == "__main__":
    # SIGTERM ends the run as Ctrl-C does: the page still shows what was measured before.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    end(main())
