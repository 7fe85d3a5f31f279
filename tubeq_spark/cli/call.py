"""One call of `tubeq`: its settings, its queue, what it says and with which code it ends."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import sys
import threading
import traceback
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, NoReturn

import typer
from pyspark.sql import SparkSession

from tubeq_spark.cli.ahead import QueueOfOneCall
from tubeq_spark.clock import Clock, SystemClock
from tubeq_spark.config import QueueConfig
from tubeq_spark.errors import (
    InvalidOptionError,
    NotTakenError,
    SessionError,
    TaskNotFoundError,
    TubeBusyError,
    TubeExistsError,
    TubeNotFoundError,
    TubeqError,
)
from tubeq_spark.queue import Queue
from tubeq_spark.rules.error_text import reason_of
from tubeq_spark.storage.spark.spark_session import local_session
from tubeq_spark.task import Task

__all__ = [
    "BAD_USE",
    "FAILED",
    "NOTHING",
    "Call",
    "Outside",
    "as_dict",
    "json_text",
    "open_spark",
]

NOTHING = 1
BAD_USE = 2
FAILED = 3
_INTERRUPTED = 128 + signal.SIGINT
_TERMINATED = 128 + signal.SIGTERM
_STDOUT, _STDERR = 1, 2

#: What the caller can mend by another call.
_REFUSALS = (
    FileNotFoundError,
    InvalidOptionError,
    IsADirectoryError,
    NotTakenError,
    PermissionError,
    SessionError,
    TaskNotFoundError,
    TubeBusyError,
    TubeExistsError,
    TubeNotFoundError,
)


def open_spark(remote: str | None) -> SparkSession:
    """A session of the Connect server at `remote`, or an embedded one."""
    if remote is None:
        with _results_alone():
            return local_session("tubeq")
    # The server has settings of its own: most of ours cannot be changed from outside.
    return SparkSession.builder.remote(remote).getOrCreate()  # noqa: TID251


@contextmanager
def _results_alone() -> Iterator[None]:
    """Have a JVM that starts here print to standard error, as VACUUM does: results go to the other."""
    sys.stdout.flush()
    ours = os.dup(_STDOUT)
    os.dup2(_STDERR, _STDOUT)
    try:
        yield
    finally:
        os.dup2(ours, _STDOUT)
        os.close(ours)


@dataclass(frozen=True, kw_only=True)
class Outside:
    """What a call needs of the world; tests give `app` another one.

    Attributes:
        open_spark: Makes the Spark session, given the address of a Connect server or `None`.
        clock: Where the time comes from.
    """

    open_spark: Callable[[str | None], SparkSession] = open_spark
    clock: Clock = field(default_factory=SystemClock)


@dataclass(frozen=True, kw_only=True)
class Call:
    """What the options before the command's name say."""

    outside: Outside
    location: str | None
    remote: str | None
    ttr: float | None
    config: QueueConfig
    json: bool
    verbose: bool

    @contextmanager
    def queue(
        self, session_uuid: uuid.UUID | str | None = None, *, tube: str | None = None
    ) -> Iterator[Queue]:
        """The queue, for the block; errors end the call with a sentence.

        Args:
            session_uuid: A session to join.
            tube: What the block will write to.
        """
        with self.answering(), _terminating():
            if self.location is None:
                msg = (
                    "which queue? give --location, or set TUBEQ_LOCATION, or name it in tubeq.toml"
                )
                raise InvalidOptionError(msg)
            spark = self.outside.open_spark(self.remote)
            with QueueOfOneCall(
                spark,
                self.location,
                tube=tube,
                session_uuid=session_uuid,
                clock=self.outside.clock,
                config=self.config,
            ) as queue:
                if self.ttr is not None:
                    queue.cfg(ttr=self.ttr)
                yield queue

    @contextmanager
    def answering(self) -> Iterator[None]:
        """End the call with a sentence and a code where the block raises."""
        try:
            yield
        except (typer.Exit, typer.Abort, typer.BadParameter):
            raise
        except KeyboardInterrupt:
            self.end("stopped; what was taken and not acked is given back", _INTERRUPTED)
        except _REFUSALS as error:
            self.end(reason_of(error), BAD_USE)
        except TubeqError as error:
            self.end(reason_of(error), FAILED)
        except Exception as error:  # noqa: BLE001  the last one to hear of it
            self.end(f"failed: {reason_of(error)}", FAILED)

    def end(self, sentence: str, code: int) -> NoReturn:
        """End the call."""
        if self.verbose and sys.exception() is not None:
            traceback.print_exc()
        self.tell(sentence)
        raise typer.Exit(code) from None

    @staticmethod
    def tell(sentence: str) -> None:
        """Say something that is no result."""
        sys.stderr.write(f"tubeq: {sentence}\n")
        sys.stderr.flush()

    def show(self, result: dict[str, Any], text: str) -> None:
        """Print a result: for machines as one line of JSON, else as text."""
        print_line(json_text(result) if self.json else text)
        # Whoever waits for it need not wait for the queue to be closed.
        sys.stdout.flush()

    def show_tasks(self, tasks: list[Task], session: uuid.UUID | None = None) -> None:
        """Print tasks, one a line."""
        for task in tasks:
            if self.json:
                shown = as_dict(task) | ({} if session is None else {"session": str(session)})
                print_line(json_text(shown))
            else:
                data = json_text(task.data)
                cells = [str(task.task_id), task.state.name.lower(), data]
                print_line("\t".join(cells if session is None else [*cells, str(session)]))
        sys.stdout.flush()


def json_text(value: Any) -> str:
    """A line of JSON, whatever a payload holds: moments as ISO 8601, bytes in hexadecimal."""
    text = json.dumps(value, ensure_ascii=False, default=_as_text)
    try:
        text.encode()
    except UnicodeEncodeError:
        # Half of a pair of surrogates, which only an escape can name.
        return json.dumps(value, default=_as_text)
    return text


def _as_text(value: object) -> str:
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    return value.hex() if isinstance(value, bytes) else str(value)


def print_line(text: str) -> None:
    """Print a line of the result."""
    sys.stdout.write(f"{text}\n")


def as_dict(task: Task) -> dict[str, Any]:
    """A task for machines; times as ISO 8601."""
    found = asdict(task)
    for name in ("created", "next_event"):
        found[name] = None if found[name] is None else found[name].isoformat()
    return found


@contextmanager
def _terminating() -> Iterator[None]:
    """Let SIGTERM end the call as it ends a block: what was taken is given back."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(_number: int, _frame: object) -> None:
        # No typer.Exit: what catches errors on the way must let it through.
        sys.exit(_TERMINATED)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
