"""`tubeq health metrics history sessions tasks utubes why show`: the commands for operators."""

from __future__ import annotations

from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tubeq_spark.cli.call import Call, as_dict, json_text
from tubeq_spark.cli.names import TubeName
from tubeq_spark.cli.options import plain_options
from tubeq_spark.cli.program import ExitCode
from tubeq_spark.cli.settle import Id
from tubeq_spark.markup import printable
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Sequence

    from tubeq_spark.model.reports import SessionInfo, TubeMetrics, UtubeCounts
    from tubeq_spark.storage.note import Commit
    from tubeq_spark.task import Task

#: The states, roughly in the order in which a task passes them.
_STATES = (
    TaskState.TAKEN,
    TaskState.READY,
    TaskState.DELAYED,
    TaskState.BURIED,
    TaskState.DONE,
)
_METRICS = {
    "tube": "left", "type": "left", "ready": "right", "taken": "right", "delayed": "right",
    "buried": "right", "oldest": "right", "ending": "right", "unswept": "right", "since": "right",
    "commits": "right", "log": "right", "files": "right", "bytes": "right",
    "paused": "left",
}  # fmt: skip


def health(
    ctx: typer.Context,
    overdue: Annotated[
        float, typer.Option(min=0, help="Seconds that the work of a sweep may wait")
    ] = 300,
    drift: Annotated[
        float, typer.Option(min=0, help="Seconds that clocks may be from the storage's")
    ] = 5,
    files: Annotated[int, typer.Option(min=1, help="Data files that a tube may have")] = 1_000,
) -> None:
    """Say what wants attention: exit code 1 if anything does."""
    call: Call = ctx.obj
    with call.queue() as queue:
        found = queue.health(overdue=overdue, drift=drift, files=files)
        for problem in found.problems:
            about = problem.kind if problem.tube is None else f"{problem.kind}: {problem.tube}"
            call.show(asdict(problem), f"{about}: {problem.message}")
        if not found.ok:
            raise typer.Exit(ExitCode.PROBLEMS)
        if not call.json:
            call.show({}, "nothing wants attention")


def metrics(
    ctx: typer.Context,
    ending_within: Annotated[
        float, typer.Option(min=0, help="Seconds in which a lease counts as ending")
    ] = 10,
    prometheus: Annotated[
        bool, typer.Option("--prometheus", help="As Prometheus' text (extra prometheus)")
    ] = False,
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65_535,
            help="Serve that text to Prometheus until Ctrl-C; 0 is any port that is free",
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address that --port listens on; 0.0.0.0: all of this host")
    ] = "127.0.0.1",
) -> None:
    """Measure the tubes: depth, ages, leases, files and conflicts."""
    call: Call = ctx.obj
    with call.queue() as queue:
        if port is not None:
            from tubeq_spark.cli.exporter import serve  # noqa: PLC0415  as in call

            serve(call, queue, port, host, ending_within)
            return
        if prometheus:
            from tubeq_spark.prometheus import text  # noqa: PLC0415  the extra may be missing

            typer.echo(text(queue, ending_within=ending_within), nl=False)
            return
        found = queue.metrics(ending_within=ending_within).tubes
        if call.json:
            for name, tube in found.items():
                call.show({"tube": name, **_plain(asdict(tube))}, "")
        else:
            _print([*_METRICS], [_row_of_metrics(name, tube) for name, tube in found.items()])


def _row_of_metrics(name: str, tube: TubeMetrics) -> list[Any]:
    from tubeq_spark.cli.top import PAUSED, age  # noqa: PLC0415  as in call

    return [
        name,
        tube.type,
        tube.ready,
        tube.taken,
        tube.delayed,
        tube.buried,
        age(tube.oldest_ready_age),
        tube.leases_ending,
        tube.unswept,
        age(tube.unswept_age),
        tube.commits,
        tube.log_commits,
        tube.files,
        tube.size_bytes,
        PAUSED[tube.paused],
    ]


def history(
    ctx: typer.Context,
    tube: TubeName,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, max=2_000, help="Commits")] = 20,
) -> None:
    """Show the newest commits to a tube, the newest first: which verb, of how many tasks, whose."""
    call: Call = ctx.obj
    with call.queue() as queue:
        from tubeq_spark.admin.tubes import context_of  # noqa: PLC0415  as in call
        from tubeq_spark.observe.progress import newest_commits  # noqa: PLC0415  as in call

        found = newest_commits(context_of(queue.tube(tube)), limit)
        if call.json:
            for commit in found:
                call.show(_commit(commit), "")
            return
        names = ["version", "at", "operation", "tasks", "conflicts", "session", "statement"]
        rows = [[_commit(commit)[name] for name in names] for commit in found]
        _print(names, [[row[0], _second(row[1]), *row[2:]] for row in rows])


def _commit(commit: Commit) -> dict[str, Any]:
    from tubeq_spark.model.times import from_us  # noqa: PLC0415  as in call

    at = from_us(commit.at_us)
    return {
        "version": commit.version,
        "at": None if at is None else at.isoformat(),
        "operation": commit.operation,
        "session": commit.session,
        "tasks": commit.tasks,
        "conflicts": commit.conflicts,
        "statement": commit.statement,
    }


def sessions(ctx: typer.Context) -> None:
    """Show who is there: host and process of each queue object, its lease, and what it holds."""
    call: Call = ctx.obj
    with call.queue() as queue:
        found, now = queue.sessions(), call.outside.clock.now()
        if call.json:
            for info in found:
                call.show(_plain(asdict(info)), "")
            return
        names = ["session", "host", "pid", "open for", "lease ends in", "holds", "of"]
        _print(names, [_row_of_session(info, now) for info in found])


def _row_of_session(info: SessionInfo, now: dt.datetime) -> list[Any]:
    from tubeq_spark.cli.top import age  # noqa: PLC0415  as in call

    left = None if info.until is None else (info.until - now).total_seconds()
    return [
        str(info.uuid),
        info.host,
        str(info.pid),
        age((now - info.since).total_seconds()),
        "never" if left is None else age(left) if left > 0 else f"ended {age(-left)} ago",
        info.holds,
        ", ".join(f"{tube}: {count:,}" for tube, count in info.tubes.items()),
    ]


def _state(text: str) -> TaskState:
    by_name = {state.name.lower(): state for state in TaskState}
    by_letter = {state.value: state for state in TaskState}
    found = by_name.get(text.lower()) or by_letter.get(text)
    if found is None:
        msg = f"must be one of {', '.join(by_name)}"
        raise typer.BadParameter(msg)
    return found


def tasks(
    ctx: typer.Context,
    tube: TubeName,
    state: Annotated[
        TaskState | None,
        typer.Option(
            parser=_state, metavar="STATE", help="ready, taken, delayed, buried or done; else all"
        ),
    ] = None,
    limit: Annotated[int, typer.Option("-n", "--limit", min=0, help="Tasks at most")] = 20,
) -> None:
    """List tasks, in the tube's order within each state."""
    call: Call = ctx.obj
    with call.queue() as queue:
        source = queue.tube(tube)
        states = _STATES if state is None else (state,)
        found = list(islice((t for each in states for t in source.tasks_by_state(each)), limit))
        if call.json:
            call.show_tasks(found)
        else:
            names = ["task_id", "state", "pri", "utube", "attempts", "created", "next", "data"]
            rows = [_row_of_task(task) for task in found]
            if any(task.error is not None for task in found):
                names.append("error")
                rows = [[*row, _first_line(t.error)] for row, t in zip(rows, found, strict=True)]
            _print(names, rows)


def _first_line(error: str | None) -> str | None:
    return None if error is None else printable(error.partition("\n")[0])


def _row_of_task(task: Task) -> list[Any]:
    shown = as_dict(task)
    return [
        shown["task_id"],
        task.state.name.lower(),
        task.pri,
        task.utube,
        task.attempts,
        _second(shown["created"]),
        _second(shown["next_event"]),
        json_text(task.data),
    ]


def utubes(
    ctx: typer.Context,
    tube: TubeName,
    limit: Annotated[int, typer.Option("-n", "--limit", min=0, help="Sub-queues at most")] = 20,
    *,
    taken: Annotated[bool, typer.Option("--taken", help="Show the taken-utube rows")] = False,
) -> None:
    """Count the tasks of each sub-queue, those with the most tasks first."""
    call: Call = ctx.obj
    with call.queue() as queue:
        if taken:
            _show_taken(call, queue.tube(tube).taken_utubes().slice(0, limit).to_pylist())
            return
        found, now = queue.tube(tube).utubes(limit), call.outside.clock.now()
        if call.json:
            for counts in found:
                call.show(_plain(asdict(counts)), "")
        else:
            names = ["utube", "ready", "taken", "delayed", "buried", "oldest"]
            _print(names, [_row_of_utube(counts, now) for counts in found])


def _show_taken(call: Call, rows: Sequence[dict[str, Any]]) -> None:
    """Show the taken-utube rows."""
    if call.json:
        for row in rows:
            call.show(_plain(row), "")
        return
    shown = [
        [
            '""' if row["utube"] == "" else row["utube"],
            row["number"],
            row["taken"],
            _second(row["last_begun"]),
        ]
        for row in rows
    ]
    _print(["utube", "number", "taken", "last begun"], shown)


def _row_of_utube(counts: UtubeCounts, now: dt.datetime) -> list[Any]:
    from tubeq_spark.cli.top import age  # noqa: PLC0415  as in call

    return [
        # An empty cell stands for the tasks that were put without a sub-queue.
        '""' if counts.utube == "" else counts.utube,
        counts.ready,
        counts.taken,
        counts.delayed,
        counts.buried,
        age((now - counts.oldest).total_seconds()),
    ]


def why(ctx: typer.Context, tube: TubeName, task_id: Id) -> None:
    """Say why a task is not being handed out."""
    call: Call = ctx.obj
    with call.queue() as queue:
        said = queue.tube(tube).why(task_id)
        call.show({"tube": tube, "task_id": str(task_id), "why": said}, said)


def show(ctx: typer.Context, tube: TubeName) -> None:
    """Show one tube: its type and options, its tasks, and the calls of its verbs."""
    call: Call = ctx.obj
    with call.queue() as queue:
        from tubeq_spark.queue import typed_statistics  # noqa: PLC0415  as in call

        shown = queue.tube(tube)
        counts = typed_statistics(queue, tube)[tube]
        options = plain_options(shown.options)
        if call.json:
            call.show({"tube": tube, "table": shown.table, "options": options, **counts}, "")
            return
        said = {"tube": tube, "type": shown.type, "table": shown.table, "paused": shown.paused}
        given = {name: value for name, value in options.items() if value is not None}
        for title, of in (
            ("", said),
            ("options", given),
            ("tasks", counts["tasks"]),
            ("calls", counts["calls"]),
        ):
            if title:
                call.show({}, f"{title}:")
            for name, value in of.items():
                call.show({}, f"{'  ' if title else ''}{name}: {_value(value)}")


def _value(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return value if isinstance(value, str) else json_text(value)


def _plain(found: dict[str, Any]) -> dict[str, Any]:
    """Values for JSON: moments as ISO 8601, and other values that JSON does not have as text."""
    return {
        name: value.isoformat() if hasattr(value, "isoformat") else value
        for name, value in found.items()
    }


def _second(moment: str | None) -> str | None:
    """A moment to the second, in UTC."""
    return None if moment is None else f"{moment[:19]}Z"


def _print(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    from tubeq_spark.cli.top import plain_table, print_table  # noqa: PLC0415  as in call

    print_table(plain_table(names, rows))
