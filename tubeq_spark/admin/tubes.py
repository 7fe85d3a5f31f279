"""Opens, creates and drops tubes.

Create: check, create a table that no tube has had, register the tube. This commit decides which program creates the
tube. A stopped creation leaves a table that the next tube of the name uses. A tube has the table of its name. If an
earlier tube has had that table, it is `name__2`, then `name__3`, and so on.

Drop: one commit deletes all rows and leaves a tombstone, unless a task is taken; another one marks the tube as dropped
in the registry. If it stops in between, the next sweep or creation under that name finds the tombstone, and goes on.
The table stays, and no other tube uses it.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from tubeq_spark.errors import InvalidOptionError, TubeNotFoundError
from tubeq_spark.model import validation
from tubeq_spark.model.arguments import NewTube, driver_of, refuse_other
from tubeq_spark.model.tube_types import order_of
from tubeq_spark.payloads.ddl import are_same, columns_of, without_not_null
from tubeq_spark.payloads.values import PayloadCodec
from tubeq_spark.runtime.context import QueueContext, TubeContext
from tubeq_spark.runtime.events import TubeEvents
from tubeq_spark.storage.engine import is_missing_table
from tubeq_spark.storage.tables.registry import TubeRecord
from tubeq_spark.storage.tables.schema import CHANGE_FEED, new_tube_table
from tubeq_spark.storage.tables.tube_table import TubeTable
from tubeq_spark.verbs import maintain
from tubeq_spark.verbs.expire import DeadSessionJudge

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from tubeq_spark.model.options import TubeOptions
    from tubeq_spark.tube import Tube

T = TypeVar("T")
log = logging.getLogger(__name__)


def context_of(tube: Tube) -> TubeContext:
    """The context of a tube."""
    return tube._ctx  # noqa: SLF001  (the façade keeps it from programs, not from the package)


def perform_in(tube: Tube, verb: Callable[[TubeContext], T], *, name: str | None = None) -> T:
    """Run a verb that is not a method of `Tube` as these are run, by the tube's newest record.

    Args:
        tube: The tube.
        verb: The verb.
        name: The name of its span, if the program wants one; `None` for a verb that only reads.

    Raises:
        QueueStateError: The queue is not running.
        TubeNotFoundError: The tube was dropped.
    """
    if name is None:
        return tube._read(verb)  # noqa: SLF001  (as above)
    return tube._run(name, verb)  # noqa: SLF001  (as above)


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


def create(
    queue: QueueContext,
    new: NewTube,
    owner: str | None = None,
) -> tuple[TubeRecord, bool]:
    """Create a tube's table and register it, or find the existing tube.

    Args:
        queue: The queue object.
        new: The tube.
        owner: The session with which a temporary tube ends.

    Returns:
        The tube, and whether it was made.

    Raises:
        TubeExistsError: The name is in use.
        InvalidOptionError: The payload has columns that tubes, or tables, must not have; or the existing tube has
            other options, which the request refuses. No tube was made.
        StoreError: Another table or file is in the place of its table, or the queue was moved to another place; no
            tube was created.
    """
    dead = DeadSessionJudge(queue.session, queue.now_us())
    while True:
        everything = queue.registry.with_dropped()
        folded = new.name.lower()
        known = next((r for r in everything if r.is_live and r.name.lower() == folded), None)
        if known is None:
            for other in everything:
                if other.is_live:
                    other.require_here()
            table = _make_unused(queue, new, {r.table.lower() for r in everything})
            record = TubeRecord(
                new.name, table, 0, new.driver.name, new.options, queue.now_us(), owner
            )
            if (made := queue.registry.add(record)) is not None:
                return made, True
        elif known.owner is not None and dead.is_dead(known.owner):
            end_temporary(queue, known)
        elif known.type in queue.drivers and _is_emptied(queue, known):
            mark_dropped(queue, known)
        else:
            options, schema = known.options, new.options.schema
            if are_same(options.schema, schema):
                options = replace(options, schema=schema)
            refuse_other(known.name, known.type, options, new)
            return known, False


def _is_emptied(queue: QueueContext, record: TubeRecord) -> bool:
    """Whether a tube has a tombstone: its drop was stopped, or is not done yet."""
    ctx = make_context(queue, record)
    try:
        return ctx.reader.is_dropped()
    except Exception as error:
        if not is_missing_table(error):
            raise
        return False


def _make_unused(queue: QueueContext, new: NewTube, used: Collection[str]) -> str:
    """Create a table for a tube that is not registered yet.

    Another creation of the tube may have made the table, and was stopped or is still running. Such a table is used if
    it fits: the registry gives it to one tube only.

    Args:
        queue: The queue object.
        new: The tube.
        used: The tables that tubes have or have had, in lower case.

    Returns:
        The name of the table.

    Raises:
        InvalidOptionError: Delta refuses the payload's columns.
        StoreError: The place of the table has something else.
    """
    number = 1
    while True:
        name = new.name if number == 1 else f"{new.name}__{number}"
        number += 1
        if name.lower() not in used:
            with _refusing(queue, new.options):
                is_new = make_table(queue, name, new.driver.name, new.options)
            # Spark may show a type in another way than it reads it.
            if is_new or _fits(queue, queue.opened.location.table(name), new.options):
                return name


def _fits(queue: QueueContext, table: str, options: TubeOptions) -> bool:
    """Whether a table, which another program may have made, has the payload and the change feed of a tube."""
    tables = queue.engine.tables
    feed = "true" if options.change_feed else "false"
    has_payload = tables.has_payload(table, payload_of(options))
    return has_payload and tables.properties(table).get(CHANGE_FEED) == feed


@contextlib.contextmanager
def _refusing(queue: QueueContext, options: TubeOptions) -> Iterator[None]:
    """Raise a better error if the table cannot be created because of the payload's columns."""
    try:
        yield
    except Exception as error:
        reason = queue.engine.tables.refused_columns(error)
        if options.schema is None or reason is None:
            raise
        raise InvalidOptionError(f"schema={options.schema!r}: {reason}") from error


def drop(queue: QueueContext, record: TubeRecord, *, with_taken: bool = False) -> None:
    """Drop a tube; with `with_taken` also its taken tasks.

    Raises:
        TubeBusyError: Tasks of the tube are taken. Nothing was changed.
        TubeNotFoundError: It was dropped before.
    """
    ctx = make_context(queue, queue.registry.current(record))
    is_mine = maintain.drain(ctx, with_taken=with_taken)
    mark_dropped(queue, record)
    if not is_mine:
        raise validation.was_dropped(record.name)


def mark_dropped(queue: QueueContext, record: TubeRecord) -> None:
    """Mark a tube with a tombstone as dropped in the registry. At most one commit."""
    with contextlib.suppress(TubeNotFoundError):  # another one was faster
        queue.registry.alter(record, lambda current: replace(current, is_live=False), "drop")
    queue.opened.table_lock(record.table).is_dropped = True


def end_temporary(queue: QueueContext, record: TubeRecord) -> bool:
    """Drop a temporary tube whose session has ended, with all its tasks.

    Returns:
        Whether it is gone; False if it belongs to another session by now. Commits: as `drop`.
    """
    try:
        # The newest records are read, even if another thread has read the registry since the operation began.
        with queue.engine.operating("read", None):
            # A session gives its tubes to another one before it leaves, so before it can be found dead.
            if queue.registry.current(record).owner != record.owner:
                return False
        drop(queue, record, with_taken=True)
    except TubeNotFoundError:
        return False
    return True


def end_temporaries(
    queue: QueueContext, records: Iterable[TubeRecord], dead: DeadSessionJudge
) -> list[str]:
    """Drop the temporary tubes among these whose sessions are dead; returns their names."""
    over = []
    for record in records:
        try:
            if record.owner is not None and record.type in queue.drivers:
                gone = dead.is_dead(record.owner) and end_temporary(queue, record)
                over += [record.name] if gone else []
        except Exception:
            log.exception("temporary tube %s could not be dropped", record.name)
    return over


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
    with queue.opened.table_lock(name).changing(queue.engine.committing_jvm):
        is_new = queue.engine.tables.create(new)
    if driver_of(queue.drivers, type_name).subqueues:
        queue.engine.tables.show_taken_utubes(new.name)
    return is_new


def payload_of(options: TubeOptions) -> str | None:
    """The columns of a typed payload, as a table has them; `None` is JSON text."""
    return None if options.schema is None else without_not_null(options.schema)
