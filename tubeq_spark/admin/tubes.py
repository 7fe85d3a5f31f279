"""Creates, opens and drops tubes.

Create: check, create a table that no tube has had (see `new_table`), register the tube. This commit decides
which program creates the tube. A stopped creation leaves a table that the next tube of the name uses.

Drop: set the registry to dropping; delete all rows and leave a tombstone, unless a task is taken;
set the registry to dropped. If this is interrupted, the next sweep or creation under that name goes
on, unless another program has undone the drop. The table stays, and no other tube uses it.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from tubeq_spark.admin import engines, new_table
from tubeq_spark.errors import TubeBusyError, TubeNotFoundError
from tubeq_spark.model import arguments
from tubeq_spark.model.arguments import NewTube, driver_of, refuse_other
from tubeq_spark.model.tube_types import AGED
from tubeq_spark.payloads.ddl import columns_of
from tubeq_spark.payloads.values import PayloadCodec
from tubeq_spark.runtime.context import QueueContext, TubeContext
from tubeq_spark.runtime.events import TubeEvents
from tubeq_spark.runtime.sessions_over import DeadSessionJudge
from tubeq_spark.storage.tables.gates import Gates
from tubeq_spark.storage.tables.put_gate import PutGate
from tubeq_spark.storage.tables.registry import Registry, TubeRecord, TubeStatus
from tubeq_spark.storage.tables.segment_reader import SegmentReader
from tubeq_spark.storage.tables.subqueue_writer import SubqueueWriter
from tubeq_spark.storage.tables.tube_reader import TubeReader
from tubeq_spark.storage.tables.tube_table import TubeTable
from tubeq_spark.storage.tables.tube_writer import TubeWriter
from tubeq_spark.verbs import expire, maintain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tubeq_spark.model.tube_types import Driver
    from tubeq_spark.storage.opened_location import OpenedLocation
    from tubeq_spark.tube import Tube

log = logging.getLogger(__name__)
T = TypeVar("T")


def is_live(record: TubeRecord) -> bool:
    """Whether a tube may be used."""
    return record.status is TubeStatus.LIVE


def holds_name(record: TubeRecord) -> bool:
    """Whether no other tube may have a tube's name: it lives, or is being dropped."""
    return record.status is not TubeStatus.DROPPED


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


def check_new(
    queue: QueueContext,
    name: object,
    type_name: object,
    options: Mapping[str, Any],
    *,
    in_replicaset: bool,
) -> NewTube:
    """Check the arguments of `create_tube`.

    Raises:
        InvalidOptionError: An argument is bad.
        StoreError: The tube needs Spark, for a type in its payload or for its change feed, and there is
            no session.
    """
    new = arguments.check_new(queue.drivers, name, type_name, options, in_replicaset=in_replicaset)
    engines.require_writable(queue, new.name, new.options)
    new_table.check_payload(queue, new.options.schema)
    return new


def create(
    queue: QueueContext,
    opened: OpenedLocation,
    registry: Registry,
    new: NewTube,
    if_not_exists: bool,  # noqa: FBT001  (as the verb has it)
    owner: str | None = None,
) -> tuple[TubeRecord, bool]:
    """Create a tube's table and register it, or find the existing tube.

    Args:
        queue: The queue object.
        opened: Its location.
        registry: The registry of that location.
        new: The tube.
        if_not_exists: Whether to return an existing tube.
        owner: The session with which a temporary tube ends.

    Returns:
        The tube, and whether it was made.

    Raises:
        TubeExistsError: The name is in use.
        InvalidOptionError: The payload has columns that tubes, or tables, must not have; no tube was made.
        StoreError: Another table or file is in the place of its table; no tube was created.
    """
    new_table.check_payload(queue, new.options.schema)
    dead = DeadSessionJudge(queue, queue.now_us())
    while True:
        everything = registry.with_dropped()
        folded = new.name.lower()
        known = next((r for r in everything if holds_name(r) and r.name.lower() == folded), None)
        if known is None:
            table = new_table.make_unused(queue, opened, new, {r.table.lower() for r in everything})
            record = TubeRecord(
                new.name,
                table,
                0,
                new.driver.name,
                new.options,
                TubeStatus.LIVE,
                queue.now_us(),
                owner,
            )
            if (made := registry.add(record)) is not None:
                return made, True
        elif known.status is TubeStatus.DROPPING:
            finish_drop(queue, opened, registry, known)
        elif known.owner is not None and dead.is_dead(known.owner):
            end_temporary(queue, opened, registry, known)
        else:
            refuse_other(known.name, known.type, known.options, new, if_not_exists=if_not_exists)
            return known, False


def make_context(
    queue: QueueContext, opened: OpenedLocation, registry: Registry, record: TubeRecord
) -> TubeContext:
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
        new_table.make_table(queue, opened, record.table, record.type, record.options)
    queue.loop.opened(table, table_lock)
    if is_live(record):
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
        is_live=lambda: any(r.id == record.id and is_live(r) for r in registry.records()),
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
        "subqueue_writer": SubqueueWriter(table, fresh),
        "gates": Gates(queue.engine, table, fresh),
    }


def drop(
    queue: QueueContext,
    opened: OpenedLocation,
    registry: Registry,
    record: TubeRecord,
    *,
    with_taken: bool = False,
) -> None:
    """Drop a tube; with `with_taken` also its taken tasks.

    Raises:
        TubeBusyError: Tasks are taken; the tube stays as it is.
        TubeNotFoundError: It was dropped before.
        StoreError: It has a change feed, and there is no Spark session.
    """
    engines.require_writable(queue, record.name, record.options)
    ctx = make_context(queue, opened, registry, registry.current(record))
    if not with_taken:
        # This check comes first: while a tube is being dropped, waiting takes end, and nobody finds the tube.
        maintain.require_none_taken(ctx, queue.now_us())
    registry.move(record, (TubeStatus.LIVE,), TubeStatus.DROPPING)
    _drain(ctx, opened, registry, with_taken=with_taken)


def end_temporary(
    queue: QueueContext, opened: OpenedLocation, registry: Registry, record: TubeRecord
) -> bool:
    """Drop a temporary tube whose session has ended, with all its tasks.

    If this is stopped in between, another program finishes the drop. Commits: as `drop`.

    Returns:
        Whether it is gone; False if another program has changed it: it belongs to another session by now.
    """
    try:
        engines.require_writable(queue, record.name, record.options)
        registry.move(record, (TubeStatus.LIVE,), TubeStatus.DROPPING, owner=record.owner)
        _drain(make_context(queue, opened, registry, record), opened, registry, with_taken=True)
    except TubeNotFoundError:
        return False
    return True


def end_temporaries(
    queue: QueueContext,
    opened: OpenedLocation,
    registry: Registry,
    records: Iterable[TubeRecord],
    dead: DeadSessionJudge,
) -> list[str]:
    """Drop the temporary tubes among these whose sessions are dead; returns their names."""
    over = []
    for record in records:
        try:
            if record.owner is not None and record.type in queue.drivers:
                gone = dead.is_dead(record.owner) and end_temporary(queue, opened, registry, record)
                over += [record.name] if gone else []
        except Exception:
            log.exception("temporary tube %s could not be dropped", record.name)
    return over


def _drain(
    ctx: TubeContext,
    opened: OpenedLocation,
    registry: Registry,
    require: Callable[[], object] | None = None,
    *,
    with_taken: bool = False,
) -> None:
    """Remove all rows of a tube that is being dropped, and then the tube from the registry.

    Args:
        ctx: The tube.
        opened: Its location.
        registry: The registry of the location.
        require: As for `maintain.drain`.
        with_taken: Whether taken tasks go, too.

    Raises:
        TubeBusyError: Tasks are taken; the tube is live again.
    """
    try:
        maintain.drain(ctx, require, with_taken=with_taken)
    except TubeBusyError:
        if _undo_drop(ctx, registry):
            raise
    _forget(opened, registry, ctx.record)


def _undo_drop(ctx: TubeContext, registry: Registry) -> bool:
    """Make a tube with taken tasks live again; False if another program has emptied it meanwhile.

    If another program found it busy and undid the drop first, the tube lives, too.
    """
    record = ctx.record
    try:
        registry.move(record, (TubeStatus.DROPPING,), TubeStatus.LIVE)
    except TubeNotFoundError:
        found = registry.find(record.name)
        if found is None or found.id != record.id:
            return False
    return maintain.undo_drop(ctx)


def _forget(opened: OpenedLocation, registry: Registry, record: TubeRecord) -> None:
    """Remove an emptied tube from the registry; the tombstone in its table is committed."""
    with contextlib.suppress(TubeNotFoundError):  # another one was faster
        registry.move(record, (TubeStatus.DROPPING, TubeStatus.LIVE), TubeStatus.DROPPED)
    opened.table_lock(record.table).is_dropped = True


def finish_drops(
    queue: QueueContext, opened: OpenedLocation, registry: Registry, records: Iterable[TubeRecord]
) -> None:
    """Finish interrupted drops."""
    for record in records:
        try:
            if record.status is TubeStatus.DROPPING:
                finish_drop(queue, opened, registry, record)
        except Exception:
            log.exception("the drop of tube %s could not be finished", record.name)


def finish_drop(
    queue: QueueContext, opened: OpenedLocation, registry: Registry, record: TubeRecord
) -> None:
    """Finish a drop; if tasks are taken, make the tube live again, as `drop` does.

    If another program has finished or undone the drop meanwhile, the tube is left alone: it may have new tasks.
    """
    ctx = make_context(queue, opened, registry, record)
    now_us = queue.now_us()
    expire.end_due(ctx, now_us)
    expire.end_dead_sessions(ctx, now_us, there=False)
    with contextlib.suppress(TubeBusyError, TubeNotFoundError):
        _drain(ctx, opened, registry, lambda: registry.require_dropping(record))
