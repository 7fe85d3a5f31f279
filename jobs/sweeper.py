"""The sweeper: writes down what time has changed in all tubes of a queue, and tidies up.

    python jobs/sweeper.py --location /data/q                # until it is stopped
    python jobs/sweeper.py --location /data/q --once         # one pass, for schedulers
    spark-submit --packages ... jobs/sweeper.py --location main.tubeq

No verb waits for it: they all judge by the clock. It readies, expires and releases what nobody has
looked at, so that counts and change feeds show it, and it keeps the tables small. Any number of
sweepers may work on one queue.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType

    from pyspark.sql import SparkSession

    from tubeq_spark import Queue, SweepReport

EXIT_FAILED = 1
EXIT_BAD_USE = 2
EXIT_INTERRUPTED = 130
#: Seconds between two looks at whether the query still runs.
_LOOK = 0.5


def _parser() -> argparse.ArgumentParser:
    """The command line."""
    parse = argparse.ArgumentParser(
        prog="sweeper.py",
        description="Write down what time has changed in all tubes of a queue: ended leases, "
        "delays and lives, tasks of sessions that died; and tidy up. Stop it at any time.",
        epilog="Exit codes: 0 done or stopped by a signal, 1 failed (with --once also when a tube "
        "failed), 2 bad use.",
    )
    add = parse.add_argument
    add("--location", required=True, help="of the queue: a path, a URI, or catalog.schema")
    add("--once", action="store_true", help="make one pass and end")
    add(
        "--interval",
        type=_seconds,
        default=10.0,
        metavar="S",
        help="seconds from the start of a pass to the next (%(default)g)",
    )
    add("--checkpoint", metavar="DIR", help="of the streaming query (a temporary one)")
    add("--verbose", action="store_true", help="tell of passes that changed nothing, too")
    return parse


def _seconds(text: str) -> float:
    number = float(text)
    if not 0.1 <= number <= 86_400:
        msg = "must be from 0.1 seconds to a day"
        raise argparse.ArgumentTypeError(msg)
    return number


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; returns its exit code."""
    arguments = _parser().parse_args(argv)
    try:
        from tubeq_spark import (  # noqa: PLC0415  its packages may be missing
            InvalidOptionError,
            Queue,
            TubeqError,
            local_session,
        )
    except ModuleNotFoundError as exc:
        package = (exc.name or "").partition(".")[0]
        return _fail(f"{package} is not installed: pip install 'tubeq-spark[spark]'")
    if not arguments.verbose:
        # A tube that failed is a line of ours; where it failed is for those who ask.
        logging.getLogger("tubeq_spark.sweeper").setLevel(logging.CRITICAL)
    try:
        spark = local_session("tubeq-sweeper")
        with Queue(spark, arguments.location) as queue:
            passes = Passes(queue, sys.stdout, sys.stderr, verbose=arguments.verbose)
            if arguments.once:
                return 0 if passes.make() else EXIT_FAILED
            return _sweep_on(spark, passes, arguments.interval, arguments.checkpoint)
    except InvalidOptionError as exc:
        return _fail(str(exc), EXIT_BAD_USE)
    except TubeqError as exc:
        return _fail(str(exc))
    except KeyboardInterrupt:
        return _fail("stopped at once; what was not written down is still due", EXIT_INTERRUPTED)


class Passes:
    """Makes passes, and tells of them."""

    def __init__(self, queue: Queue, out: TextIO, errors: TextIO, *, verbose: bool) -> None:
        """Sweep a queue.

        Args:
            queue: The queue.
            out: Where to tell what a pass changed.
            errors: Where to tell what failed.
            verbose: Whether to tell of every pass.
        """
        self._queue = queue
        self._out = out
        self._errors = errors
        self._verbose = verbose
        self.count = 0

    def make(self) -> bool:
        """Make a pass; returns whether all of it went well."""
        report = self._queue.sweep()
        self.count += 1
        changed = _changed(report)
        if changed or self._verbose:
            _tell(self._out, changed or "nothing was due")
        for name, tube in report.tubes.items():
            if tube.error is not None:
                _tell(self._errors, f"tube {name} failed: {tube.error}")
        return all(tube.error is None for tube in report.tubes.values())

    def tick(self, _goes_on: Callable[[], bool]) -> None:
        """Make a pass for a streaming query, which shall outlive one that fails."""
        try:
            self.make()
        except Exception as error:  # noqa: BLE001  storage may be back for the next one
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            _tell(self._errors, f"the pass failed: {reason}")


def _changed(report: SweepReport) -> str:
    """What a pass changed, tube by tube."""
    lines = []
    for name, tube in report.tubes.items():
        counts = {
            "readied": tube.readied,
            "expired": tube.expired,
            "released": tube.released,
            "segments folded": tube.folded,
        }
        told = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
        if told:
            lines.append(f"{name}: {told}")
    return "; ".join(lines)


def _tell(stream: TextIO, what: str) -> None:
    from tubeq_spark import SystemClock  # noqa: PLC0415  the package is there by now

    stream.write(f"{SystemClock().now():%Y-%m-%dT%H:%M:%SZ} {what}\n")
    stream.flush()  # a log is read while it is written


def _sweep_on(spark: SparkSession, passes: Passes, interval: float, checkpoint: str | None) -> int:
    """Make passes until a signal comes; returns the exit code."""
    from tubeq_spark.ticking import start_ticking  # noqa: PLC0415  the package is there by now

    trigger = f"{round(interval * 1000)} milliseconds"
    with _signals() as stop:
        query = start_ticking(
            spark, passes.tick, trigger, name="tubeq-sweeper", checkpoint=checkpoint
        )
        while query.isActive and not stop.wait(_LOOK):
            pass
        if not query.isActive:
            return _fail(f"the streaming query ended: {query.exception()}")
        query.stop()  # waits for the pass that goes on
    sys.stderr.write(f"sweeper.py: stopped after {passes.count:,} passes\n")
    return 0


@contextmanager
def _signals() -> Iterator[threading.Event]:
    """Take SIGTERM and SIGINT as a request to stop; a second one insists."""
    stop = threading.Event()

    def handle(_number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    # From Spark too, whose handler would cancel the pass.
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _fail(sentence: str, code: int = EXIT_FAILED) -> int:
    sys.stderr.write(f"sweeper.py: {sentence}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
