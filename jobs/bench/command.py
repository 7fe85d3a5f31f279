"""The command line of `jobs/benchmark.py`."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from bench.measure import Progress
from bench.measuring import Run
from bench.plan import Engine, Part, Plan, Session
from bench.report import show
from bench.results import Results
from bench.sides import choose
from tubeq_spark.programs import ExitCode, Stop, note, run_program

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

PROGRAM = "benchmark.py"
_STOPPING = "finishing the round in hand; once more to stop at once"


def _parser() -> argparse.ArgumentParser:
    """The command line."""
    parse = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Measure put, take and ack of a tubeq_spark queue, on the native engine and on "
        "Spark, and in turns with them the bare calls that do the same on a table of the same shape "
        "(the floor).",
        epilog="Exit codes: 0 done, whatever the targets; 2 bad use; 3 failed; 130 or 143 stopped "
        "by Ctrl-C or SIGTERM, then the round in hand is finished and what was measured is shown.",
    )
    add = parse.add_argument
    add(
        "--engine",
        choices=[*(engine.value for engine in Engine), "both"],
        help="what runs the verbs (both, where deltalake and a Spark are installed)",
    )
    add("--quick", action="store_true", help="a rough answer in a few minutes")
    add(
        "--only",
        type=_parts,
        default=frozenset(Part),
        metavar="PARTS",
        help="some of: batches (the queue beside the floor), default (the same in a session with "
        "Spark's own settings), utubes (consumers that empty sub-queues), age (a tube after many "
        "commits), verbs (others on one task, native), processes (eight that share a tube, native), "
        "start (calls of tubeq put, native), peers (the same loads for SQLite, and for Postgres and "
        "procrastinate where TUBEQ_BENCH_POSTGRES names a server, native), stores (requests and seconds on an S3 behind a proxy that delays each "
        "request by 50 ms: the one that TUBEQ_BENCH_S3 names, else versitygw; native)",
    )
    add("--batches", type=_batches, metavar="N,N", help="sizes (1,100,10000,100000)")
    add("--n", type=_count, metavar="N", help="rounds of each (100 to 3, by size and engine)")
    add("--commits", type=_count, metavar="N", help="of the tube that is old (5000, Spark 500)")
    add(
        "--done",
        type=_count,
        metavar="N",
        help="tasks that these commits put, take and ack (1000000, Spark one each)",
    )
    add(
        "--most-tasks",
        type=_count,
        metavar="N",
        help="of the loads of sub-queues, only those with so many tasks at most (all); the loads of "
        "the peers get no more",
    )
    add("--location", metavar="DIR", help="path or URI for the tables, kept (a temporary one)")
    add("--json", type=Path, metavar="FILE", help="write all numbers there")
    add("--verbose", action="store_true", help="show where an error came from")
    add(
        "--session",
        choices=[Session.RECOMMENDED.value, Session.DEFAULT.value],
        default=Session.RECOMMENDED.value,
        help="settings of the Spark session that is measured in (%(default)s)",
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
                _measure(arguments, location.rstrip("/"), results, stop)
            except KeyboardInterrupt:
                results.stopped = True
            return _end(results, arguments.json, stop)

    # Spark's own loggers are quiet where there is a Spark.
    return run_program(
        PROGRAM, work, verbose=arguments.verbose, on_spark=arguments.engine != "native"
    )


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
        commits=arguments.commits,
        done=arguments.done,
        quick=quick,
        most_tasks=arguments.most_tasks,
    )


def _measure(arguments: argparse.Namespace, location: str, results: Results, stop: Stop) -> None:
    """Add to the results what is measured, until it is stopped."""
    engines = choose(arguments.engine)
    progress = Progress(sys.stderr, stop)
    run = Run(_plan(arguments), location, Session(arguments.session), results, progress, stop)
    # The native engine first: no JVM runs beside it.
    if Engine.NATIVE in engines:
        run.native()
    if Engine.SPARK in engines and not stop():
        run.spark()
