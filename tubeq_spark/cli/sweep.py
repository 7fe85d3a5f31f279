"""`tubeq sweep`: one sweep, or a sweep now and then."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Annotated

import typer

from tubeq_spark.cli.call import Call, queue_of, until_stopped
from tubeq_spark.cli.exit_codes import ExitCode
from tubeq_spark.cli.options import flag, seconds
from tubeq_spark.cli.program import log_sweep, swept


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
            said = swept(tube) or ("nothing to do" if tube.error is None else "failed")
            call.show({"tube": name, **asdict(tube)}, f"{name}: {said}")
        if purge:
            from tubeq_spark.admin.dead_files import purge as purge_all  # noqa: PLC0415  as in call

            for name in purge_all(queue._context):  # noqa: SLF001  (kept from programs, not from the package)
                call.show({"tube": name, "purged": True}, f"{name}: files of deleted tasks removed")
        # The log has the errors.
        if any(tube.error is not None for tube in report.tubes.values()):
            raise typer.Exit(ExitCode.FAILED)


def _sweep_until_stopped(call: Call, every: float) -> None:
    with until_stopped(), call.queue(horizon=math.inf) as queue, call.logged("sweep"):
        while True:
            log_sweep(queue, verbose=call.verbose)
            call.outside.clock.sleep(every)
