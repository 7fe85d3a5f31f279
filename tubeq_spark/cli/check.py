"""`tubeq check`: reads all tables for damage, and repairs it."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated

import typer

from tubeq_spark.cli.call import Call
from tubeq_spark.cli.exit_codes import ExitCode
from tubeq_spark.markup import plural

if TYPE_CHECKING:
    from tubeq_spark.model.reports import CheckReport


def check(
    ctx: typer.Context,
    location: Annotated[
        str | None, typer.Argument(help="Location of the queue [default: --location]")
    ] = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Repair damage that costs no task")
    ] = False,
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss", help="With --repair: repair the rest, too, and list the lost tasks"
        ),
    ] = False,
) -> None:
    """Check all tables; exit 1 if damage remains.

    Without --repair it only reads. It also works if the queue cannot be opened any more.
    """
    call: Call = ctx.obj
    if location is not None:
        call = replace(call, settings=replace(call.settings, location=location))
    report = _report(call, repair=repair, accept_loss=accept_loss)
    with call.answering():
        _show(call, report)


def _show(call: Call, report: CheckReport) -> None:
    """Print the damage, and end with an exit code that shows whether some of it is left."""
    for problem in report.problems:
        shown = asdict(problem) | {"tasks": [str(id) for id in problem.tasks]}
        done = "repaired: " if problem.repaired else ""
        call.show(shown, f"{done}{problem.table}: {problem.message}")
    if not call.json:
        left = sum(not problem.repaired for problem in report.problems)
        problems = plural(left, "problem") if left else "sound"
        call.show({}, f"{plural(len(report.tables), 'table')} read: {problems}")
    if not report.sound:
        raise typer.Exit(ExitCode.NO)


def _report(call: Call, *, repair: bool, accept_loss: bool) -> CheckReport:
    with call.answering():
        from tubeq_spark.storage import check as storage  # noqa: PLC0415  calls that check nothing are quick

        opened = call.on_local_files()
        if opened is not None:
            return storage.check(opened, repair=repair, accept_loss=accept_loss)
    with call.queue() as queue:
        return queue.check(repair=repair, accept_loss=accept_loss)
