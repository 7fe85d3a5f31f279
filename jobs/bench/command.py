"""The command line of `jobs/benchmark.py`."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.measure import BenchError, Progress
from bench.plan import Part, Plan, Session
from bench.report import Results, show, versions
from bench.run import Bench, default_settings
from tubeq_spark import InvalidOptionError, TubeqError, local_session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

__all__ = ["main"]

EXIT_FAILED = 1
EXIT_BAD_USE = 2
EXIT_INTERRUPTED = 130
_PROGRAM = Path(__file__).parents[1] / "benchmark.py"


def _parser() -> argparse.ArgumentParser:
    """The command line."""
    parse = argparse.ArgumentParser(
        prog="benchmark.py",
        description="Measure put, take and ack of a tubeq_spark queue, and in turns with them the "
        "bare Delta statements that do the same on a table of the same shape (the floor).",
        epilog="Exit codes: 0 done, whatever the targets; 1 failed; 2 bad use; 130 stopped.",
    )
    add = parse.add_argument
    add("--quick", action="store_true", help="a rough answer in a few minutes")
    add(
        "--only",
        type=_parts,
        default=frozenset(Part),
        metavar="PARTS",
        help="some of: batches (the recommended session), default (a session with Spark's own "
        "settings), age (a tube after many commits), utubes (consumers that empty sub-queues)",
    )
    add("--batches", type=_batches, metavar="N,N", help="sizes (1,100,10000,100000)")
    add("--n", type=_count, metavar="N", help="rounds of each size (15 to 5, by size)")
    add("--commits", type=_count, metavar="N", help="of the tube that is old (500)")
    add(
        "--most-tasks",
        type=_count,
        metavar="N",
        help="of the loads of sub-queues, only those with so many tasks at most (all)",
    )
    add("--location", metavar="DIR", help="path or URI for the tables, kept (a temporary one)")
    add("--json", type=Path, metavar="FILE", help="write all numbers there")
    add(
        "--session",
        type=Session,
        choices=list(Session),
        default=Session.RECOMMENDED,
        help="settings of the session that batches and age are measured in (%(default)s)",
    )
    return parse


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        msg = f"{text!r}: must be a whole number, 1 or more"
        raise argparse.ArgumentTypeError(msg)
    return int(text)


def _batches(text: str) -> tuple[int, ...]:
    return tuple(sorted({_count(part) for part in text.split(",")}))


def _parts(text: str) -> frozenset[Part]:
    known = ", ".join(Part)
    try:
        return frozenset(Part(part.strip()) for part in text.split(","))
    except ValueError:
        msg = f"{text!r}: must be some of {known}"
        raise argparse.ArgumentTypeError(msg) from None


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark as a program.

    Args:
        argv: Its arguments; those of the process if not given.

    Returns:
        The exit code.
    """
    arguments = _parser().parse_args(argv)
    try:
        if arguments.json is not None:
            arguments.json.touch()  # before minutes of work, not after them
        with ExitStack() as stack:
            location = arguments.location or stack.enter_context(
                tempfile.TemporaryDirectory(prefix="tubeq-bench-", ignore_cleanup_errors=True)
            )
            results = _measure(arguments, location)
        show(results, sys.stdout)
        if arguments.json is not None:
            arguments.json.write_text(json.dumps(results.as_dict(), indent=2) + "\n")
    except InvalidOptionError as exc:
        return _fail(str(exc), EXIT_BAD_USE)
    except (BenchError, TubeqError, OSError) as exc:
        return _fail(str(exc))
    except KeyboardInterrupt:
        return _fail("stopped; nothing is shown of what is not complete", EXIT_INTERRUPTED)
    return 0


def _plan(arguments: argparse.Namespace) -> Plan:
    quick = arguments.quick
    return Plan(
        parts=arguments.only,
        batches=arguments.batches or ((1, 100, 10_000) if quick else (1, 100, 10_000, 100_000)),
        rounds=arguments.n,
        commits=arguments.commits or (60 if quick else 500),
        quick=quick,
        most_tasks=arguments.most_tasks,
    )


def _measure(arguments: argparse.Namespace, location: str) -> Results:
    plan, progress = _plan(arguments), Progress(sys.stderr)
    session: Session = arguments.session
    spark = _spark(session)
    results = Results(versions(spark))
    with Bench(spark, location, session, progress) as bench:
        if Part.BATCHES in plan.parts:
            for series in plan.series(session):
                results.add(bench.compare(series))
        if Part.AGE in plan.parts:
            results.add_age(bench.age(plan))
        if Part.UTUBES in plan.parts:
            for drained in bench.drain(plan):
                results.add_drained(drained)
    spark.stop()
    if Part.DEFAULT in plan.parts and session is not Session.DEFAULT:
        results.series += _in_default_session(arguments, plan, location)
    return results


def _spark(session: Session) -> SparkSession:
    spark = local_session("tubeq-bench")
    if session is Session.RECOMMENDED:
        return spark
    warnings.filterwarnings("ignore", "this Spark session makes queues slow")
    return default_settings(spark)


def _in_default_session(
    arguments: argparse.Namespace, plan: Plan, location: str
) -> list[dict[str, Any]]:
    """Measure in a process of its own: settings of a JVM, and what it has compiled, last."""
    batches = [str(series.batch) for series in plan.series(Session.DEFAULT)]
    if not batches:
        return []
    with tempfile.TemporaryDirectory(prefix="tubeq-bench-") as directory:
        found = Path(directory) / "default.json"
        options = ["--session=default", "--only=batches", f"--batches={','.join(batches)}"]
        options += [f"--json={found}", f"--location={location.rstrip('/')}/default"]
        if arguments.n is not None:
            options.append(f"--n={arguments.n}")
        if arguments.quick:
            options.append("--quick")
        result = subprocess.run(  # noqa: S603  this very program
            [sys.executable, str(_PROGRAM), *options], stdout=subprocess.DEVNULL, check=False
        )
        if result.returncode:
            msg = f"the run in the default session ended with exit code {result.returncode}"
            raise BenchError(msg)
        series: list[dict[str, Any]] = json.loads(found.read_text())["series"]
        return series


def _fail(sentence: str, code: int = EXIT_FAILED) -> int:
    sys.stderr.write(f"benchmark.py: {sentence}\n")
    return code
