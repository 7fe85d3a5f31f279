"""Applies ended leases, delays and ttls in all tubes of a queue, and cleans up.

    python jobs/sweeper.py --location /data/q                # until it is stopped
    python jobs/sweeper.py --location /data/q --once         # one pass, for schedulers
    spark-submit --packages ... jobs/sweeper.py --location main.tubeq

No verb waits for it, because all verbs compute states from the clock. It makes tasks ready, expires
and releases them, so that tables and change feeds show their states, and it keeps the tables small.
Any number of sweepers may run on one queue. With `--once` it is `tubeq sweep`: it starts no Spark for a queue on
local files, and no stream, so that it also runs where streams have only the trigger `availableNow`, as on
serverless compute. Without `--once` it is a stream of ticks.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tubeq_spark import Queue
from tubeq_spark.programs import (
    BadUseError,
    ExitCode,
    Stop,
    end,
    job_parser,
    log,
    log_sweep,
    logged,
    open_spark,
    option_of,
    read_defaults,
    report_error,
    run_tubeq,
    seconds_of,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

#: Seconds between two looks at whether to stop, whole ones.
_LOOK = 1


def main(argv: Sequence[str] | None = None) -> int:
    """Sweep as the command line asks; returns the exit code."""
    parser = job_parser("sweeper.py", __doc__)
    add = parser.add_argument
    add("--remote", help="Spark Connect server, sc://host:15002, for --once")
    add("--once", action="store_true", help="sweep once, and end")
    interval = option_of(lambda text: seconds_of(text, 0.1))
    add("--interval", metavar="TIME", type=interval, default=10.0, help="time between sweeps")
    add("--checkpoint", metavar="DIR", help="of the stream (by default a temporary one)")
    given = parser.parse_args(argv)
    if given.once:
        options = {"location", "remote", "engine", "config"}
        named = [f"--{n}={value}" for n, value in vars(given).items() if n in options and value]
        flags = [f"--{n}" for n in ("json", "verbose") if getattr(given, n)]
        return run_tubeq("sweep", *named, *flags)
    try:
        with logged("sweeper", as_json=given.json, verbose=given.verbose):
            return stream(given)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  the last one to hear of it
        return report_error("sweeper.py", error, verbose=given.verbose, as_json=given.json)


def stream(given: argparse.Namespace) -> int:
    """Sweep at each tick of a stream, until a signal comes; returns the exit code."""
    settings = read_defaults(
        given.config, location=given.location, remote=given.remote, engine=given.engine
    )
    location, engine = settings.queue_location(), settings.committer()
    spark = open_spark("tubeq-sweeper", settings.remote)
    if not hasattr(spark, "sparkContext"):
        raise BadUseError("a Spark Connect server cannot run the stream: use --once")
    ticks = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1)
    writer = ticks.option("numPartitions", 1).load().writeStream.queryName("tubeq-sweeper")
    writer = writer.trigger(processingTime=f"{round(given.interval * 1000)} milliseconds")
    if given.checkpoint is not None:
        writer = writer.option("checkpointLocation", given.checkpoint)
    sweeping = threading.Lock()
    with (
        Stop(log.info, "finishing this sweep") as stop,
        Queue(spark, location, config=settings.config, engine=engine, create=False) as queue,
    ):

        def tick(*_: object) -> None:
            if sweeping.acquire(blocking=False):
                try:
                    log_sweep(queue, verbose=given.verbose)
                finally:
                    sweeping.release()

        query = writer.foreachBatch(tick).start()
        while query.isActive and not stop():
            query.awaitTermination(_LOOK)
        if not query.isActive:
            log.error("the stream ended: %s", query.exception())
            return ExitCode.FAILED
        with sweeping:  # stopping the query would cancel the Spark jobs of a sweep
            query.stop()
    return ExitCode.DONE


if __name__ == "__main__":
    end(main())
