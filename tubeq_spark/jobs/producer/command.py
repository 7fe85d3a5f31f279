"""What `tubeq enqueue` does: it reads the source, and puts its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tubeq_spark.jobs.producer.source import FORMATS, Source
from tubeq_spark.jobs.producer.tasks import OPTIONS, Tasks
from tubeq_spark.programs import BadUseError, ExitCode, Stop

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession

    from tubeq_spark import PutResult, Queue, Tube


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
        return f"put {result.count:,} task{'s' * (result.count != 1)} into {tube.name}: {ids}"
    reasons = ["there are no rows"]
    if key is not None:
        reasons.append(f"the key {key!r} was used before")
    if tube.options.capacity is not None:
        reasons.append("there is no room for all of them")
    return f"put nothing into {tube.name}: {' or '.join(reasons)}"
