"""Changes existing tubes: their options, their pause, their format.

A change to the second format first adds the optional columns, and then writes the record in the registry. If
it is stopped in between, the table has columns that nobody uses.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING

from tubeq_spark.admin import engines, new_table, tubes
from tubeq_spark.model import validation
from tubeq_spark.model.options import altered
from tubeq_spark.runtime.current_tube import Registered
from tubeq_spark.storage.tables.schema import FORMAT_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from tubeq_spark.runtime.context import QueueContext, TubeContext
    from tubeq_spark.storage.opened_location import OpenedLocation
    from tubeq_spark.storage.tables.registry import Registry, TubeRecord


def registered(
    queue: QueueContext, opened: OpenedLocation, registry: Registry, record: TubeRecord
) -> Registered:
    """The registry's part of a tube."""
    change = functools.partial(_change, queue, opened, registry)
    return Registered(
        find=_Finder(registry, record).find,
        alter=lambda ctx, given: change(ctx, functools.partial(_with_options, ctx, given)),
        pause=lambda ctx, paused: change(ctx, lambda current: replace(current, paused=paused)),
        upgrade=lambda ctx: change(ctx, _of_newest_format),
        add_traces=lambda ctx: change(ctx, _with_traces),
        context=tubes.context_after,
    )


class _Finder:
    """Reads the record of a tube, if the registry has changed since."""

    def __init__(self, registry: Registry, record: TubeRecord) -> None:
        self._registry = registry
        self._name, self._id = record.name, record.id
        self._found: TubeRecord | None = record
        self._version = -1

    def find(self) -> TubeRecord | None:
        """The record; `None` if the tube was dropped."""
        # The version is read first, so that a commit during the read has a later one.
        version = self._registry.version(self._version)
        if version is None or version != self._version:
            found = self._registry.find(self._name)
            self._found = found if found is not None and found.id == self._id else None
            self._version = -1 if version is None else version
        return self._found


def _of_newest_format(record: TubeRecord) -> TubeRecord:
    return replace(record, format_version=FORMAT_VERSION)


def _with_traces(record: TubeRecord) -> TubeRecord:
    # This needs no third format: a program that does not know the column keeps it in rows that it moves.
    return replace(_of_newest_format(record), has_traces=True)


def _with_options(ctx: TubeContext, given: Mapping[str, Any], current: TubeRecord) -> TubeRecord:
    """A record with altered options.

    Raises:
        InvalidOptionError: An option is bad, or needs a tube without tasks.
    """
    options = altered(current.options, given, ctx.driver.tube_options, ctx.driver.name)
    if options.aging != current.options.aging and ctx.reader.has_rows():
        validation.refuse("aging", given["aging"], "unchanged while the tube has tasks")
    if options.parallel != current.options.parallel:
        current = replace(current, parallel_altered_us=ctx.queue.now_us())
    return replace(current, options=options)


def _change(
    queue: QueueContext,
    opened: OpenedLocation,
    registry: Registry,
    ctx: TubeContext,
    change: Callable[[TubeRecord], TubeRecord],
) -> TubeRecord:
    """Change the record of a tube, and its table if the change needs the second format.

    Commits: 1 to the registry, none if nothing changes; 2 before to a table that lacks the columns.

    Raises:
        InvalidOptionError: The change is refused; nothing was written.
        TubeNotFoundError: The tube was dropped.
        StoreError: The tube has a change feed, and there is no Spark session; or a newer version of this
            package has changed the tube.
    """
    engines.require_writable(queue, ctx.record.name, ctx.record.options)

    def changed(current: TubeRecord) -> TubeRecord:
        new = change(current)
        needs = new.paused or new.options.need_second_format
        return _of_newest_format(new) if needs else new

    # The known record may be some seconds old.
    current = registry.current(ctx.record)
    new = changed(current)
    if (new.format_version, new.has_traces) != (current.format_version, current.has_traces):
        new_table.fit_columns(queue, opened, new)
    return registry.alter(ctx.record, changed)
