"""The handler of `tubeq work --exec`: it runs a command for each task."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import tempfile
from typing import TYPE_CHECKING

from tubeq_spark.cli.exit_codes import BadUseError
from tubeq_spark.cli.values import as_dict, json_text
from tubeq_spark.model.failures import FailedTasks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tubeq_spark.task import Task


def handler_of(command: str) -> Callable[[Task], Awaitable[None]]:
    """A handler that runs a command. If it is cancelled, it kills the command and its children.

    Raises:
        BadUseError: The program of the command does not exist.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise BadUseError(f"--exec {command!r}: {error}") from None
    if not words or shutil.which(words[0]) is None:
        raise BadUseError(f"--exec {command!r}: no such program")

    async def run(task: Task) -> None:
        with (
            tempfile.NamedTemporaryFile(prefix="tubeq-task-", suffix=".json") as whole,
            tempfile.TemporaryFile() as data,
        ):
            whole.write(f"{json_text(as_dict(task))}\n".encode())
            whole.flush()
            data.write(f"{json_text(task.data)}\n".encode())
            data.seek(0)
            surroundings = os.environ | {
                "TUBEQ_TASK_ID": str(task.task_id),
                "TUBEQ_ATTEMPTS": str(task.attempts),
                "TUBEQ_TASK_FILE": whole.name,
            }
            # A terminal sends Ctrl-C to all processes of a group, but the running commands are waited for.
            process = await asyncio.create_subprocess_exec(
                *words, stdin=data, env=surroundings, process_group=0
            )
            try:
                code = await process.wait()
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        if code:
            raise FailedTasks({task.task_id: f"the command ended with {code}"})

    return run
