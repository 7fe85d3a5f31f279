"""`tubeq health metrics history sessions tasks utubes why show`: the commands for operators."""

from __future__ import annotations

from dataclasses import asdict
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tubeq_spark.cli.call import queue_of, tube_of
from tubeq_spark.cli.exit_codes import ExitCode
from tubeq_spark.cli.options import Where, flag, plain_options, seconds, whole, word
from tubeq_spark.cli.serve import serve_metrics
from tubeq_spark.cli.settle import Id
from tubeq_spark.cli.table import show_each
from tubeq_spark.cli.values import as_dict, json_text
from tubeq_spark.observe import columns
from tubeq_spark.task import Task, TaskState

if TYPE_CHECKING:
    from tubeq_spark.observe.columns import Columns

#: The states, roughly in the order in which a task passes them.
_STATES = (
    TaskState.TAKEN,
    TaskState.READY,
    TaskState.DELAYED,
    TaskState.BURIED,
    TaskState.DONE,
)
_METRICS = columns.of_tubes(
    "tube type ready taken delayed buried oldest failing ending unswept since commits log files bytes paused"
)
#: The columns of a taken-utube row.
_TAKEN: Columns = {
    "utube": lambda row: columns.utube(row["utube"]),
    "number": itemgetter("number"),
    "taken": itemgetter("taken"),
    "last begun": itemgetter("last_begun"),
}


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
    port: Annotated[
        int | None,
        whole("Serve them to Prometheus until stopped; 0 = any free port", least=0, most=65_535),
    ] = None,
    host: Annotated[
        str, word("HOST", "Address for --port; 0.0.0.0 = all addresses of this host")
    ] = "127.0.0.1",
) -> None:
    """Measure the tubes: depth, ages, leases, files, conflicts."""
    with queue_of(ctx) as (call, queue):
        if port is not None:
            serve_metrics(call, queue, port, host)
            return
        from tubeq_spark.observe.snapshot import with_flows  # noqa: PLC0415  as in call

        tubes = with_flows(queue.metrics(), None)
        show_each(
            call,
            [*tubes.values()],
            _METRICS,
            lambda tube: {"tube": tube.name, **asdict(tube.metrics)},
        )


def history(
    ctx: typer.Context,
    tube: str,
    limit: Annotated[int, whole("Commits at most", "-n", "--limit", least=1, most=2_000)] = 20,
) -> None:
    """List the newest commits to a tube.

    The newest first, with the verb, the number of tasks, and the session.
    """
    with tube_of(ctx, tube) as (call, source):
        from tubeq_spark.admin.tubes import context_of  # noqa: PLC0415  as in call
        from tubeq_spark.observe.minutes import newest_commits  # noqa: PLC0415

        found = newest_commits(context_of(source), limit)
        of = columns.COMMITS
        show_each(
            call,
            found,
            of,
            lambda commit: {name: columns.value_of(commit, column) for name, column in of.items()},
        )


def sessions(ctx: typer.Context) -> None:
    """List sessions: host, process, lease and held tasks."""
    with queue_of(ctx) as (call, queue):
        show_each(call, queue.sessions(), columns.sessions(call.outside.clock.now()))


def _state(text: str) -> TaskState:
    from tubeq_spark.model.stored_task import state_of  # noqa: PLC0415  imports Arrow

    found = state_of(text)
    if found is None:
        msg = f"must be one of {', '.join(state.name.lower() for state in TaskState)}"
        raise typer.BadParameter(msg)
    return found


def tasks(
    ctx: typer.Context,
    tube: str,
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
        shown: dict[str, columns.Column] = {
            "task_id": lambda task: str(task.task_id),
            "state": lambda task: task.state.name.lower(),
            **{name: name for name in ("pri", "utube", "attempts", "created")},
            "next": "next_event",
            "data": lambda task: json_text(task.data),
        }
        if any(task.error is not None for task in found):
            shown["error"] = lambda task: (task.error or "").partition("\n")[0]
        show_each(call, found, shown, as_dict)


def utubes(
    ctx: typer.Context,
    tube: str,
    limit: Annotated[int, whole("Sub-queues at most", "-n", "--limit", least=0)] = 20,
    *,
    taken: Annotated[bool, flag("--taken", "Show only taken sub-queues")] = False,
) -> None:
    """Count the tasks of each sub-queue, the largest first."""
    with tube_of(ctx, tube) as (call, source):
        if taken:
            show_each(call, source.taken_utubes().slice(0, limit).to_pylist(), _TAKEN, dict)
        else:
            show_each(call, source.utubes(limit), columns.utubes(call.outside.clock.now()))


def why(ctx: typer.Context, tube: str, task_id: Id) -> None:
    """Say why a task is not handed out."""
    with tube_of(ctx, tube) as (call, source):
        said = source.why(task_id)
        call.show({"tube": tube, "task_id": str(task_id), "why": said}, said)


def show(ctx: typer.Context, tube: str) -> None:
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
