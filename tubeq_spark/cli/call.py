"""One call of `tubeq`: its settings, its queue, its messages and its exit code."""

from __future__ import annotations

import sys
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import typer

from tubeq_spark.cli.exit_codes import BadUseError
from tubeq_spark.cli.program import NAME, logged, open_spark, report_error, tell
from tubeq_spark.cli.settings_file import Defaults
from tubeq_spark.cli.values import as_dict, json_text
from tubeq_spark.clock import Clock, SystemClock
from tubeq_spark.markup import printable
from tubeq_spark.runtime.stopping import on_signals
from tubeq_spark.task import Task

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

    from tubeq_spark.queue import Queue
    from tubeq_spark.storage.opened_location import OpenedLocation
    from tubeq_spark.tube import Tube

#: Seconds ahead for which a call reserves ids. It is short, because ids run ahead of the clock if all slots are in use.
_HORIZON = 10.0


@dataclass(frozen=True, kw_only=True)
class Outside:
    """The environment of a call. Tests pass another one to `app`.

    Attributes:
        open_spark: Makes the Spark session, given the address of a Connect server or `None`.
        clock: The clock.
    """

    open_spark: Callable[..., SparkSession] = field(
        default_factory=lambda: partial(open_spark, NAME)
    )
    clock: Clock = field(default_factory=SystemClock)


@dataclass(frozen=True, kw_only=True)
class Call:
    """A call with the options before the command's name."""

    outside: Outside
    settings: Defaults
    json: bool
    verbose: bool

    def on_local_files(self) -> OpenedLocation | None:
        """The location, without opening the queue; `None` if it is not on local files of this host."""
        from tubeq_spark.storage.check import on_local_files  # noqa: PLC0415  few calls need it

        opened = on_local_files(self.settings.queue_location())
        return None if self.settings.remote is not None else opened

    @contextmanager
    def queue(
        self,
        session_uuid: uuid.UUID | str | None = None,
        *,
        create: bool = False,
        horizon: float = _HORIZON,
    ) -> Iterator[Queue]:
        """Open the queue for a block.

        Args:
            session_uuid: A session to join.
            create: Whether to create the queue if the location has none.
            horizon: Seconds ahead for which it reserves ids.
        """
        committer = self.settings.committer()
        from tubeq_spark.queue import Queue  # noqa: PLC0415  calls that open none are quick

        config = self.settings.config
        # This process ends soon, and then others can use its id slot after seconds.
        config = replace(config, number_horizon=min(config.number_horizon, horizon))
        native = committer == "native"
        with Queue(
            None if native else self.outside.open_spark(self.settings.remote),
            self.settings.queue_location(),
            session_uuid=session_uuid,
            clock=self.outside.clock,
            config=config,
            engine=committer,
            create=create,
        ) as queue:
            queue.cfg(ttr=self.settings.ttr)
            yield queue

    def logged(self, about: str = NAME) -> AbstractContextManager[None]:
        """Print the log during a block, as `logged` of `cli.program` does."""
        return logged(about, as_json=self.json, verbose=self.verbose)

    @contextmanager
    def answering(self) -> Iterator[None]:
        """End the call with a sentence and an exit code if the block raises; print warnings.

        SIGTERM and Ctrl-C interrupt the block, so that taken tasks are given back.
        """
        try:
            with self.logged(), warnings.catch_warnings(), on_signals(_interrupt):
                warnings.showwarning = lambda message, *_, **_how: self.tell(str(message))
                yield
        except (typer.Exit, typer.BadParameter):
            raise
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  the last one to hear of it
            # `Abort` is Ctrl-C at a question.
            ended = KeyboardInterrupt() if isinstance(error, typer.Abort) else error
            code = report_error(NAME, ended, verbose=self.verbose, as_json=self.json)
            raise typer.Exit(code) from None

    def tell(self, sentence: str) -> None:
        """Print a message that is no result."""
        tell({"note": sentence}, f"{NAME}: {printable(sentence)}", as_json=self.json)

    def require_yes(self, question: str, nothing: str, *, yes: bool) -> None:
        """Go on only if the user agrees.

        Args:
            question: The question for the terminal.
            nothing: The sentence that nothing was done, if the user does not agree.
            yes: Whether the user has agreed by an option.

        Raises:
            BadUseError: The user does not agree, or there is no terminal to ask.
        """
        if yes:
            return
        if not sys.stdin.isatty():
            raise BadUseError(f"{nothing}: without a terminal it needs --yes")
        if not typer.confirm(question, err=True):
            raise BadUseError(nothing)

    def show(self, result: dict[str, Any], text: str) -> None:
        """Print a result: with `--json` as one line of JSON, else as text."""
        print_line(json_text(result) if self.json else printable(text, "\t"))
        # A reader of the result need not wait until the queue is closed.
        sys.stdout.flush()

    def show_tasks(self, tasks: list[Task], session: uuid.UUID | None = None) -> None:
        """Print tasks, one a line."""
        more = {} if session is None else {"session": str(session)}
        for task in tasks:
            cells = (str(task.task_id), task.state.name.lower(), json_text(task.data))
            self.show(as_dict(task) | more, "\t".join((*cells, *more.values())))


@contextmanager
def queue_of(
    ctx: typer.Context, session_uuid: uuid.UUID | str | None = None, *, create: bool = False
) -> Iterator[tuple[Call, Queue]]:
    """The call of a command, and its queue, opened as `Call.queue` does."""
    call: Call = ctx.obj
    with call.queue(session_uuid, create=create) as queue:
        yield call, queue


@contextmanager
def tube_of(
    ctx: typer.Context, name: str, session_uuid: str | None = None
) -> Iterator[tuple[Call, Tube]]:
    """The call of a command, and a tube of its queue, opened as `Call.queue` does."""
    with queue_of(ctx, session_uuid) as (call, queue):
        yield call, queue.tube(name)


def print_line(text: str) -> None:
    """Print a line of the result."""
    sys.stdout.write(f"{text}\n")


def until_stopped() -> AbstractContextManager[None]:
    """Let Ctrl-C and SIGTERM be the normal end of a block that runs until then."""
    return suppress(KeyboardInterrupt)


def _interrupt(number: int, _frame: object) -> None:
    """End a block by an exception that no handler of `Exception` on the way catches."""
    raise KeyboardInterrupt(number)
