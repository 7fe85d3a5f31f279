"""`tubeq put`: JSON lines from a file or from standard input, with a bar on a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from tubeq_spark.cli.call import Call
from tubeq_spark.cli.exit_codes import ExitCode
from tubeq_spark.cli.options import seconds, whole, word
from tubeq_spark.errors import CommitUnknownError, InvalidOptionError
from tubeq_spark.markup import plural
from tubeq_spark.runtime.stopping import ProgramStop as Stop
from tubeq_spark.task import PutItem, Task


def put(
    ctx: typer.Context,
    tube: str,
    file: Annotated[
        Path, typer.Argument(help="JSON lines, the data of one task each; - = standard input")
    ] = Path("-"),
    pri: Annotated[int | None, whole("Priority; 0 is the highest")] = None,
    ttl: Annotated[float | None, seconds("Time to live")] = None,
    ttr: Annotated[float | None, seconds("Time to run: how long a task may be taken")] = None,
    delay: Annotated[float | None, seconds("Time before it can be taken")] = None,
    utube: Annotated[str | None, word("NAME", "Sub-queue")] = None,
    unique: Annotated[
        str | None, word("KEY", "Unique key; nothing is put if a stored task has it")
    ] = None,
    utube_field: Annotated[
        str | None, word("FIELD", "Field of each line with its sub-queue")
    ] = None,
    unique_field: Annotated[
        str | None, word("FIELD", "Field of each line with its unique key")
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
    done, added, is_full = _Done(), list[Task](), False
    with call.queue() as queue, done.told_by(call):
        target = queue.tube(tube)
        has_keys = unique is not None or unique_field is not None
        if has_keys:
            # Some of the tasks that a put returns existed before.
            target.on_task_change(lambda task, _event: added.append(task))
        with _lines(call, file) as lines:
            for items in _batches(lines, str(file), batch, fields):
                stop = Stop(call.tell, "finishing this batch; a second signal stops at once")
                # A second signal interrupts the put.
                with suppress(KeyboardInterrupt), stop:
                    done.trying = len(items)
                    tasks = target.put_many(items, timeout=timeout, **options)
                    is_full = bool(items) and not tasks
                    done.add(added if has_keys else tasks)
                    added.clear()
                if stop.signal is not None:
                    sys.exit(128 + stop.signal)
                if is_full:
                    call.tell(f"tube {tube} is full; {plural(done.count, 'task')} put")
                    break
        shown = {"tube": tube, "count": done.count, "first_task_id": done.first}
        ids = f": {done.first} to {done.last}" if done.count else ""
        text = f"put {plural(done.count, 'task')} into {tube}{ids}"
        call.show(shown | {"last_task_id": done.last}, text)
    if is_full:
        raise typer.Exit(ExitCode.NO)


@dataclass
class _Done:
    """The number of tasks that were put so far, and the first and last of their ids."""

    count: int = 0
    #: The number of tasks that a put adds, all or none, which has not ended.
    trying: int = 0
    first: str | None = None
    last: str | None = None

    @contextmanager
    def told_by(self, call: Call) -> Iterator[None]:
        """Print the number of tasks that were put if the block ends by an error or a signal."""
        try:
            yield
        except BaseException as error:
            is_unknown = isinstance(error, CommitUnknownError | KeyboardInterrupt | SystemExit)
            perhaps = (
                f", and perhaps the next {self.trying:,}" if is_unknown and self.trying else ""
            )
            if self.count or perhaps:
                call.tell(f"{plural(self.count, 'task')} put{perhaps}")
            raise

    def add(self, tasks: list[Task]) -> None:
        self.trying = 0
        if tasks:
            self.count += len(tasks)
            self.first, self.last = self.first or str(tasks[0].task_id), str(tasks[-1].task_id)


@contextmanager
def _lines(call: Call, file: Path) -> Iterator[Iterable[bytes]]:
    """Open the lines. On a terminal a bar shows how much of a file is read, or that standard input is."""
    is_typed = str(file) == "-" and sys.stdin.isatty()
    if is_typed:
        call.tell("reading JSON lines from the terminal; Ctrl-D ends them")
    if is_typed or not sys.stderr.isatty():
        with nullcontext(sys.stdin.buffer) if str(file) == "-" else file.open("rb") as stream:
            yield stream
        return
    from rich import progress  # noqa: PLC0415  few calls need it
    from rich.console import Console  # noqa: PLC0415

    how: dict[str, Any] = {"description": f"put {file}", "console": Console(stderr=True)}
    if str(file) == "-":
        shown: Any = progress.track(sys.stdin.buffer, transient=True, **how)
        with closing(shown) as stream:
            yield stream
    else:
        with progress.open(file, "rb", transient=True, **how) as stream:
            yield stream


def _batches(
    lines: Iterable[bytes], name: str, size: int, fields: Mapping[str, str | None]
) -> Iterator[list[Any]]:
    """The items of the lines, by batches. A bad line is refused with its number.

    Args:
        lines: The lines.
        name: The name of their file.
        size: Lines of a batch at most.
        fields: The fields of the lines with options of their tasks, by option.

    Raises:
        InvalidOptionError: A line of the next batch is bad.
    """
    numbered = enumerate(lines, start=1)
    while some := list(islice(numbered, size)):
        items = []
        for number, line in some:
            try:
                items += [_item(line, fields)] if line.strip() else []
            except ValueError as error:
                where = "standard input" if name == "-" else name
                raise InvalidOptionError(f"line {number} of {where} {error}") from None
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
        is_told = isinstance(error, (json.JSONDecodeError, InvalidOptionError))
        what = error if is_told else "not a JSON value in UTF-8"
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
