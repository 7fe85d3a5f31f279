"""`tubeq put`: JSON lines from a file or from standard input, with a bar on a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from tubeq_spark.cli.call import Call
from tubeq_spark.cli.exit_codes import ExitCode
from tubeq_spark.cli.names import TubeName
from tubeq_spark.cli.options import seconds, whole
from tubeq_spark.cli.stopping import Stop
from tubeq_spark.cli.values import plural
from tubeq_spark.errors import CommitUnknownError, InvalidOptionError
from tubeq_spark.task import PutItem, Task


def put(
    ctx: typer.Context,
    tube: TubeName,
    file: Annotated[
        Path, typer.Argument(help="JSON lines, the data of one task each; - = standard input")
    ] = Path("-"),
    pri: Annotated[int | None, whole("Priority; 0 is the highest")] = None,
    ttl: Annotated[float | None, seconds("Time to live")] = None,
    ttr: Annotated[float | None, seconds("Time to run: how long a task may be taken")] = None,
    delay: Annotated[float | None, seconds("Time before it can be taken")] = None,
    utube: Annotated[str | None, typer.Option(help="Sub-queue")] = None,
    unique: Annotated[
        str | None, typer.Option(help="Unique key; nothing is put if a stored task has it")
    ] = None,
    utube_field: Annotated[
        str | None, typer.Option(help="Field of each line with its sub-queue")
    ] = None,
    unique_field: Annotated[
        str | None, typer.Option(help="Field of each line with its unique key")
    ] = None,
    timeout: Annotated[float, seconds("How long to wait for room (limfifottl)")] = 0,
    batch: Annotated[int, whole("Lines of one commit", least=1)] = 5_000,
) -> None:
    """Put tasks from JSON lines.

    A line that is not valid JSON, or lacks a field that an option names, is refused before its batch is put; earlier
    batches stay. Such a field has a text, a whole number, or null for none. If an error or a signal ends the call
    early, it says how many tasks were put.
    """
    call: Call = ctx.obj
    options = {"pri": pri, "ttl": ttl, "ttr": ttr, "delay": delay, "utube": utube}
    options["unique"] = unique
    fields = {"utube": utube_field, "unique": unique_field}
    with call.answering(), _opened(call, file) as stream, call.queue() as queue:
        target = queue.tube(tube)
        done, added = _Done(), list[Task]()
        has_keys = unique is not None or unique_field is not None
        if has_keys:
            # Some of the tasks that a put returns existed before.
            target.on_task_change(lambda task, _event: added.append(task))
        finishing = lambda _: call.tell("finishing this batch; a second signal stops at once")  # noqa: E731
        with done.telling(call), _showing(stream, file) as show:
            for items in _batches(stream, str(file), batch, done, fields):
                show(done.count)
                stop = Stop(finishing)
                # A second signal interrupts the put.
                with suppress(KeyboardInterrupt), stop:
                    done.trying = len(items)
                    tasks = target.put_many(items, timeout=timeout, **options)
                    done.add(added if has_keys else tasks)
                if stop():
                    sys.exit(stop.exit_code)
                if items and not tasks:
                    call.tell(f"tube {tube} is full; {done.before}")
                    call.show(done.as_dict(tube), done.sentence(tube))
                    raise typer.Exit(ExitCode.NO)
                added.clear()
            call.show(done.as_dict(tube), done.sentence(tube))


class _Done:
    """The number of tasks that were put so far."""

    def __init__(self) -> None:
        self.count = 0
        #: Whether the message of an error has the number.
        self.is_told = False
        #: The number of tasks that a put adds, all or none, which has not ended.
        self.trying = 0
        self._first: int | None = None
        self._last: int | None = None

    @property
    def before(self) -> str:
        """The sentence about the tasks that were put before a call ended, so that the user can go on from there."""
        return f"{plural(self.count, 'task')} put"

    @contextmanager
    def telling(self, call: Call) -> Iterator[None]:
        """Print the number of tasks that were put if the block ends by an error or a signal."""
        try:
            yield
        except typer.Exit:
            raise
        except BaseException as error:
            if not self.is_told:
                is_unknown = isinstance(error, CommitUnknownError | KeyboardInterrupt | SystemExit)
                perhaps = f", and perhaps the next {self.trying:,}"
                call.tell(f"{self.before}{perhaps if is_unknown and self.trying else ''}")
            raise

    def add(self, tasks: list[Task]) -> None:
        self.trying = 0
        if tasks:
            self.count += len(tasks)
            self._first = tasks[0].task_id if self._first is None else self._first
            self._last = tasks[-1].task_id

    def as_dict(self, tube: str) -> dict[str, Any]:
        ends = {"first_task_id": self._first, "last_task_id": self._last}
        ids = {name: None if task_id is None else str(task_id) for name, task_id in ends.items()}
        return {"tube": tube, "count": self.count, **ids}

    def sentence(self, tube: str) -> str:
        ids = f": {self._first} to {self._last}" if self.count else ""
        return f"put {plural(self.count, 'task')} into {tube}{ids}"


@contextmanager
def _opened(call: Call, file: Path) -> Iterator[BinaryIO]:
    if str(file) != "-":
        with file.open("rb") as stream:
            yield stream
        return
    if sys.stdin.isatty():
        call.tell("reading JSON lines from the terminal; Ctrl-D ends them")
    yield sys.stdin.buffer


def _batches(
    stream: BinaryIO, name: str, size: int, done: _Done, fields: Mapping[str, str | None]
) -> Iterator[list[Any]]:
    """The items of the lines, by batches. A bad line is refused with its number.

    Args:
        stream: The lines.
        name: The name of their file.
        size: Lines of a batch at most.
        done: Says how many tasks were put before.
        fields: The fields of the lines with options of their tasks, by option.

    Raises:
        InvalidOptionError: A line of the next batch is bad.
    """
    lines = enumerate(stream, start=1)
    while some := list(islice(lines, size)):
        items = []
        for number, line in some:
            try:
                items += [_item(line, fields)] if line.strip() else []
            except ValueError as error:
                where = "standard input" if name == "-" else name
                done.is_told = True
                msg = f"line {number} of {where} {error}; {done.before}"
                raise InvalidOptionError(msg) from None
        yield items


def _item(line: bytes, fields: Mapping[str, str | None]) -> Any:
    """What a line puts.

    Raises:
        ValueError: The line is bad.
    """
    from tubeq_spark.model.json_payload import encode  # noqa: PLC0415  imports Arrow

    try:
        data = json.loads(line)
        encode(data)  # a bad payload is refused here, where the line is known
    except (ValueError, RecursionError) as error:
        what = error if isinstance(error, json.JSONDecodeError) else "not a JSON value in UTF-8"
        raise ValueError(f"is not valid JSON: {what}") from None
    own = {}
    for option, field in fields.items():
        if field is None:
            continue
        if not isinstance(data, dict) or field not in data:
            has = ", ".join(data) if isinstance(data, dict) and data else "no fields"
            raise ValueError(f"lacks the field {field} of --{option}-field; it has {has}")
        own[option] = data[field]
    return PutItem(data, **own) if own else data


@contextmanager
def _showing(stream: BinaryIO, file: Path) -> Iterator[Callable[[int], None]]:
    """Show a bar on a terminal, by the bytes of a file, because the number of its lines is not known."""
    if not sys.stderr.isatty():
        yield lambda _count: None
        return
    from rich.console import Console  # noqa: PLC0415  few calls need it
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    size = file.stat().st_size if file.is_file() else None
    columns = (
        TextColumn("put {task.fields[count]:,}"),
        BarColumn(bar_width=40),
        TextColumn("{task.percentage:3.0f} %" if size else ""),
        TimeElapsedColumn(),
    )
    console = Console(stderr=True)
    # By default the bar sends results to its own console, too.
    with Progress(*columns, console=console, transient=True, redirect_stdout=False) as bar:
        line = bar.add_task("", total=size, count=0)
        yield lambda count: bar.update(line, count=count, completed=stream.tell() if size else 0)
