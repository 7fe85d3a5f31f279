"""`tubeq take`: takes tasks for a shell, to print them or to run a command for each.

A session ends with its process, and then its tasks are released. So a call that takes a task must also settle
it. It acks the task after printing it, or after a command has done it, or it leaves the session alive, so that a
later call can ack the task.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from tubeq_spark.cli.call import Call, as_dict, json_text, queue_of
from tubeq_spark.cli.exit_codes import ExitCode
from tubeq_spark.cli.names import Strict, TakenUtubes, TubeName, fail_if_strict
from tubeq_spark.cli.options import seconds, whole
from tubeq_spark.errors import InvalidOptionError, TubeqError
from tubeq_spark.model import validation

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from tubeq_spark.task import Task
    from tubeq_spark.tube import Tube

#: The most bytes of a variable. Linux allows at most 131,072 for one, and some megabytes for all of them.
_VARIABLE_MOST = 32_768


def take(
    ctx: typer.Context,
    tube: TubeName,
    count: Annotated[int, whole("Tasks at most", "-n", "--count", least=1)] = 1,
    timeout: Annotated[float, seconds("How long to wait for a task")] = 0,
    per_utube: Annotated[int, whole("Tasks of one sub-queue at most", least=1)] = 1,
    utube: TakenUtubes = None,
    command: Annotated[
        str | None,
        typer.Option(
            "--exec",
            metavar="CMD",
            help="Run this command for each task: ack it on exit code 0, else release it and stop. "
            "The command gets the data as JSON on standard input, the whole task in the file "
            "$TUBEQ_TASK_FILE, and $TUBEQ_TASK_ID, $TUBEQ_ATTEMPTS, $TUBEQ_UTUBE (at most 32,768 "
            "bytes, no NUL). The lease is renewed meanwhile. For pipes use sh -c '...'",
        ),
    ] = None,
    bury: Annotated[
        bool, typer.Option("--bury", help="With --exec: bury failed tasks, and go on")
    ] = False,
    delay: Annotated[float, seconds("With --exec: delay of failed tasks")] = 0,
    strict: Strict = False,
    keep: Annotated[
        float | None,
        seconds(
            "Leave them taken for this time (at most their ttr); ack or release them with the "
            "session that is printed"
        ),
    ] = None,
) -> None:
    """Take tasks, print them, and remove them (ack).

    With --exec a command processes each task; with --keep a later call acks them.
    """
    with queue_of(ctx) as (call, queue):
        source = queue.tube(tube)
        if command is not None:
            if keep is not None:
                msg = (
                    "--keep and --exec exclude each other: with --exec the exit code acks the task"
                )
                raise InvalidOptionError(msg)
            # Without tasks this only checks the delay, which must be valid before a command runs.
            source.release_many([], delay=delay or None)
            words = _words_of(command)
            take_next = partial(source.take, timeout, utube=utube or None)
            found = islice(iter(take_next, None), count)
            done, failed = _work(call, source, found, words, delay=delay or None, bury=bury)
            if not done and not failed:
                raise typer.Exit(ExitCode.NO)
            fail_if_strict(failed, strict=strict)
            return
        if bury or delay or strict:
            raise InvalidOptionError("--bury, --delay and --strict need --exec")
        kept_for = None if keep is None else validation.lease("keep", keep)
        tasks = source.take_many(count, timeout=timeout, per_utube=per_utube, utube=utube or None)
        if not tasks:
            raise typer.Exit(ExitCode.NO)
        if kept_for is not None:
            try:
                # The session is handed over before its tasks are printed, so that a reader can settle them at once.
                call.show_tasks(tasks, queue.hand_over(kept_for))
            except BaseException:
                # The tasks were not printed, so no later call could know the session.
                _give_back(call, source, queue.session_uuid, tasks)
                raise
            return
        call.show_tasks(tasks)
        source.ack_many([task.task_id for task in tasks])


def _give_back(call: Call, source: Tube, session: UUID, tasks: list[Task]) -> None:
    """Release tasks that were handed over to a session. If that fails, they come back when it ends."""
    with suppress(TubeqError), call.opened(session) as queue:
        queue.tube(source.name).release_many([task.task_id for task in tasks])


def _words_of(command: str) -> list[str]:
    """The words of a command, which is checked before a task is taken.

    Raises:
        InvalidOptionError: The program of the command does not exist.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InvalidOptionError(f"--exec {command!r}: {error}") from None
    if not words or shutil.which(words[0]) is None:
        raise InvalidOptionError(f"--exec {command!r}: no such program")
    return words


def _exit_code(words: list[str], source: Tube, task: Task) -> int:
    """Run a command for a task; return its exit code.

    While the command runs, the task's lease is renewed. Its `ttl` and `ttr` stay as they were put.
    """
    from tubeq_spark.verbs.settle import RENEW  # noqa: PLC0415  as in call

    # Two thirds of the ttr are left if a renewal is late.
    pause = None if task.ttr is None else task.ttr / 3
    with (
        tempfile.NamedTemporaryFile(prefix="tubeq-task-", suffix=".json") as whole,
        tempfile.TemporaryFile() as data,
    ):
        whole.write(f"{json_text(as_dict(task))}\n".encode())
        whole.flush()
        data.write(f"{json_text(task.data)}\n".encode())
        data.seek(0)
        surroundings = os.environ | _variables(task) | {"TUBEQ_TASK_FILE": whole.name}
        # The words are those of the user, and no shell parses them.
        with subprocess.Popen(words, stdin=data, env=surroundings) as process:  # noqa: S603
            try:
                while True:
                    with suppress(subprocess.TimeoutExpired):
                        return process.wait(pause)
                    # A lost task, or a failure of the storage, is reported when the command has ended.
                    with suppress(TubeqError):
                        source._settle(RENEW, [task.task_id], "touch")  # noqa: SLF001  (as `work` does)
            except BaseException:
                process.kill()
                raise


def _variables(task: Task) -> dict[str, str]:
    """The environment variables for a task. Values that no environment can have are left out."""
    variables = {"TUBEQ_TASK_ID": str(task.task_id), "TUBEQ_ATTEMPTS": str(task.attempts)}
    utube = task.utube
    if utube is not None and "\0" not in utube and len(utube.encode()) <= _VARIABLE_MOST:
        variables["TUBEQ_UTUBE"] = utube
    return variables


def _work(
    call: Call,
    source: Tube,
    tasks: Iterator[Task],
    words: list[str],
    *,
    delay: float | None,
    bury: bool,
) -> tuple[int, int]:
    """Run a command for tasks, taken one at a time, so that no lease ends while a task waits.

    Returns:
        The numbers of tasks that are done, and that failed.
    """
    done = failed = 0
    for task in tasks:
        code = _exit_code(words, source, task)
        if code == 0:
            source.ack(task.task_id)
            done += 1
            continue
        failed += 1
        why = f"the command ended with {code}"
        if bury:
            source.bury(task.task_id, error=why)
        else:
            source.release(task.task_id, delay=delay, error=why)
        call.tell(f"task {task.task_id} was {'buried' if bury else 'released'}: {why}")
        if not bury:
            break
    call.show(
        {"tube": source.name, "done": done, "failed": failed}, f"{done:,} done, {failed:,} failed"
    )
    return done, failed
