"""`tubeq verify`: judges the commits that the logs of the tubes still have."""

from __future__ import annotations

import datetime as dt
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tubeq_spark.cli.exit_codes import ExitCode
from tubeq_spark.cli.options import moment
from tubeq_spark.cli.values import plural

if TYPE_CHECKING:
    from tubeq_spark.cli.call import Call
    from tubeq_spark.model.reports import VerifyReport, Violation


def verify(
    ctx: typer.Context,
    tube: Annotated[str | None, typer.Argument(help="Only this tube, which may be dropped")] = None,
    since: Annotated[
        dt.datetime | None,
        moment("Only commits from this moment on (UTC)"),
    ] = None,
    until: Annotated[
        dt.datetime | None,
        moment("Only commits before this moment (UTC)"),
    ] = None,
) -> None:
    """Judge the stored commits; exit 1 if one broke a rule.

    It lists each commit that lost or duplicated a task, gave it to two consumers, broke an order or a limit, or has
    wrong counts. It only reads. If a file is damaged, it judges what it can read, and ends with 3.
    """
    call: Call = ctx.obj
    with call.answering():
        report = _report(call, tube, since, until)
        _show(call, report)


def _report(
    call: Call, tube: str | None, since: dt.datetime | None, until: dt.datetime | None
) -> VerifyReport:
    from tubeq_spark.verify.verify import verify as judge  # noqa: PLC0415  other calls are quick

    # The queue need not open, and no session is made.
    opened = call.on_local_files()
    if opened is not None:
        return judge(opened, tube, since, until)
    with call.queue() as queue:
        return queue.verify(tube, since=since, until=until)


def _show(call: Call, report: VerifyReport) -> None:
    """Print the violations, and end with an exit code that shows whether there are some."""
    for violation in report.violations:
        call.show(asdict(violation), _sentence(violation))
    for text in report.unread:
        call.show({"unread": text}, f"not judged: {text}")
    found = len(report.violations)
    part = " in the part that could be read" if report.unread else ""
    judged = f"{plural(report.commits, 'commit')}, {plural(report.tasks, 'task')}"
    call.show(
        {"commits": report.commits, "tasks": report.tasks, "violations": found},
        f"{judged}: {plural(found, 'violation') if found else 'no violations'}{part}",
    )
    if report.damaged:
        call.tell("files are damaged or missing: `tubeq check` says what can be repaired")
        raise typer.Exit(ExitCode.FAILED)
    if report.violations:
        raise typer.Exit(ExitCode.NO)


def _sentence(violation: Violation) -> str:
    task = "" if violation.task_id is None else f"task {violation.task_id}: "
    return (
        f"{violation.tube}, version {violation.version}, {violation.rule}: {task}{violation.text}"
    )
