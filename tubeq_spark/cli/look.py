"""`tubeq health metrics history sessions tasks utubes why show`: the commands for operators."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tubeq_spark.cli import table
from tubeq_spark.cli.call import json_text, queue_of, tube_of
from tubeq_spark.cli.exit_codes import ExitCode
from tubeq_spark.cli.names import TubeName, Where
from tubeq_spark.cli.options import plain_options, seconds, whole
from tubeq_spark.cli.settle import Id
from tubeq_spark.model.stored_task import state_of
from tubeq_spark.task import Task, TaskState

if TYPE_CHECKING:
    import datetime as dt

    from tubeq_spark.cli.table import Column

#: The states, roughly in the order in which a task passes them.
_STATES = (
    TaskState.TAKEN,
    TaskState.READY,
    TaskState.DELAYED,
    TaskState.BURIED,
    TaskState.DONE,
)
_METRICS: dict[str, Column] = {
    **{name: name for name in ("tube", "type", "ready", "taken", "delayed", "buried")},
    "oldest": table.age("oldest_ready_age"),
    "failing": "failing_workers",
    "ending": "leases_ending",
    "unswept": "unswept",
    "since": table.age("unswept_age"),
    "commits": "commits",
    "log": "log_commits",
    "files": "files",
    "bytes": "size_bytes",
    "paused": table.paused,
}
#: An empty cell stands for the tasks that were put without a sub-queue.
_UTUBE: dict[str, Column] = {"utube": lambda row: '""' if row["utube"] == "" else row["utube"]}


def health(
    ctx: typer.Context,
    overdue: Annotated[float, seconds("How long the work of a sweep may wait")] = 300,
    drift: Annotated[float, seconds("How far clocks may be from the storage's")] = 5,
    files: Annotated[int, whole("Data files that a tube may have", least=1)] = 1_000,
) -> None:
    """List problems of the queue; exit 1 if there are any."""
    with queue_of(ctx) as (call, queue):
        found = queue.health(overdue=overdue, drift=drift, files=files)
        for problem in found.problems:
            about = problem.kind if problem.tube is None else f"{problem.kind}: {problem.tube}"
            call.show(asdict(problem), f"{about}: {problem.message}")
        if not found.ok:
            raise typer.Exit(ExitCode.NO)
        if not call.json:
            call.show({}, "no problems")


def metrics(
    ctx: typer.Context,
    ending_within: Annotated[float, seconds("Count leases that end within this time")] = 10,
    prometheus: Annotated[
        bool, typer.Option("--prometheus", help="Print Prometheus' text format (extra prometheus)")
    ] = False,
    port: Annotated[
        int | None,
        whole(
            "Serve that text to Prometheus until stopped; 0 = any free port", least=0, most=65_535
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address for --port; 0.0.0.0 = all addresses of this host")
    ] = "127.0.0.1",
) -> None:
    """Measure the tubes: depth, ages, leases, files, conflicts."""
    with queue_of(ctx) as (call, queue):
        if port is not None:
            from tubeq_spark.cli.exporter import serve  # noqa: PLC0415  as in call

            serve(call, queue, port, host, ending_within)
            return
        if prometheus:
            from tubeq_spark.prometheus import text  # noqa: PLC0415  the extra may be missing

            typer.echo(text(queue, ending_within=ending_within), nl=False)
            return
        tubes = queue.metrics(ending_within=ending_within).tubes
        found = [{"tube": name, **asdict(tube)} for name, tube in tubes.items()]
        table.show_each(call, found, _METRICS)


def history(
    ctx: typer.Context,
    tube: TubeName,
    limit: Annotated[int, whole("Commits at most", "-n", "--limit", least=1, most=2_000)] = 20,
) -> None:
    """List the newest commits to a tube.

    The newest first, with the verb, the number of tasks, and the session.
    """
    with tube_of(ctx, tube) as (call, source):
        from tubeq_spark.admin.tubes import context_of  # noqa: PLC0415  as in call
        from tubeq_spark.clock import from_us  # noqa: PLC0415
        from tubeq_spark.observe.progress import newest_commits  # noqa: PLC0415

        found = newest_commits(context_of(source), limit)
        rows = [asdict(commit) | {"at": from_us(commit.at_us)} for commit in found]
        names = ("version", "at", "operation", "tasks", "conflicts", "session", "statement")
        columns: dict[str, Column] = {**{name: name for name in names}, "at": _second("at")}
        table.show_each(call, [{name: row[name] for name in names} for row in rows], columns)


def sessions(ctx: typer.Context) -> None:
    """List sessions: host, process, lease and held tasks."""
    with queue_of(ctx) as (call, queue):
        found, now = queue.sessions(), call.outside.clock.now()

        def lease(row: dict[str, Any]) -> object:
            if row["until"] is None:
                return "never"
            left = (row["until"] - now).total_seconds()
            return table.Age(left) if left > 0 else f"ended {table.Age(-left)} ago"

        columns: dict[str, Column] = {
            "session": lambda row: str(row["uuid"]),
            "host": "host",
            "pid": lambda row: str(row["pid"]),
            "open for": lambda row: table.Age((now - row["since"]).total_seconds()),
            "lease ends in": lease,
            "holds": "holds",
            "of": lambda row: ", ".join(f"{tube}: {n:,}" for tube, n in row["tubes"].items()),
        }
        table.show_each(call, [asdict(info) for info in found], columns)


def _state(text: str) -> TaskState:
    found = state_of(text)
    if found is None:
        msg = f"must be one of {', '.join(state.name.lower() for state in TaskState)}"
        raise typer.BadParameter(msg)
    return found


def tasks(
    ctx: typer.Context,
    tube: TubeName,
    state: Annotated[
        TaskState | None,
        typer.Option(
            parser=_state,
            metavar="STATE",
            help="ready, taken, delayed, buried, done, or a letter [default: all]",
        ),
    ] = None,
    where: Where = None,
    limit: Annotated[int, whole("Tasks at most", "-n", "--limit", least=0)] = 20,
) -> None:
    """List tasks, by state and in the tube's order."""
    with tube_of(ctx, tube) as (call, source):
        from tubeq_spark.admin.tubes import perform_in  # noqa: PLC0415  as in call
        from tubeq_spark.tube import first_tasks  # noqa: PLC0415
        from tubeq_spark.verbs.read import count_matching  # noqa: PLC0415

        states = _STATES if state is None else (state,)
        found = list[Task]()
        for each in states:
            found += first_tasks(source, each, limit - len(found), where)
        if len(found) == limit:
            total = perform_in(source, lambda ctx: count_matching(ctx, where, states))
            if total > limit:
                call.tell(f"{limit:,} of {total:,} tasks shown; -n shows more")
        if call.json:
            call.show_tasks(found)
            return
        columns: dict[str, Column] = {
            "task_id": lambda row: str(row["task_id"]),
            "state": lambda row: row["state"].name.lower(),
            "pri": "pri",
            "utube": "utube",
            "attempts": "attempts",
            "created": _second("created"),
            "next": _second("next_event"),
            "data": lambda row: json_text(row["data"]),
        }
        if any(task.error is not None for task in found):
            columns["error"] = lambda row: (row["error"] or "").partition("\n")[0]
        table.show_each(call, [asdict(task) for task in found], columns)


def utubes(
    ctx: typer.Context,
    tube: TubeName,
    limit: Annotated[int, whole("Sub-queues at most", "-n", "--limit", least=0)] = 20,
    *,
    taken: Annotated[bool, typer.Option("--taken", help="Show only taken sub-queues")] = False,
) -> None:
    """Count the tasks of each sub-queue, the largest first."""
    with tube_of(ctx, tube) as (call, source):
        if taken:
            rows = source.taken_utubes().slice(0, limit).to_pylist()
            last: dict[str, Column] = {"last begun": _second("last_begun")}
            table.show_each(call, rows, _UTUBE | {"number": "number", "taken": "taken"} | last)
            return
        found, now = source.utubes(limit), call.outside.clock.now()
        counts: dict[str, Column] = {n: n for n in ("ready", "taken", "delayed", "buried")}
        counts["oldest"] = lambda row: table.Age((now - row["oldest"]).total_seconds())
        table.show_each(call, [asdict(each) for each in found], _UTUBE | counts)


def why(ctx: typer.Context, tube: TubeName, task_id: Id) -> None:
    """Say why a task is not handed out."""
    with tube_of(ctx, tube) as (call, source):
        said = source.why(task_id)
        call.show({"tube": tube, "task_id": str(task_id), "why": said}, said)


def show(ctx: typer.Context, tube: TubeName) -> None:
    """Show type, options, tasks and calls of a tube."""
    with queue_of(ctx) as (call, queue):
        from tubeq_spark.queue import typed_statistics  # noqa: PLC0415  as in call

        shown = queue.tube(tube)
        counts = typed_statistics(queue, tube)[tube]
        options = plain_options(shown.options)
        if call.json:
            call.show({"tube": tube, "table": shown.table, "options": options, **counts}, "")
            return
        said = {"tube": tube, "type": shown.type, "table": shown.table, "paused": shown.paused}
        given = {name: value for name, value in options.items() if value is not None}
        parts = {"": said, "options": given, "tasks": counts["tasks"], "calls": counts["calls"]}
        for title, of in parts.items():
            if title:
                call.show({}, f"{title}:")
            for name, value in of.items():
                call.show({}, f"{'  ' if title else ''}{name}: {_value(value)}")


def _value(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return value if isinstance(value, str) else json_text(value)


def _second(name: str) -> Column:
    """A column with a moment to the second, in UTC."""

    def shown(row: dict[str, Any]) -> str | None:
        moment: dt.datetime | None = row[name]
        return None if moment is None else f"{moment:%Y-%m-%dT%H:%M:%SZ}"

    return shown
