"""put and put_many: insert new tasks into segments that no other put uses.

Steps: reserve ids (a commit only when the range of the slot is used up), one insert-only MERGE. If
it is interrupted before the MERGE, only ids are lost; after it, the tasks are there. On the native
engine a put sometimes merges tiny segments, by a separate commit after it. Other commits do not
affect a put, because only it uses the numbers of its segments. In a tube with a capacity it first
reads the number of stored tasks, and starts again if another put commits in between.
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING, Any

from tubeq_spark.rules import arguments
from tubeq_spark.rules.segment_layout import BUCKETS, hash_of, rows_of, spread
from tubeq_spark.rules.transitions import new_row
from tubeq_spark.runtime.context import dropped
from tubeq_spark.storage.commit_loop import Plan
from tubeq_spark.storage.rows import insert_schema, insert_table
from tubeq_spark.verbs.compact import compact_at_times

if TYPE_CHECKING:
    from tubeq_spark.rules.arguments import PutCall, PutRequest
    from tubeq_spark.rules.options import NewTask
    from tubeq_spark.rules.stored_task import StoredTask
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.runtime.group_commit import GroupCommit
    from tubeq_spark.storage.statement import Affected
    from tubeq_spark.task import Task

__all__ = ["plan", "prepare", "put_group", "put_many"]


def prepare(ctx: TubeContext, call: PutCall) -> PutRequest:
    """Check all items of a call before anything is written.

    Raises:
        InvalidOptionError: Any of them is bad.
    """
    now_us = ctx.queue.now_us()
    return arguments.prepare(call, ctx.driver, ctx.record.options, ctx.codec.encode, now_us)


def put_many(
    ctx: TubeContext, group: GroupCommit[PutRequest, list[Task]], request: PutRequest
) -> list[Task]:
    """Put the items of one call; it may share its commit with other threads' calls.

    Returns:
        The tasks; none when the tube is full.
    """
    if not request.news:
        return []
    ctx.queue.session.start_beating()
    return group.submit(request)


def put_group(ctx: TubeContext, requests: list[PutRequest]) -> list[list[Task] | Exception]:
    """Commit the items of several calls at once, except calls without free capacity."""
    stored = ctx.queue.loop.run("put", ctx.table_lock, lambda: plan(ctx, requests))
    tasks: list[list[Task] | Exception] = [ctx.record_event("put", rows) for rows in stored]
    if any(stored):
        ctx.table_lock.wake_takes()
        compact_at_times(ctx)
    return tasks


def plan(ctx: TubeContext, requests: list[PutRequest]) -> Plan[list[list[StoredTask]]]:
    """One attempt to put the items of several calls; the result of a refused call is empty."""
    now_us = ctx.queue.now_us()
    room = None if ctx.capacity is None else ctx.capacity_gate.look(now_us)
    if room is not None and room.dropped:
        raise dropped(ctx)
    admitted = _admitted(requests, None if room is None else (ctx.capacity or 0) - room.stored)
    news = [new for request in admitted if request for new in request.news]
    data = [item for request in admitted if request for item in request.data]
    if not news:
        return Plan(None, lambda _: [[] for _ in requests])
    places, segments = _places(ctx, news, data)
    schema = insert_schema(ctx.codec.arrow_type)
    rows = insert_table(places, news, data, schema)
    if room is None:
        statement = ctx.writer.put(rows, len(news), segments)
    else:
        statement, _ = ctx.capacity_gate.put(rows, len(news), segments, room, now_us=now_us)

    def finish(affected: Affected) -> list[list[StoredTask]]:
        if affected.inserted == 0:
            raise dropped(ctx)
        stored = map(new_row, places, news, data)
        return [list(itertools.islice(stored, len(r.news) if r else 0)) for r in admitted]

    return Plan(statement, finish)


def _places(
    ctx: TubeContext, news: list[NewTask], data: list[Any]
) -> tuple[list[tuple[int, int]], list[int]]:
    """Segment and id of each new task, and the segments."""
    buckets = [0] * len(news)
    if ctx.driver.subqueues:
        buckets = [hash_of(new.utube) % BUCKETS for new in news]
    config = ctx.queue.config
    size = sum(len(item) for item in data if isinstance(item, str))
    rows = rows_of(config.segment_rows, len(news), size)
    layout = spread(Counter(buckets), rows, config.fold_rows)
    numbers = ctx.queue.session.task_ids(len(news) + layout.segments, ctx.table_lock.last_id)
    ctx.table_lock.last_id = numbers.task_id(len(news) - 1)
    segments = [numbers.task_id(len(news) + i) for i in range(layout.segments)]
    return [
        (segments[layout.segment(place, bucket)], numbers.task_id(place))
        for place, bucket in enumerate(buckets)
    ], segments


def _admitted(requests: list[PutRequest], room: int | None) -> list[PutRequest | None]:
    """The calls for which the capacity is enough, each as a whole, in their order."""
    admitted: list[PutRequest | None] = []
    for request in requests:
        fits = room is None or len(request.news) <= room
        admitted.append(request if fits else None)
        if room is not None and fits:
            room -= len(request.news)
    return admitted
