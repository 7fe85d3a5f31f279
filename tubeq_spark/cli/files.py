"""`tubeq check verify copy`: the commands that read all files of a queue."""

from __future__ import annotations

import datetime as dt
from dataclasses import asdict, replace
from typing import Annotated

import typer

from tubeq_spark.cli.call import Call
from tubeq_spark.cli.exit_codes import ExitCode
from tubeq_spark.cli.options import flag, moment
from tubeq_spark.markup import plural


def check(
    ctx: typer.Context,
    location: Annotated[
        str | None, typer.Argument(help="Location of the queue [default: --location]")
    ] = None,
    repair: Annotated[bool, flag("--repair", "Repair damage that costs no task")] = False,
    accept_loss: Annotated[
        bool, flag("--accept-loss", "With --repair: repair the rest, too, and list the lost tasks")
    ] = False,
) -> None:
    """Check all tables; exit 1 if damage remains.

    Without --repair it only reads. It also works if the queue cannot be opened any more.
    """
    call: Call = ctx.obj
    if location is not None:
        call = replace(call, settings=replace(call.settings, location=location))
    from tubeq_spark.storage import check as storage  # noqa: PLC0415  as in call

    opened = call.on_local_files()
    if opened is None:
        with call.queue() as queue:
            report = queue.check(repair=repair, accept_loss=accept_loss)
    else:
        report = storage.check(opened, repair=repair, accept_loss=accept_loss)
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


def verify(
    ctx: typer.Context,
    tube: Annotated[str | None, typer.Argument(help="Only this tube, which may be dropped")] = None,
    since: Annotated[dt.datetime | None, moment("Only commits from this moment on (UTC)")] = None,
    until: Annotated[dt.datetime | None, moment("Only commits before this moment (UTC)")] = None,
) -> None:
    """Judge the stored commits; exit 1 if one broke a rule.

    It lists each commit that lost or duplicated a task, gave it to two consumers, broke an order or a limit, or has
    wrong counts. It only reads. If a file is damaged, it judges what it can read, and ends with 3.
    """
    call: Call = ctx.obj
    from tubeq_spark.verify.verify import verify as judge  # noqa: PLC0415  as in call

    # The queue need not open, and no session is made.
    opened = call.on_local_files()
    if opened is None:
        with call.queue() as queue:
            report = queue.verify(tube, since=since, until=until)
    else:
        report = judge(opened, tube, since, until)
    for of in report.violations:
        task = "" if of.task_id is None else f"task {of.task_id}: "
        call.show(asdict(of), f"{of.tube}, version {of.version}, {of.rule}: {task}{of.text}")
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


def copy(
    ctx: typer.Context,
    source: Annotated[
        str, typer.Argument(metavar="FROM", help="Location of the queue, a path or URI")
    ],
    target: Annotated[str, typer.Argument(metavar="TO", help="Empty target path or URI")],
    close: Annotated[bool, flag("--close", "Close the old place: it refuses changes")] = False,
) -> None:
    """Copy a queue to a new place.

    Ids, put keys, unique keys, counts and times are kept. First stop all programs of the queue, or pass --close. An
    interrupted copy cannot be opened: remove its files, and copy again.
    """
    call: Call = ctx.obj
    settings = replace(call.settings, location=source, engine="native", remote=None)
    with replace(call, settings=settings).queue() as queue:
        report = queue.copy_to(target, close=close)
        for name, tasks in report.tubes.items():
            call.show({"tube": name, "tasks": tasks}, f"{name}: {plural(tasks, 'task')}")
        if not close:
            call.tell(f"{source} stays open: use only one of the two from now on")
