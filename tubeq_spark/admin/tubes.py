"""Opens tubes for the verbs, creates their tables, and changes their options and their pause."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from tubeq_spark.admin import engines
from tubeq_spark.model import validation
from tubeq_spark.model.arguments import driver_of
from tubeq_spark.model.options import altered
from tubeq_spark.model.tube_types import AGED
from tubeq_spark.payloads.ddl import columns_of, without_not_null
from tubeq_spark.payloads.values import PayloadCodec
from tubeq_spark.runtime.context import QueueContext, TubeContext
from tubeq_spark.runtime.current_tube import Registered
from tubeq_spark.runtime.events import TubeEvents
from tubeq_spark.storage.expression import row
from tubeq_spark.storage.tables.gates import Gates
from tubeq_spark.storage.tables.put_gate import PutGate
from tubeq_spark.storage.tables.schema import new_tube_table
from tubeq_spark.storage.tables.segment_reader import SegmentReader
from tubeq_spark.storage.tables.take_writer import TakeWriter
from tubeq_spark.storage.tables.tube_reader import TubeReader
from tubeq_spark.storage.tables.tube_table import SEGMENT_0, TubeTable
from tubeq_spark.storage.tables.tube_writer import TubeWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tubeq_spark.model.options import TubeOptions
    from tubeq_spark.model.tube_types import Driver
    from tubeq_spark.storage.opened_location import OpenedLocation
    from tubeq_spark.storage.tables.registry import Registry, TubeRecord
    from tubeq_spark.tube import Tube

T = TypeVar("T")


def context_of(tube: Tube) -> TubeContext:
    """The context of a tube."""
    return tube._ctx  # noqa: SLF001  (the façade keeps it from programs, not from the package)


def perform_in(tube: Tube, verb: Callable[[TubeContext], T], *, name: str | None = None) -> T:
    """Run a verb that is not a method of `Tube` as these are run, by the tube's newest record.

    Args:
        tube: The tube.
        verb: The verb.
        name: The name of its span, if the program wants one.

    Raises:
        QueueStateError: The queue is not running.
        TubeNotFoundError: The tube was dropped.
    """
    return tube._verb(lambda: verb(context_of(tube)), name=name)  # noqa: SLF001  (as above)


def make_context(queue: QueueContext, opened: OpenedLocation, record: TubeRecord) -> TubeContext:
    """Create the objects that the verbs of a tube need.

    Raises:
        InvalidOptionError: The tube's type is not known here.
    """
    queue = engines.for_tube(queue, record.name, record.options)
    table = opened.location.table(record.table)
    # The lock comes first, because it repairs a table that a power cut has left unreadable.
    table_lock = opened.table_lock(record.table)
    # A program that does not use the catalog may have made the table.
    if opened.location.in_catalog and not queue.engine.tables.is_table(table):
        make_table(queue, opened, record.table, record.type, record.options)
    queue.loop.opened(table, table_lock)
    if record.is_live:
        # A location may have been removed and made again.
        table_lock.is_dropped = False
    schema = record.options.schema
    payload = None if schema is None else columns_of(schema)
    driver = driver_of(queue.drivers, record.type)
    tube_table = TubeTable(
        table,
        record.id,
        _order(record, driver),
        None if payload is None else tuple(part.name for part in payload),
        record.options.change_feed,
        record.options.unique_for_us,
        record.options.max_attempts,
    )
    return TubeContext(
        queue=queue,
        record=record,
        driver=driver,
        table_lock=table_lock,
        codec=PayloadCodec(payload),
        events=TubeEvents(queue.counters, record.id, record.name),
        **_over(queue, tube_table),
    )


def context_after(ctx: TubeContext, record: TubeRecord) -> TubeContext:
    """The context of a tube whose record has changed, from the former context."""
    table = replace(
        ctx.table, order=_order(record, ctx.driver), max_attempts=record.options.max_attempts
    )
    return replace(ctx, record=record, **_over(ctx.queue, table))


def _order(record: TubeRecord, driver: Driver) -> tuple[str, ...]:
    return driver.order if record.options.aging is None else AGED


def _over(queue: QueueContext, table: TubeTable) -> dict[str, Any]:
    """The objects of a tube's context that read and write its table."""
    fresh = lambda: queue.session.segments(1)[0]  # noqa: E731
    reader = TubeReader(queue.engine, table)
    return {
        "table": table,
        "reader": reader,
        "segment_reader": SegmentReader(queue.engine, table),
        "writer": TubeWriter(table, fresh),
        "put_gate": PutGate(queue.engine, table, reader, fresh),
        "take_writer": TakeWriter(table, fresh),
        "gates": Gates(queue.engine, table, fresh),
    }


def make_table(
    queue: QueueContext, opened: OpenedLocation, name: str, type_name: str, options: TubeOptions
) -> bool:
    """Create the table of a tube with this type and these options, if it does not exist; return whether it did not."""
    payload = payload_of(options)
    new = new_tube_table(
        opened.location.table(name),
        queue.config,
        None if payload is None else f"STRUCT<{payload}>",
        change_feed=options.change_feed,
        local=opened.locks is not None,
    )
    with opened.table_lock(name).changing(queue.engine.committer):
        is_new = queue.engine.tables.create(new)
    if driver_of(queue.drivers, type_name).subqueues:
        queue.engine.tables.show_taken_utubes(new.name)
    return is_new


def payload_of(options: TubeOptions) -> str | None:
    """The columns of a typed payload, as a table has them; `None` is JSON text."""
    return None if options.schema is None else without_not_null(options.schema)


def registered(queue: QueueContext, registry: Registry, record: TubeRecord) -> Registered:
    """The registry's part of a tube."""
    change = functools.partial(_change, queue, registry)
    return Registered(
        find=_Finder(registry, record).find,
        alter=lambda ctx, given: change(ctx, functools.partial(_with_options, ctx, given)),
        pause=lambda ctx, paused: change(ctx, lambda current: replace(current, paused=paused)),
        context=context_after,
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
