"""Opens tubes for the verbs, and creates their tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from tubeq_spark.model.arguments import driver_of
from tubeq_spark.model.tube_types import order_of
from tubeq_spark.payloads.ddl import columns_of, without_not_null
from tubeq_spark.payloads.values import PayloadCodec
from tubeq_spark.runtime.context import QueueContext, TubeContext
from tubeq_spark.runtime.events import TubeEvents
from tubeq_spark.storage.tables.schema import new_tube_table
from tubeq_spark.storage.tables.tube_table import TubeTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from tubeq_spark.model.options import TubeOptions
    from tubeq_spark.storage.tables.registry import TubeRecord
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
    return tube._run(verb, name=name)  # noqa: SLF001  (as above)


def make_context(queue: QueueContext, record: TubeRecord) -> TubeContext:
    """Create the objects that the verbs of a tube need.

    Raises:
        InvalidOptionError: The tube's type is not known here.
    """
    opened = queue.opened
    table = opened.location.table(record.table)
    # The lock comes first, because it repairs a table that a power cut has left unreadable.
    table_lock = opened.table_lock(record.table)
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
        order_of(driver, record.options),
        None if payload is None else tuple(part.name for part in payload),
        record.options.change_feed,
        record.options.unique_for_us,
        record.options.max_attempts,
    )
    events = TubeEvents(queue.counters, record.id, record.name)
    codec = PayloadCodec(payload)
    return TubeContext(queue, record, driver, tube_table, table_lock, codec, events)


def make_table(queue: QueueContext, name: str, type_name: str, options: TubeOptions) -> bool:
    """Create the table of a tube with this type and these options, if it does not exist; return whether it did not."""
    payload = payload_of(options)
    new = new_tube_table(
        queue.opened.location.table(name),
        queue.config,
        None if payload is None else f"STRUCT<{payload}>",
        change_feed=options.change_feed,
        local=queue.opened.locks is not None,
    )
    with queue.opened.table_lock(name).changing(queue.engine.committer):
        is_new = queue.engine.tables.create(new)
    if driver_of(queue.drivers, type_name).subqueues:
        queue.engine.tables.show_taken_utubes(new.name)
    return is_new


def payload_of(options: TubeOptions) -> str | None:
    """The columns of a typed payload, as a table has them; `None` is JSON text."""
    return None if options.schema is None else without_not_null(options.schema)
