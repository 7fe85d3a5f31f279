"""The command line of `jobs/benchmark.py`."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import warnings
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from program.stopping import Stop

from bench.measure import BenchError, Progress
from bench.plan import Part, Plan, Session
from bench.report import Results, show, versions
from bench.run import Bench, default_settings
from tubeq_spark import local_session
from tubeq_spark.programs import ExitCode, note, run_program

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

__all__ = ["main"]

PROGRAM = "benchmark.py"
_STOPPING = "finishing the round in hand; once more to stop at once"
#: Seconds between two looks whether to stop a process that measures for us.
_LOOK_S = 0.5
_PROGRAM = Path(__file__).parents[1] / "benchmark.py"


def _parser() -> argparse.ArgumentParser:
    """The command line."""
    parse = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Measure put, take and ack of a tubeq_spark queue, and in turns with them the "
        "bare Delta statements that do the same on a table of the same shape (the floor).",
        epilog="Exit codes: 0 done, whatever the targets; 2 bad use; 3 failed; 130 or 143 stopped "
        "by Ctrl-C or SIGTERM, then the round in hand is finished and what was measured is shown.",
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
    add("--verbose", action="store_true", help="show where an error came from")
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
    results, stop = Results(), Stop(lambda _: note(PROGRAM, _STOPPING))

    def work() -> int:
        if arguments.json is not None:
            arguments.json.touch()  # before minutes of work, not after them
        with ExitStack() as stack:
            location = arguments.location or stack.enter_context(
                tempfile.TemporaryDirectory(prefix="tubeq-bench-", ignore_cleanup_errors=True)
            )
            try:
                _measure(arguments, location, results, stop)
            except KeyboardInterrupt:
                results.stopped = True
            return _end(results, arguments.json, stop)

    return run_program(PROGRAM, work, verbose=arguments.verbose)


def _end(results: Results, json_file: Path | None, stop: Stop) -> int:
    """Show what was measured; returns the exit code."""
    results.stopped |= stop()
    if results.versions:
        show(results, sys.stdout)
        sys.stdout.flush()
    if json_file is not None:
        json_file.write_text(json.dumps(results.as_dict(), indent=2) + "\n")
    if not results.stopped:
        return ExitCode.DONE
    note(PROGRAM, "stopped; what was measured until then is shown")
    return stop.exit_code or ExitCode.INTERRUPTED


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


def _measure(arguments: argparse.Namespace, location: str, results: Results, stop: Stop) -> None:
    """Add to the results what is measured, until it is stopped."""
    plan, progress = _plan(arguments), Progress(sys.stderr, stop)
    session: Session = arguments.session
    spark = _spark(session)
    results.versions = versions(spark)
    # From here on: Spark takes Ctrl-C for itself as it starts.
    with stop:
        with Bench(spark, location, session, progress) as bench:
            if Part.BATCHES in plan.parts:
                for compared in bench.compare(plan):
                    results.add(compared)
            if Part.AGE in plan.parts and not stop():
                aged = bench.age(plan)
                if aged is not None:
                    results.add_age(aged)
            if Part.UTUBES in plan.parts:
                for drained in bench.drain(plan):
                    results.add_drained(drained)
        spark.stop()
        if Part.DEFAULT in plan.parts and session is not Session.DEFAULT and not stop():
            results.series += _in_default_session(arguments, plan, location, stop)


def _spark(session: Session) -> SparkSession:
    spark = local_session("tubeq-bench")
    if session is Session.RECOMMENDED:
        return spark
    warnings.filterwarnings("ignore", "this Spark session makes queues slow")
    return default_settings(spark)


def _in_default_session(
    arguments: argparse.Namespace, plan: Plan, location: str, stop: Stop
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
        code = _run_until_stopped([sys.executable, str(_PROGRAM), *options], stop)
        text = found.read_text()
        if not text or (code and not stop()):
            msg = f"the run in the default session ended with exit code {code}"
            raise BenchError(msg)
        series: list[dict[str, Any]] = json.loads(text)["series"]
        return series


def _run_until_stopped(words: list[str], stop: Stop) -> int:
    """Run a program, ask it to stop when we are asked to, and return its exit code."""
    # A terminal's Ctrl-C would reach it too, and the second one makes a program drop what it does.
    with subprocess.Popen(  # noqa: S603  this very program
        words, stdout=subprocess.DEVNULL, start_new_session=True
    ) as child:
        asked = False
        try:
            while True:
                if stop() and not asked:
                    child.terminate()
                    asked = True
                with suppress(subprocess.TimeoutExpired):
                    return child.wait(_LOOK_S)
        except BaseException:
            child.terminate()
            raise
