"""`tubeq sweep sweeper`: one sweep, or a sweep now and then."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tubeq_spark.cli.call import Call, log, logged, queue_of, until_stopped
from tubeq_spark.cli.exit_codes import BadUseError, ExitCode
from tubeq_spark.cli.options import flag, seconds, word
from tubeq_spark.markup import plural
from tubeq_spark.model.error_text import reason_of
from tubeq_spark.runtime.stopping import ProgramStop as Stop

if TYPE_CHECKING:
    from collections.abc import Callable

    from tubeq_spark.model.reports import SweepReport, TubeSweep
    from tubeq_spark.queue import Queue

#: What counts of a sweep mean, where their names do not say it.
_WORDS = {"folded": "segments folded", "removed": "kept rows removed"}
#: Seconds between two looks at whether to stop, whole ones.
_LOOK = 1


def sweep(
    ctx: typer.Context,
    every: Annotated[
        float | None, seconds("Sweep again and again, at this interval, until stopped", least=0.1)
    ] = None,
    purge: Annotated[
        bool, flag("--purge", "Remove the files of deleted and finished tasks now")
    ] = False,
) -> None:
    """Write ended leases, delays and ttls, and remove dead files.

    --purge breaks what reads older versions of the tables: time travel, and streams that are late. Takes and reads that
    run meanwhile may miss tasks or fail; repeat them. Files of the change feed stay for their retention. Needs native
    commits.
    """
    if every is not None:
        if purge:
            raise typer.BadParameter("--every and --purge exclude each other")
        _sweep_until_stopped(ctx.obj, every)
        return
    with queue_of(ctx) as (call, queue):
        report = queue.sweep()
        for name, tube in report.tubes.items():
            said = _said(tube) or ("nothing to do" if tube.error is None else "failed")
            call.show({"tube": name, **asdict(tube)}, f"{name}: {said}")
        if purge:
            from tubeq_spark.admin.dead_files import purge as purge_all  # noqa: PLC0415  as in call

            for name in purge_all(queue._context):  # noqa: SLF001  (kept from programs, not from the package)
                call.show({"tube": name, "purged": True}, f"{name}: files of deleted tasks removed")
        # The log has the errors.
        if any(tube.error is not None for tube in report.tubes.values()):
            raise typer.Exit(ExitCode.FAILED)


def _sweep_until_stopped(call: Call, every: float) -> None:
    with until_stopped(), call.queue(horizon=math.inf) as queue, logged(call, "sweep"):
        while True:
            _log_sweep(queue, verbose=call.verbose)
            call.outside.clock.sleep(every)


def sweeper(
    ctx: typer.Context,
    once: Annotated[bool, flag("--once", "Sweep once, and end")] = False,
    interval: Annotated[float, seconds("Time between sweeps", least=0.1)] = 10,
    checkpoint: Annotated[
        str | None, word("DIR", "Checkpoint of the stream [default: a temporary one]")
    ] = None,
) -> None:
    """Sweep as a stream of Spark, until stopped."""
    if once:
        sweep(ctx, every=None, purge=False)
        return
    call: Call = ctx.obj
    with call.program() as (spark, queue):
        from tubeq_spark.storage.spark.jvm import is_classic  # noqa: PLC0415  as in call
        from tubeq_spark.streams.process import start_ticking  # noqa: PLC0415

        if not is_classic(spark):
            msg = "a Spark Connect server cannot run the stream: use --once, or tubeq sweep --every"
            raise BadUseError(msg)

        def tick(_goes_on: Callable[[], bool]) -> None:
            _log_sweep(queue, verbose=call.verbose)

        trigger = f"{round(interval * 1000)} milliseconds"
        with logged(call, "sweeper"), Stop(call.tell, "finishing this sweep") as stop:
            query = start_ticking(spark, tick, trigger, name="tubeq-sweeper", checkpoint=checkpoint)
            while query.isActive and not stop():
                query.awaitTermination(_LOOK)
            if not query.isActive:
                log.error("the stream ended: %s", query.exception())
                raise typer.Exit(ExitCode.FAILED)
            query.stop()  # waits for the sweep that goes on


def _log_sweep(queue: Queue, *, verbose: bool) -> None:
    """Sweep, and log what has changed, and if `verbose` that nothing has. The sweep logs errors of single tubes."""
    try:
        report = queue.sweep()
    except Exception as error:  # noqa: BLE001  the storage may be back for the next sweep
        log.error("the sweep failed: %s", reason_of(error), exc_info=error)
        return
    changed = _changed(report)
    if not changed and verbose and report.idle:
        changed = f"nothing to do in {plural(len(report.tubes), 'tube')}"
    if changed:
        log.info("%s", changed)


def _changed(report: SweepReport) -> str:
    """What a sweep changed, tube by tube."""
    lines = [f"{name}: {said}" for name, tube in report.tubes.items() if (said := _said(tube))]
    lines += [f"{name}: a temporary tube, dropped" for name in report.dropped]
    lines += [f"{name or 'system tables'}: dead files removed" for name in report.vacuumed]
    return "; ".join(lines)


def _said(tube: TubeSweep) -> str:
    """What a sweep changed in a tube."""
    counts = {name: count for name, count in asdict(tube).items() if name != "error" and count}
    return ", ".join(f"{count:,} {_WORDS.get(name, name)}" for name, count in counts.items())
