"""What `tubeq enqueue` does: it reads a source, makes tasks from its rows by SQL expressions, and puts them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException, ParseException

from tubeq_spark.jobs.source import FORMATS, LINE, Source
from tubeq_spark.programs import BadUseError, ExitCode, Stop, plural, reason_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from tubeq_spark import PutResult, Queue, Tube

OPTIONS = ("pri", "ttl", "ttr", "delay", "utube")
_KEEP_NULLS = "map('ignoreNullFields', 'false')"


@dataclass(frozen=True, kw_only=True)
class Tasks:
    """The rules by which rows become tasks. All texts are SQL expressions over a row.

    Attributes:
        where: The condition for rows; `None` is all rows.
        select: The fields of the payload, a JSON object; all columns if neither this nor another
            payload is given (of JSON lines: the line as it is).
        data: The payload as one value, which becomes JSON.
        data_json: The payload as text that is JSON already.
        options: Options of the tasks by name, of `OPTIONS`; `None` if not given.
    """

    where: str | None = None
    select: Sequence[str] = ()
    data: str | None = None
    data_json: str | None = None
    options: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def need_fields(self) -> bool:
        """Whether any expression may name a field of a JSON line."""
        texts = (self.where, self.select, self.data, self.data_json, *self.options.values())
        return any(texts)

    def of(self, rows: DataFrame, *, typed: bool) -> DataFrame:
        """The tasks, lazily, as `Tube.put_df` takes them.

        Args:
            rows: The rows of the source.
            typed: Whether the tube has a schema. Then the fields of the payload become columns.

        Raises:
            BadUseError: A text is no expression, or names a missing column.
        """
        try:
            chosen = rows if self.where is None else rows.where(self.where)
            payload = self._fields(rows) if typed else [f"{self._json(rows)} AS data"]
            options = [f"({text}) AS {name}" for name, text in self.options.items() if text]
            return chosen.selectExpr(*payload, *options)
        except (AnalysisException, ParseException) as error:
            columns = ", ".join(name for name in rows.columns if name != LINE)
            msg = f"{reason_of(error)} (the columns are: {columns})"
            raise BadUseError(msg) from error

    def _fields(self, rows: DataFrame) -> list[str]:
        if self.data or self.data_json:
            msg = "the tube has a schema: give its columns by --select, not a payload of JSON"
            raise BadUseError(msg)
        return list(self.select) or [_quoted(n) for n in rows.columns if n != LINE]

    def _json(self, rows: DataFrame) -> str:
        if self.data_json:
            return f"({self.data_json})"
        if self.data:
            # to_json accepts no plain values, so the value is put into a list, and then cut out of the text.
            listed = f"to_json(array({self.data}), {_KEEP_NULLS})"
            return f"substring({listed}, 2, length({listed}) - 2)"
        if not self.select and LINE in rows.columns:
            return LINE
        return f"to_json(struct({', '.join(self._fields(rows))}), {_KEEP_NULLS})"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def run(
    spark: SparkSession,
    queue: Queue,
    given: Mapping[str, Any],
    tell: Callable[[str], None],
    show: Callable[[dict[str, Any], str], object],
) -> int:
    """Put the rows of a source. Arguments and the result are those of the consumer's `run`."""
    if sum(bool(given[name]) for name in ("select", "data", "data_json")) > 1:
        msg = "--select, --data and --data-json exclude each other: a task has one payload"
        raise BadUseError(msg)
    if given["format"] not in (None, *FORMATS):
        raise BadUseError(f"--format {given['format']}: must be one of {', '.join(FORMATS)}")
    source = Source(given["source"], given["format"], dict(map(_pair, given["option"] or ())))
    tasks = Tasks(
        where=given["where"],
        select=given["select"] or (),
        data=given["data"],
        data_json=given["data_json"],
        options={name: given[name] for name in OPTIONS},
    )
    rows = source.read(spark, fields=tasks.need_fields)
    if given["create"] is None:
        tube = queue.tube(given["tube"])
    else:
        if given["tube"] not in queue:
            tasks.of(rows, typed=False)  # What cannot be put creates no tube.
        tube = queue.create_tube(given["tube"], given["create"], if_not_exists=True)
    typed = tube.options.schema is not None
    if typed and not tasks.need_fields:
        rows = source.read(spark, fields=True)
    with Stop(lambda _: tell("finishing the put; a second signal stops at once")):
        try:
            result = tube.put_df(tasks.of(rows, typed=typed), key=given["key"])
        except Exception as error:
            refused = source.bad_row(error)
            if refused is None:
                raise
            raise BadUseError(refused) from error
    ids = {"first_task_id": result.first_task_id, "last_task_id": result.last_task_id}
    said = {name: None if number is None else str(number) for name, number in ids.items()}
    show({"tube": tube.name, "count": result.count, **said}, _sentence(tube, result, given["key"]))
    is_full = not result.count and tube.options.capacity is not None
    return ExitCode.NO if is_full else ExitCode.DONE


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        msg = f"--option {text}: must be NAME=VALUE"
        raise BadUseError(msg)
    return name, value


def _sentence(tube: Tube, result: PutResult, key: str | None) -> str:
    if result.count:
        ids = f"{result.first_task_id} to {result.last_task_id}"
        return f"put {plural(result.count, 'task')} into {tube.name}: {ids}"
    reasons = ["there are no rows"]
    if key is not None:
        reasons.append(f"the key {key!r} was used before")
    if tube.options.capacity is not None:
        reasons.append("there is no room for all of them")
    return f"put nothing into {tube.name}: {' or '.join(reasons)}"
