"""Changes existing tubes: their options and their pause."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING

from tubeq_spark.admin import engines, tubes
from tubeq_spark.model import validation
from tubeq_spark.model.options import altered
from tubeq_spark.runtime.current_tube import Registered
from tubeq_spark.storage.expression import row
from tubeq_spark.storage.tables.tube_table import SEGMENT_0

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from tubeq_spark.runtime.context import QueueContext, TubeContext
    from tubeq_spark.storage.tables.registry import Registry, TubeRecord


def registered(queue: QueueContext, registry: Registry, record: TubeRecord) -> Registered:
    """The registry's part of a tube."""
    change = functools.partial(_change, queue, registry)
    return Registered(
        find=_Finder(registry, record).find,
        alter=lambda ctx, given: change(ctx, functools.partial(_with_options, ctx, given)),
        pause=lambda ctx, paused: change(ctx, lambda current: replace(current, paused=paused)),
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


def _with_options(ctx: TubeContext, given: Mapping[str, Any], current: TubeRecord) -> TubeRecord:
    """A record with altered options.

    Raises:
        InvalidOptionError: An option is bad, or needs a tube without tasks.
    """
    options = altered(current.options, given, ctx.driver.tube_options, ctx.driver.name)
    if options.aging != current.options.aging and ctx.reader.ids(
        row().segment != SEGMENT_0, limit=1
    ):
        validation.refuse("aging", given["aging"], "unchanged while the tube has tasks")
    return replace(current, options=options)


def _change(
    queue: QueueContext,
    registry: Registry,
    ctx: TubeContext,
    change: Callable[[TubeRecord], TubeRecord],
) -> TubeRecord:
    """Change the record of a tube.

    Commits: 1 to the registry, none if nothing changes.

    Raises:
        InvalidOptionError: The change is refused; nothing was written.
        TubeNotFoundError: The tube was dropped.
        StoreError: The tube has a change feed, and there is no Spark session.
    """
    engines.require_writable(queue, ctx.record.name, ctx.record.options)
    return registry.alter(ctx.record, change)
