"""`tubeq verify`: judges the commits that the logs of the tubes still have."""

from __future__ import annotations

import datetime as dt
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tubeq_spark.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from tubeq_spark.cli.call import Call
    from tubeq_spark.model.reports import VerifyReport, Violation

_FORMATS = ["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S.%f"]


def verify(
    ctx: typer.Context,
    tube: Annotated[str | None, typer.Argument(help="Only this tube, also a dropped one")] = None,
    since: Annotated[
        dt.datetime | None,
        typer.Option("--since", formats=_FORMATS, help="Only commits from this moment on (UTC)"),
    ] = None,
    until: Annotated[
        dt.datetime | None,
        typer.Option("--until", formats=_FORMATS, help="Only commits before this moment (UTC)"),
    ] = None,
) -> None:
    """Judge the commits that the logs still have: exit code 1 if one broke a rule.

    It says by which commit a task was lost, came twice or was held twice, by which an order or a limit was broken, and
    whose counts are wrong. It only reads.
    """
    call: Call = ctx.obj
    with call.answering():
        report = _report(call, tube, _utc(since), _utc(until))
        _show(call, report)


def _utc(moment: dt.datetime | None) -> dt.datetime | None:
    return None if moment is None else moment.replace(tzinfo=dt.UTC)


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
    violations = "1 violation" if found == 1 else f"{found or 'no'} violations"
    call.show(
        {"commits": report.commits, "tasks": report.tasks, "violations": found},
        f"{report.commits} commits, {report.tasks} tasks: {violations}",
    )
    if report.violations:
        raise typer.Exit(ExitCode.NO)


def _sentence(violation: Violation) -> str:
    task = "" if violation.task_id is None else f"task {violation.task_id}: "
    return (
        f"{violation.tube}, version {violation.version}, {violation.rule}: {task}{violation.text}"
    )
