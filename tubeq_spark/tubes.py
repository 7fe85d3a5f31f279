"""Creating, opening and dropping tubes.

create: check, register (the commit that decides who creates), make the table. Stopped in between,
whoever opens the tube next makes the table: `CREATE TABLE IF NOT EXISTS` destroys nothing, and rows
carry the tube's id, so leftovers of an earlier tube of that name are never seen.
drop: mark in the registry, delete all rows unless one is taken, remove from the registry. Stopped
in between, the next sweep or creation under that name goes on.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tubeq_spark import checks, ending, looking
from tubeq_spark.context import QueueContext, TubeContext
from tubeq_spark.drivers import Driver
from tubeq_spark.errors import (
    InvalidOptionError,
    TubeBusyError,
    TubeExistsError,
    TubeNotFoundError,
    TubeqError,
)
from tubeq_spark.opening import OpenedLocation, create_table
from tubeq_spark.options import TubeOptions, tube_options
from tubeq_spark.payloads import JsonCodec, PayloadCodec, TypedCodec, payload_struct
from tubeq_spark.storage.admission import Admission
from tubeq_spark.storage.layout import TubeTable
from tubeq_spark.storage.location import TAKEN_UTUBES
from tubeq_spark.storage.notes import Note
from tubeq_spark.storage.registry import Registry, TubeRecord, TubeStatus
from tubeq_spark.storage.schema import (
    CHANGE_FEED,
    PARTITION,
    leftover_marks,
    new_taken_utubes,
    new_tube_table,
    set_property,
)
from tubeq_spark.storage.statements import Statements
from tubeq_spark.storage.subqueue_statements import SubqueueStatements
from tubeq_spark.storage.subqueues import Subqueues
from tubeq_spark.storage.taken_utubes import TakenUtubes
from tubeq_spark.storage.tasks import Tasks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tubeq_spark.storage.engine import Engine
    from tubeq_spark.tube import Tube

__all__ = [
    "NewTube",
    "check_new",
    "context_of",
    "create",
    "drop",
    "finish_drops",
    "is_live",
    "make_context",
    "register_driver",
]


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NewTube:
    """A checked request for a tube."""

    name: str
    driver: Driver
    options: TubeOptions


def is_live(record: TubeRecord) -> bool:
    """Whether a tube may be used."""
    return record.status is TubeStatus.LIVE


def context_of(tube: Tube) -> TubeContext:
    """The context inside a tube."""
    return tube._ctx  # noqa: SLF001  (the façade keeps it from programs, not from the package)


def driver_of(queue: QueueContext, type_name: object) -> Driver:
    """The driver of a type.

    Raises:
        InvalidOptionError: There is none.
    """
    driver = queue.drivers.get(type_name) if isinstance(type_name, str) else None
    if driver is None:
        checks.refuse("type", type_name, f"one of {', '.join(sorted(queue.drivers))}")
    return driver


def register_driver(queue: QueueContext, type_name: object, driver: object) -> None:
    """Add a tube type.

    Raises:
        InvalidOptionError: The name is bad or taken, or the driver declares what nothing can do.
    """
    name = checks.tube_name(type_name)
    if name in queue.drivers:
        checks.refuse(
            "type_name", name, "a new name: overriding a registered driver is not allowed"
        )
    if not isinstance(driver, Driver):
        checks.refuse("driver", driver, "a tubeq_spark.Driver")
    problem = driver.problem()
    if problem is not None:
        checks.refuse("driver", driver, problem)
    queue.drivers[name] = replace(driver, name=name)


def check_new(
    queue: QueueContext, name: object, type_name: object, options: Mapping[str, Any]
) -> NewTube:
    """Check what `create_tube` was given.

    Raises:
        InvalidOptionError: Any of it is bad.
    """
    checked_name = checks.tube_name(name)
    driver = driver_of(queue, type_name)
    checked = tube_options(options, driver.tube_options, driver.name)
    if checked.schema is not None:
        payload_struct(checked.schema)
    return NewTube(checked_name, driver, checked)


def create(
    queue: QueueContext,
    opened: OpenedLocation,
    registry: Registry,
    new: NewTube,
    if_not_exists: bool,  # noqa: FBT001  (as the verb has it)
) -> tuple[TubeRecord, bool]:
    """Register a tube and make its table, or find the one that is there.

    Returns:
        The tube, and whether it was made.

    Raises:
        TubeExistsError: The name is in use.
        InvalidOptionError: Delta refuses the payload's columns; the tube is dropped again.
    """
    while True:
        known = registry.find(new.name)
        if known is not None and known.status is TubeStatus.DROPPING:
            finish_drop(queue, opened, registry, known)
            continue
        if known is not None:
            return _existing(known, new, if_not_exists), False
        if not registry.add(new.name, new.driver.name, new.options, queue.now_us()):
            continue
        record = registry.live(new.name)
        try:
            _make_table(queue, opened, record)
        except AnalysisException as error:
            if record.options.schema is None:
                raise
            registry.move(record, (TubeStatus.LIVE,), TubeStatus.DROPPED)
            reason = str(error).strip().splitlines()[0]
            msg = f"schema={record.options.schema!r}: {reason}"
            raise InvalidOptionError(msg) from error
        with opened.lane(new.name).changing(queue.engine.committer):
            note = Note("create_tube", str(queue.session.uuid))
            _fit_table(queue.engine, opened.location.table(new.name), record, note)
        return record, True


def _existing(known: TubeRecord, new: NewTube, if_not_exists: bool) -> TubeRecord:  # noqa: FBT001
    if not if_not_exists or known.name != new.name:
        msg = f"tube {known.name!r} exists already"
        raise TubeExistsError(msg)
    if known.type != new.driver.name:
        msg = (
            f"tube {known.name!r} exists already, with type {known.type!r}, not {new.driver.name!r}"
        )
        raise TubeExistsError(msg)
    return known


def _make_table(queue: QueueContext, opened: OpenedLocation, record: TubeRecord) -> None:
    payload = None
    if record.options.schema is not None:
        payload = f"STRUCT<{payload_struct(record.options.schema).toDDL()}>"
    new = new_tube_table(
        opened.location.table(record.name),
        queue.config,
        payload,
        change_feed=record.options.change_feed,
    )
    with opened.lane(record.name).changing(queue.engine.committer):
        create_table(queue.engine, new)


def _payload_type(record: TubeRecord) -> T.DataType:
    ddl = record.options.schema
    return T.StringType() if ddl is None else payload_struct(ddl)


def _fit_table(engine: Engine, table: str, record: TubeRecord, note: Note) -> None:
    """Make a table that an earlier tube of this name left behind fit a new one.

    Only the creator of a tube does it. The overwrite bears the tube's id, which grows with each
    tube, as a transaction id: a creator that was paused and comes after a later one writes
    nothing. The marks of earlier drops stay.
    """
    wanted = _payload_type(record)
    marks = engine.frame(leftover_marks(table))
    if marks.schema["data"].dataType != wanted:
        emptied = marks.withColumn("data", F.lit(None).cast(wanted))
        engine.replace(table, emptied, PARTITION, "tubeq/create", record.id, note)
    feed = "true" if record.options.change_feed else "false"
    if engine.property(table, CHANGE_FEED) != feed:
        engine.run(set_property(table, CHANGE_FEED, feed))


def make_context(
    queue: QueueContext, opened: OpenedLocation, registry: Registry, record: TubeRecord
) -> TubeContext:
    """Everything the verbs need of a tube.

    Raises:
        InvalidOptionError: Its type is not known here.
    """
    table = opened.location.table(record.name)
    codec: PayloadCodec = JsonCodec()
    # Also for a tube whose creator stopped before it made the table.
    _make_table(queue, opened, record)
    kind = _payload_type(record)
    struct = kind if isinstance(kind, T.StructType) else None
    if struct is not None:
        arrow = queue.engine.column_type(table, "data")
        if isinstance(arrow, pa.StructType):
            codec = TypedCodec(arrow)
    driver = driver_of(queue, record.type)
    tube_table = TubeTable(table, record.id, driver.order, struct, record.options.change_feed)
    taken_utubes = opened.location.table(TAKEN_UTUBES)
    if driver.subqueues:
        with opened.lane(TAKEN_UTUBES).changing(queue.engine.committer):
            create_table(queue.engine, new_taken_utubes(taken_utubes, queue.config))
    fresh = lambda: queue.session.segments(1)[0]  # noqa: E731
    ctx = TubeContext(
        queue,
        record,
        driver,
        tube_table,
        Tasks(queue.engine, tube_table),
        Statements(tube_table, fresh),
        Admission(queue.engine, tube_table, fresh),
        Subqueues(queue.engine, tube_table),
        SubqueueStatements(tube_table, fresh),
        TakenUtubes(queue.engine, taken_utubes, record.id, opened.lane(TAKEN_UTUBES)),
        opened.lane(record.name),
        codec,
    )
    ctx.is_live = lambda: any(r.id == record.id and is_live(r) for r in registry.records())
    ctx.was_dropped = lambda: _forget(opened, registry, record)
    return ctx


def drop(
    queue: QueueContext, opened: OpenedLocation, registry: Registry, record: TubeRecord
) -> None:
    """Drop a tube.

    Raises:
        TubeBusyError: Tasks are taken; the tube stays as it is.
        TubeNotFoundError: It was dropped before.
    """
    registry.move(record, (TubeStatus.LIVE,), TubeStatus.DROPPING)
    try:
        looking.drain(make_context(queue, opened, registry, record))
    except TubeBusyError:
        with contextlib.suppress(TubeNotFoundError):  # a sweep drained it a moment later
            registry.move(record, (TubeStatus.DROPPING,), TubeStatus.LIVE)
            raise
    _forget(opened, registry, record)


def _forget(opened: OpenedLocation, registry: Registry, record: TubeRecord) -> None:
    """Remove a drained tube from the registry: the mark in its table has decided.

    The table stays, in a catalog too: by now it may belong to a new tube of that name.
    """
    with contextlib.suppress(TubeNotFoundError):  # another one was faster
        registry.move(record, (TubeStatus.DROPPING, TubeStatus.LIVE), TubeStatus.DROPPED)
    opened.lane(record.name).dropped.add(record.id)


def finish_drops(queue: QueueContext, opened: OpenedLocation, registry: Registry) -> None:
    """Go on with drops that were stopped."""
    for record in registry.records():
        if record.status is TubeStatus.DROPPING:
            try:
                finish_drop(queue, opened, registry, record)
            except TubeqError:
                log.exception("the drop of tube %s could not be finished", record.name)


def finish_drop(
    queue: QueueContext, opened: OpenedLocation, registry: Registry, record: TubeRecord
) -> None:
    """Go on with a drop; when tasks are taken the tube is live again, as `drop` would have it."""
    ctx = make_context(queue, opened, registry, record)
    now_us = queue.now_us()
    ending.end_due(ctx, now_us)
    ending.end_dead_sessions(ctx, now_us, there=False)
    try:
        looking.drain(ctx)
    except TubeBusyError:
        with contextlib.suppress(TubeNotFoundError):
            registry.move(record, (TubeStatus.DROPPING,), TubeStatus.LIVE)
        return
    _forget(opened, registry, record)
