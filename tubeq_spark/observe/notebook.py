"""HTML of a queue and of a tube for notebooks: few rows, by few reads, without commits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubeq_spark.errors import TubeqError
from tubeq_spark.markup import Age, fields, joined, tag
from tubeq_spark.model.error_text import reason_of
from tubeq_spark.observe.columns import STATES
from tubeq_spark.observe.statistics import QueueCounts, measure_tube, statistics_of, tube_table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tubeq_spark.markup import Html
    from tubeq_spark.runtime.context import QueueContext, TubeContext

#: The most tubes of a queue that are read and shown.
TUBES = 50


def shown(title: str, read: Callable[[], Html]) -> Html:
    """A heading, and below it the result of `read`, or the reason why it failed."""
    try:
        below = read()
    except TubeqError as error:
        below = tag("p", reason_of(error))
    return joined([tag("p", tag("strong", title)), below])


def queue_rows(queue: QueueContext, tubes: Sequence[TubeContext], names: Sequence[str]) -> Html:
    """The counts of some tubes of a queue: one read of all of them, and one of the counters.

    Args:
        queue: The queue object.
        tubes: The tubes to show.
        names: The names of all tubes.
    """
    found = QueueCounts({of.ctx.record.name: of.as_dict() for of in statistics_of(queue, tubes)})
    more = len(names) - len(tubes)
    paused = ", ".join(ctx.record.name for ctx in tubes if ctx.record.paused)
    return joined(
        [
            tube_table(found, TUBES),
            tag("p", f"paused: {paused}") if paused else None,
            tag("p", f"… and {more:,} more tubes") if more > 0 else None,
        ]
    )


def tube_fields(ctx: TubeContext) -> Html:
    """A tube's tasks by state, ages, files and options: one aggregate, and the table's detail."""
    now = measure_tube(ctx, [], None)
    options = [
        (name, value)
        for name, value in ctx.record.options.items()
        if value is not None and value is not False
    ]
    tasks: list[tuple[str, object]] = [("paused", "takes find nothing")] if now.paused else []
    tasks += [(state, getattr(now, state)) for state in STATES]
    tasks += [("oldest ready", Age.of(now.oldest_ready_age)), ("files", now.files)]
    return joined([fields("now", [*tasks, ("bytes", now.size_bytes)]), fields("options", options)])
