"""`tubeq work`: calls a function or runs a command for each task, in threads and processes, until it is stopped."""

from __future__ import annotations

import json
import os
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tubeq_spark.cli.call import Call, until_stopped
from tubeq_spark.cli.exit_codes import BadUseError, ExitCode
from tubeq_spark.cli.options import TakenUtubes, flag, seconds, whole
from tubeq_spark.cli.program import load_function, log
from tubeq_spark.markup import plural
from tubeq_spark.model.validation import is_async

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from signal import Signals

    from tubeq_spark.task import Task
    from tubeq_spark.tube import Tube
    from tubeq_spark.workers.handlers import WorkReport
    from tubeq_spark.workers.processes import Death

#: Seconds between two lines about the progress.
_TELL = 10.0
#: A process may run for this many seconds more than the time limit: a cancelled coroutine may end slowly, and a child
#: whose parent has died still settles its tasks.
_MORE = 30.0


def work(
    ctx: typer.Context,
    tube: str,
    function: Annotated[
        str | None,
        typer.Argument(
            metavar="MODULE:FUNCTION",
            help="Function of a task (with --batch: of a list of tasks); modules are searched in the "
            "working directory, too",
        ),
    ] = None,
    command: Annotated[
        str | None,
        typer.Option(
            "--exec",
            metavar="CMD",
            help="Run this command for each task, instead of a function; exit code 0 is success. It "
            "gets the data as JSON on standard input, the whole task in the file $TUBEQ_TASK_FILE, "
            "and $TUBEQ_TASK_ID, $TUBEQ_ATTEMPTS. For pipes use sh -c '...'",
        ),
    ] = None,
    threads: Annotated[int, whole("Calls at a time in each process", least=1)] = 1,
    processes: Annotated[int, whole("Processes; 2 or more replace a dead one", least=1)] = 1,
    batch: Annotated[int, whole("Tasks of a call at most", least=1)] = 1,
    per_utube: Annotated[int, whole("Tasks of one sub-queue at most", least=1)] = 1,
    utube: TakenUtubes = None,
    idle: Annotated[
        float | None,
        seconds("End after this time without a task, or give up if all calls fail for as long"),
    ] = None,
    bury: Annotated[bool, flag("--bury", "Bury failed tasks, instead of retrying them")] = False,
    time_limit: Annotated[
        float | None,
        seconds(
            "A call that takes longer has failed: its process is killed and started again "
            "(a coroutine is cancelled, a command is killed)"
        ),
    ] = None,
    strict: Annotated[bool, flag("--strict", "Exit with 4 if tasks failed or were buried")] = False,
    report_to: Annotated[int | None, typer.Option(hidden=True, parser=int)] = None,
) -> None:
    """Call a function, or run a command, for each task.

    Ack the task on success, retry it on an exception. SIGTERM and Ctrl-C end it after the running calls; a second
    signal releases their tasks. When ten tasks in a row have failed, it waits 10 seconds, then longer, and tries one
    task after each wait; exit code 3 if it gives up.
    """
    call: Call = ctx.obj
    if (function is None) is (command is None) or (command and batch > 1):
        raise BadUseError("it needs a function, or --exec without --batch")
    if command is None:
        handler = load_function(function or "", Path.cwd())
    else:
        from tubeq_spark.cli.exec_handler import handler_of  # noqa: PLC0415  imports asyncio

        handler = handler_of(command)
    options: dict[str, Any] = {
        "threads": threads,
        "batch": batch,
        "per_utube": per_utube,
        "utube": utube or None,
        "idle": idle,
        "on_error": "bury" if bury else "release",
        "time_limit": time_limit,
    }
    if report_to is not None:
        _child(call, tube, handler, options, report_to)
        return
    if processes > 1 or (time_limit is not None and not is_async(handler)):
        limit = float("inf") if time_limit is None else time_limit
        limit += _MORE * is_async(handler)
        _show(call, tube, *_parent(call, tube, processes, limit, bury), strict=strict)
        return
    # A signal that comes before the loop begins ends the command at once.
    with until_stopped(), call.queue() as queue, call.logged(tube):
        signals: list[Signals] = []
        ears = {"progress": _teller(), "stopping": _log_stop, "cut_off": signals.append}
        report = _run(queue.tube(tube), handler, options, None, **ears)
        _show(call, tube, report, signals[0] if signals else None, strict=strict)


def _run(
    tube: Tube, handler: Any, options: dict[str, Any], stop: threading.Event | None, **ears: Any
) -> WorkReport:
    """Run the loop in this process, with these functions of `Ears`."""
    from tubeq_spark.workers.handlers import Ears  # noqa: PLC0415  calls that need none are quick
    from tubeq_spark.workers.start import work as run  # noqa: PLC0415

    return run(tube, handler, stop=stop, ears=Ears(**ears), **options)


def _teller() -> Callable[[WorkReport], None]:
    """A function that logs the progress now and then, if there is any."""
    told, counted = 0.0, (0, 0, 0)

    def tell(report: WorkReport) -> None:
        nonlocal told, counted
        counts = report.done, report.failed, report.buried
        if report.seconds - told >= _TELL and counts != counted:
            told, counted = report.seconds, counts
            log.info("%s", _sentence(report))

    return tell


def _log_stop(calls: int) -> None:
    """Log that the loop ends after its running calls."""
    log.info("stopping: %s in hand", plural(calls, "call"))


def _sentence(report: WorkReport, died: int = 0) -> str:
    # What a process has done since its last line, some moments before its end, is not known.
    return (
        "gave up: " * report.gave_up
        + f"{'at least ' * bool(died)}{report.done:,} done, {report.failed:,} failed, "
        + f"{report.buried:,} buried in {report.seconds:,.1f} s"
        + f"; worker processes that died: {died}" * bool(died)
    )


def _show(
    call: Call,
    tube: str,
    report: WorkReport,
    cut_off: Signals | None,
    died: int = 0,
    *,
    strict: bool,
) -> None:
    """Print the report, and end with an exit code.

    Args:
        call: The call.
        tube: The name of the tube.
        report: The report.
        cut_off: The first signal, if a second one cut off running calls.
        died: How many worker processes have died.
        strict: Whether failed tasks change the exit code.
    """
    found = {"tube": tube} | asdict(report) | {"seconds": round(report.seconds, 3), "died": died}
    call.show(found, _sentence(report, died))
    if cut_off is not None:
        raise typer.Exit(128 + cut_off)
    if report.gave_up:
        raise typer.Exit(ExitCode.FAILED)
    if strict and report.failed + report.buried:
        raise typer.Exit(ExitCode.TASKS_FAILED)


# -- processes ---------------------------------------------------------------------------------------


def _parent(
    call: Call, tube: str, processes: int, time_limit: float, buries: bool
) -> tuple[WorkReport, Signals | None, int]:
    """Run the same command in children.

    Returns:
        Their report, the first signal if a second one cut them off, and how many died.
    """
    from tubeq_spark.clock import SystemClock  # noqa: PLC0415  calls that need none are quick
    from tubeq_spark.runtime.stopping import Stop  # noqa: PLC0415
    from tubeq_spark.workers import processes as pool  # noqa: PLC0415

    def give_back(death: Death) -> int:
        # Errors of this queue need not end the call, and `stop` handles signals.
        with call.queue(death.session) as queue:
            return pool.settle_death(queue.tube(tube), death, buries=buries)

    stop = Stop()
    # A child repeats this call with further options. `--` would end the options, and is not needed, because no
    # argument begins with a dash.
    arguments = [argument for argument in sys.argv[1:] if argument != "--"]
    run = pool.Processes(
        [sys.executable, "-m", "tubeq_spark.cli", *arguments, "--report-to"],
        processes,
        stop=stop,
        clock=SystemClock(),
        give_back=give_back,
        told=_teller(),
        time_limit=time_limit,
    )
    try:
        with stop.on_signals(), call.logged(tube):
            report = run.run()
    except pool.ChildFailedError as error:
        raise typer.Exit(error.code) from None
    return report, stop.signal if run.has_cut_off else None, run.died


def _child(call: Call, tube: str, handler: Any, options: dict[str, Any], pipe: int) -> None:
    """Work in a child process, and report to the parent by lines of JSON in a pipe."""
    parent, limit = os.getppid(), options["time_limit"]
    stop = threading.Event()
    # Long lines are not written at once, so they must not be mixed with others.
    writing = threading.Lock()

    def leave() -> None:
        """End because the parent has ended: no process would restart or end this one any more."""
        if limit is not None and not stop.is_set():
            # What still runs then is an overdue call. Its task comes back when its lease ends.
            end = threading.Timer(limit + _MORE, os._exit, [ExitCode.FAILED])
            end.daemon = True
            end.start()
        stop.set()

    def say(said: dict[str, Any]) -> None:
        try:
            with writing:
                os.write(pipe, f"{json.dumps(said)}\n".encode())
        except BrokenPipeError:
            leave()

    def tell(report: WorkReport) -> None:
        if os.getppid() != parent:
            leave()
        say(asdict(report))

    with call.queue() as queue, call.logged(tube):

        def watch(tasks: Sequence[Task], begins: bool) -> None:
            attempts = [(task.task_id, task.attempts) for task in tasks]
            say({"begun" if begins else "over": attempts})

        def stopping(calls: int) -> None:
            _log_stop(calls)
            say({"stopping": calls})

        # The parent settles the tasks of this process when it has died.
        say({"session": str(queue.session_uuid)})
        ears: dict[str, Any] = {
            "progress": tell,
            "calls": watch,
            "stopping": stopping,
            "cut_off": lambda by: say({"cut_off": by}),
            "hands_on": True,
        }
        tell(_run(queue.tube(tube), handler, options, stop, **ears))
