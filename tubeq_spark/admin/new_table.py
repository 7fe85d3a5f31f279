"""The table of a new tube: made, and made to fit where an earlier tube of that name left one.

Where a name was never in use, its table is made first, and the tube is registered as live if the table
fits it: nobody replaces a table but for a registered tube. Else the tube is registered as *creating*,
the table is made to fit, and then the tube becomes live. Stopped in between, whoever comes upon the
name goes on: each step may be done again.

The commit that fits a table bears the tube's id, which grows with each tube, as a transaction id. So of
several who do it one does, and one that was paused and comes after a later tube does nothing.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tubeq_spark.errors import InvalidOptionError, StoreError, TubeNotFoundError
from tubeq_spark.rules.error_text import reason_of
from tubeq_spark.runtime.codecs import payload_struct
from tubeq_spark.storage.commit_loop import Plan
from tubeq_spark.storage.spark.conflicts import Outcome, classify
from tubeq_spark.storage.spark.open_location import OpenedLocation, create_table
from tubeq_spark.storage.spark.registry import Registry, TubeRecord, TubeStatus
from tubeq_spark.storage.spark.schema import (
    CHANGE_FEED,
    PARTITION,
    leftover_tombstones,
    new_tube_table,
    set_property,
)
from tubeq_spark.storage.statement import Append

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from tubeq_spark.runtime.context import QueueContext
    from tubeq_spark.storage.spark.engine import Engine

__all__ = ["finish_creation", "make_fitting_table", "make_table", "payload_type"]

#: Delta's transaction id of the commits that make a table fit a tube.
_APP = "tubeq/create"


def make_table(queue: QueueContext, opened: OpenedLocation, record: TubeRecord) -> None:
    """Make a tube's table where there is none."""
    payload = None
    if record.options.schema is not None:
        payload = f"STRUCT<{payload_struct(record.options.schema).toDDL()}>"
    new = new_tube_table(
        opened.location.table(record.name),
        queue.config,
        payload,
        change_feed=record.options.change_feed,
    )
    with opened.table_lock(record.name).changing(queue.engine.committer):
        create_table(queue.engine, new)


def payload_type(record: TubeRecord) -> T.DataType:
    """The type of a tube's payload column."""
    ddl = record.options.schema
    return T.StringType() if ddl is None else payload_struct(ddl)


def make_fitting_table(queue: QueueContext, opened: OpenedLocation, record: TubeRecord) -> bool:
    """Make the table of a tube that is not registered yet.

    Returns:
        Whether it fits; a table that was there need not.

    Raises:
        InvalidOptionError: Delta refuses the payload's columns.
        StoreError: There is something else in its place.
    """
    table = opened.location.table(record.name)
    with _refusing(record):
        make_table(queue, opened, record)
    return _has_payload_of(_leftover(queue.engine, table), record) and _has_feed_of(
        queue.engine, table, record
    )


def finish_creation(
    queue: QueueContext, opened: OpenedLocation, registry: Registry, record: TubeRecord
) -> TubeRecord:
    """Make the table of a tube that is being created fit it, and the tube live.

    Commits: one to the table, one or two more where it must be created or its change feed switched;
    one to the registry. All may be done by several at once.

    Returns:
        The tube, live.

    Raises:
        InvalidOptionError: Delta refuses the payload's columns; the tube is dropped again.
        StoreError: There is something else in the place of its table.
    """
    table, table_lock = opened.location.table(record.name), opened.table_lock(record.name)

    def fit() -> Plan[None]:
        operation_id = -queue.random.getrandbits(62) - 1
        return Plan(_fitting(queue.engine, table, record, operation_id), lambda _: None)

    try:
        with _refusing(record):
            make_table(queue, opened, record)
            queue.loop.run("fit_table", table_lock, fit)
    except InvalidOptionError:
        with contextlib.suppress(TubeNotFoundError):  # another one was faster
            registry.move(record, (TubeStatus.CREATING,), TubeStatus.DROPPED)
        raise
    with table_lock.changing(queue.engine.committer):
        _fit_feed(queue.engine, table, registry, record)
    try:
        registry.move(record, (TubeStatus.CREATING,), TubeStatus.LIVE)
    except TubeNotFoundError:
        # Another one was faster, and may have dropped it by now.
        current = registry.find(record.name)
        if current is None or current.id != record.id:
            table_lock.dropped.add(record.id)
    return replace(record, status=TubeStatus.LIVE)


def _fitting(engine: Engine, table: str, record: TubeRecord, operation_id: int) -> Append:
    """The commit after which no earlier tube's creator changes the table; tombstones stay."""
    tombstones = _leftover(engine, table)
    once = (_APP, record.id)
    if _has_payload_of(tombstones, record):
        return Append(table, tombstones.where("FALSE"), operation_id, once)
    emptied = tombstones.withColumn("data", F.lit(None).cast(payload_type(record)))
    return Append(table, emptied, operation_id, once, replaces=PARTITION)


def _leftover(engine: Engine, table: str) -> DataFrame:
    try:
        tombstones = engine.frame(leftover_tombstones(table))
        fields = tombstones.schema.names
    except AnalysisException as error:
        msg = f"{table} cannot be used: there is something else in its place: {reason_of(error)}"
        raise StoreError(msg) from None
    if not {"data", "tube"} <= {*fields}:
        msg = f"{table} cannot be used: it is not the table of a tube"
        raise StoreError(msg)
    return tombstones


def _has_payload_of(rows: DataFrame, record: TubeRecord) -> bool:
    return rows.schema["data"].dataType == payload_type(record)


def _feed(record: TubeRecord) -> str:
    return "true" if record.options.change_feed else "false"


def _has_feed_of(engine: Engine, table: str, record: TubeRecord) -> bool:
    return engine.property(table, CHANGE_FEED) == _feed(record)


def _fit_feed(engine: Engine, table: str, registry: Registry, record: TubeRecord) -> None:
    """Switch a table's change feed as the tube has it, while the tube is being created."""
    while not _has_feed_of(engine, table, record):
        # This statement bears no transaction id: it is not run for a tube that is long made.
        current = registry.find(record.name)
        if current is None or (current.id, current.status) != (record.id, TubeStatus.CREATING):
            return
        try:
            engine.run(set_property(table, CHANGE_FEED, _feed(record)))
        except Exception as error:
            if classify(error) is not Outcome.CONFLICT:
                raise


@contextlib.contextmanager
def _refusing(record: TubeRecord) -> Iterator[None]:
    """Tell the payload's columns from other reasons for which a table cannot be made."""
    try:
        yield
    except (AnalysisException, StoreError) as error:
        refused = error if isinstance(error, AnalysisException) else error.__cause__
        if record.options.schema is None or not isinstance(refused, AnalysisException):
            raise
        msg = f"schema={record.options.schema!r}: {reason_of(refused)}"
        raise InvalidOptionError(msg) from error
