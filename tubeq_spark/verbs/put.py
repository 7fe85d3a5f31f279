"""put, put_many, and the plan of all puts: insert new tasks, into segments that no other put uses.

A put reads the gate of puts if it rests on it, chooses the new rows, reserves ids, and makes one statement (`_plan`).
Only the rows differ: here are those of `put` and `put_many`, in `put_rows` and `put_frame` those of tables.

Reserving ids is a commit only when the range of the slot is used up. If a put is interrupted before its statement,
only ids are lost; after it, the tasks are stored. Other commits do not affect a put, because only it uses the numbers
of its segments. On the native engine `put` and `put_many` sometimes compact tiny segments, by a separate commit.

In a tube with a capacity, and with keys (`unique`), a put rests on what it has read, and starts again if another such
put commits in between. If the ttl of a task that has one of the keys or fills the capacity has ended, a separate
commit first removes the task.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import pyarrow as pa

from tubeq_spark.clock import US
from tubeq_spark.model import stored_task
from tubeq_spark.model.ids import BUCKETS, Numbering, hash_of, rows_of, spread
from tubeq_spark.model.validation import was_dropped
from tubeq_spark.payloads.arrow_values import refuse_large
from tubeq_spark.storage.arrow.columns import array
from tubeq_spark.storage.commit_loop import Plan
from tubeq_spark.storage.rows import PutsSeen, insert_schema, insert_table, with_key_rows
from tubeq_spark.verbs.expire import end_due
from tubeq_spark.verbs.maintain import compact_crowded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tubeq_spark.model.stored_task import PutCall, StoredTask
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.storage.statement import Affected, PutIdentity, Source, WrittenRows
    from tubeq_spark.task import Task

    #: The new rows of several calls, and the row of each of their items.
    _Tasks: TypeAlias = tuple[list[StoredTask], list[list[StoredTask]]]

T = TypeVar("T")
#: Most bytes of a character in UTF-8.
_UTF8_MOST = 4


def prepare(ctx: TubeContext, call: PutCall) -> list[StoredTask]:
    """Check all items of a call before anything is written; return their rows, without segments and ids.

    If there are any, this also starts the heart of the session.

    Raises:
        InvalidOptionError: An item is bad.
    """
    now_us = ctx.queue.now_us()
    rows = stored_task.prepare(call, ctx.tube_type, ctx.record.options, ctx.codec.encode, now_us)
    require_small(ctx, [row.data for row in rows])
    if rows:
        ctx.queue.session.start_beating()
    return rows


def require_small(ctx: TubeContext, data: list[Any]) -> None:
    """Refuse payloads that are too large.

    Raises:
        InvalidOptionError: A payload is larger than the settings allow.
    """
    most, kind = ctx.queue.config.largest_payload, ctx.codec.arrow_type
    # This bound on the size of each text in UTF-8 spares most puts the encoding.
    if kind is None and _UTF8_MOST * max(map(len, data), default=0) <= most:
        return
    column = pa.chunked_array([array(data, kind or pa.string())])
    refuse_large(column, most, lambda place: "data" if len(data) == 1 else f"items[{place}]")


def put_group(
    ctx: TubeContext,
    calls: list[list[StoredTask]],
    *,
    name: str = "put",
    changed: Callable[[StoredTask], StoredTask] | None = None,
) -> list[list[Task]]:
    """Commit the items of several calls at once, except calls without free capacity.

    Args:
        ctx: The tube.
        calls: The rows of each call.
        name: The name of the verb.
        changed: Changes a row in each attempt.
    """

    def choose(_: PutsSeen | None, free: int | None) -> NewRows[_Tasks] | None:
        rows = [list(map(changed, call)) for call in calls] if changed else calls
        return _new_tasks(ctx, rows, free)

    has_keys = any(row.unique is not None for call in calls for row in call)
    added, found = add(ctx, choose, name=name, has_keys=has_keys)
    tasks = ctx.events.record("put", added)
    of_ids = {task.task_id: task for task in tasks}
    if tasks:
        ctx.table_lock.wake_takes()
        if ctx.is_crowded():
            compact_crowded(ctx)

    def task(row: StoredTask) -> Task:
        # A task may be the result of several items, and each result has a payload of its own.
        return of_ids.pop(row.task_id) if row.task_id in of_ids else row.task()

    return [list(map(task, rows)) for rows in found]


# -- the plan of all puts ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewRows(Generic[T]):
    """The rows that one attempt of a put adds.

    Attributes:
        buckets: The number of rows by the bucket of their sub-queue.
        make: Makes the rows (columns of `INSERTED`).
        result: Makes the result of the put from the ids and the number of added rows, which are `None` and 0 if the
            put adds none.
        payload_bytes: The size of all payloads together; 0 if it is not known.
        is_full: Whether other rows are left out because the capacity is too small.
        numbering: The ids and segments of rows that are already written; `None` gives them new ones.
        written: The rows that are already written to files.
    """

    buckets: Mapping[int, int]
    make: Callable[[Numbering], Source]
    result: Callable[[Numbering | None, int], T]
    payload_bytes: int = 0
    is_full: bool = False
    numbering: Numbering | None = None
    written: WrittenRows | None = None

    @property
    def total(self) -> int:
        """The number of rows."""
        return sum(self.buckets.values())


#: Chooses the new rows by the gate of puts and by the free capacity, which are `None` if the put does not rest on
#: them. Returns `None` if an ended task that is still stored has one of the keys.
Choose: TypeAlias = "Callable[[PutsSeen | None, int | None], NewRows[T] | None]"


def add(
    ctx: TubeContext,
    choose: Choose[T],
    *,
    name: str = "put",
    has_keys: bool,
    identity: PutIdentity | None = None,
    appends: bool = False,
) -> T:
    """Add new rows by one commit. If ended tasks have their keys, or fill the capacity, first remove these.

    A take or a touch that began before the end of a task may still commit. It conflicts with the commit that
    removes the task. So an old and a new task never have the same key, and the capacity is never exceeded.

    Args:
        ctx: The tube.
        choose: Called for each attempt.
        name: The name of the verb.
        has_keys: Whether rows may have keys.
        identity: The identity of the put, which makes a repetition add nothing.
        appends: Whether rows that do not rest on the gate are appended. An append does not see the drop of the tube.
    """

    def attempt() -> Plan[T | None]:
        return _plan(ctx, choose, has_keys=has_keys, identity=identity, appends=appends)

    while True:
        done = ctx.queue.loop.run(name, ctx.table_lock, attempt)
        if done is not None:
            return done
        while end_due(ctx, ctx.queue.now_us()).total():
            pass


def _plan(
    ctx: TubeContext,
    choose: Choose[T],
    *,
    has_keys: bool,
    identity: PutIdentity | None,
    appends: bool,
) -> Plan[T | None]:
    """Plan one attempt; its result is `None` if ended tasks must be removed first."""
    ctx.require_here()
    now_us, capacity = ctx.queue.now_us(), ctx.capacity
    seen, free = None, None
    if has_keys or capacity is not None:
        # The gate is read before anything that the put rests on.
        seen = ctx.put_gate.read(now_us, identity, counts=capacity is not None)
        if seen.dropped:
            raise was_dropped(ctx.record.name)
        free = None if capacity is None else capacity - seen.stored
    new = choose(seen, free)
    if new is None or (seen is not None and seen.ended and new.is_full):
        return Plan(None, lambda _: None)
    total, appends = new.total, appends and seen is None
    if not total:
        return Plan(None, lambda _: new.result(None, 0))
    numbering = new.numbering or _numbered(ctx, new, now_us)
    rows = new.make(numbering)
    if appends:
        statement = ctx.writer.append(rows, total, identity)
    elif seen is None:
        statement = ctx.writer.put(rows, total, numbering.segments)
    else:
        forget_us = now_us - ctx.queue.config.key_days * 86_400 * US
        given = (rows, total, numbering.segments, seen)
        statement = ctx.put_gate.put(*given, now_us=now_us, identity=identity, forget_us=forget_us)

    def finish(affected: Affected) -> T:
        if not (affected.inserted or appends):
            raise was_dropped(ctx.record.name)
        return new.result(numbering, affected.inserted if appends else total)

    return Plan(replace(statement, written=new.written), finish, now_us)


def _numbered(ctx: TubeContext, new: NewRows[T], now_us: int) -> Numbering:
    """Reserve ids and segments for rows."""
    config, session, total = ctx.queue.config, ctx.queue.session, new.total
    size = rows_of(config.segment_rows, total, new.payload_bytes)
    layout = spread(new.buckets, size, config.fold_rows)
    numbers = session.task_ids(total + layout.segments, ctx.table_lock.last_id)
    ctx.table_lock.last_id = numbers.task_id(total - 1)
    key_segment = None if ctx.table.unique_for_us is None else session.segments(1)[0]
    return Numbering(total, numbers, layout, now_us, key_segment)


def with_kept_keys(ctx: TubeContext, rows: pa.Table, numbering: Numbering) -> pa.Table:
    """Rows of a put, and those for the keys that stay in use by `unique_for`."""
    if numbering.key_segment is None:
        return rows
    until_us = numbering.now_us + (ctx.table.unique_for_us or 0)
    return with_key_rows(rows, numbering.key_segment, until_us)


# -- the rows of put and put_many -------------------------------------------------------------


def _new_tasks(
    ctx: TubeContext, calls: list[list[StoredTask]], free: int | None
) -> NewRows[_Tasks] | None:
    """The new tasks of several calls; `None` if an ended task that is still stored has one of their keys."""
    keys = {row.unique for call in calls for row in call if row.unique is not None}
    there = ctx.put_gate.holders(keys, ctx.queue.now_us()) if keys else {}
    if there is None:
        return None
    new, found = _admitted(calls, free, there)
    spreads = ctx.tube_type.subqueues
    buckets = [hash_of(row.utube) % BUCKETS if spreads else 0 for row in new]
    added: list[StoredTask] = []

    def make(numbering: Numbering) -> pa.Table:
        segments = numbering.segments
        for place, (row, bucket) in enumerate(zip(new, buckets, strict=True)):
            segment = segments[numbering.layout.segment(place, bucket)]
            added.append(replace(row, segment=segment, task_id=numbering.numbers.task_id(place)))
        rows = insert_table(added, insert_schema(ctx.codec.arrow_type))
        return with_kept_keys(ctx, rows, numbering)

    def rows_of(items: list[StoredTask | int] | None) -> list[StoredTask]:
        return [added[item] if isinstance(item, int) else item for item in items or ()]

    return NewRows(
        Counter(buckets),
        make,
        lambda *_: (added, list(map(rows_of, found))),
        payload_bytes=sum(len(row.data) for row in new if isinstance(row.data, str)),
        is_full=None in found,
    )


def _admitted(
    calls: list[list[StoredTask]], free: int | None, there: Mapping[str, StoredTask]
) -> tuple[list[StoredTask], list[list[StoredTask | int] | None]]:
    """The rows that become tasks: those without a key, and the first one with each free key.

    Returns:
        These rows, and for each item of each call its place among them, or the stored task that has its key. A call
        for which the capacity is too small is `None`; other rows than the new ones need no capacity.
    """
    new: list[StoredTask] = []
    found: list[list[StoredTask | int] | None] = []
    known: dict[str, StoredTask | int] = {**there}
    for call in calls:
        begin, own = len(new), dict(known)
        items: list[StoredTask | int] = []
        for row in call:
            item = len(new) if row.unique is None else own.setdefault(row.unique, len(new))
            if item == len(new):
                new.append(row)
            items.append(item)
        if free is not None and len(new) > free:
            del new[begin:]
            found.append(None)
        else:
            known = own
            found.append(items)
    return new, found
