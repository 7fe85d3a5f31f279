"""put in all its forms: new tasks into segments that nobody else ever touches.

Steps: reserve ids (a commit only when the slot's bound is reached), one insert-only MERGE.
Stopped before the MERGE: ids are lost, nothing else. Stopped after it: the tasks are there.
Others' commits cannot disturb it: its segments are named by ids that are its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tubeq_spark.context import dropped
from tubeq_spark.options import NewTask, PutDefaults, new_task
from tubeq_spark.storage.commit import Plan
from tubeq_spark.storage.rows import StoredTask, insert_schema, insert_table
from tubeq_spark.task import PutItem, Task

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tubeq_spark.context import TubeContext
    from tubeq_spark.group import GroupCommit
    from tubeq_spark.storage.engine import Affected

__all__ = ["PutRequest", "prepare", "put_group", "put_many"]


@dataclass(frozen=True, slots=True)
class PutRequest:
    """Checked items of one call."""

    news: list[NewTask]
    data: list[Any]


def prepare(ctx: TubeContext, items: Iterable[Any], options: dict[str, Any]) -> PutRequest:
    """Check all items of a call before anything is written.

    Raises:
        InvalidOptionError: Any of them is bad.
    """
    allowed, name = ctx.driver.put_options, ctx.driver.name
    defaults = PutDefaults.of(options, allowed, name)
    now_us = ctx.queue.now_us()
    news, data = [], []
    for item in items:
        own = item if isinstance(item, PutItem) else None
        put = defaults if own is None else defaults.over(own, allowed, name)
        data.append(ctx.codec.encode(item if own is None else own.data))
        news.append(new_task(put, ctx.record.options, now_us))
    return PutRequest(news, data)


def put_many(
    ctx: TubeContext, group: GroupCommit[PutRequest, list[Task]], request: PutRequest
) -> list[Task]:
    """Put the items of one call; it may share its commit with other threads' calls."""
    if not request.news:
        return []
    ctx.queue.session.start_beating()
    return group.submit(request)


def put_group(ctx: TubeContext, requests: list[PutRequest]) -> list[list[Task] | Exception]:
    """Commit the items of several calls at once."""
    news = [new for request in requests for new in request.news]
    data = [item for request in requests for item in request.data]
    schema = insert_schema(ctx.codec.arrow_type)

    def attempt() -> Plan[list[StoredTask]]:
        numbers = ctx.queue.session.task_ids(len(news), ctx.lane.last_id)
        ids = [numbers.task_id(i) for i in range(len(news))]
        ctx.lane.last_id = ids[-1]
        size = ctx.queue.config.segment_rows
        places = [(ids[i - i % size], task_id) for i, task_id in enumerate(ids)]
        rows = ctx.tasks.engine.source(insert_table(places, news, data, schema))
        statement = ctx.statements.put(rows, len(ids), ids[::size])

        def finish(affected: Affected) -> list[StoredTask]:
            if affected.inserted == 0:
                ctx.was_dropped()
                raise dropped(ctx)
            return [
                _stored(place, new, item)
                for place, new, item in zip(places, news, data, strict=True)
            ]

        return Plan(statement, finish)

    stored = ctx.queue.loop.run("put", ctx.lane, attempt)
    tasks = ctx.happened("put", stored)
    ctx.lane.changed()
    results: list[list[Task] | Exception] = []
    for request in requests:
        results.append(tasks[: len(request.news)])
        tasks = tasks[len(request.news) :]
    return results


def _stored(place: tuple[int, int], new: NewTask, data: Any) -> StoredTask:
    return StoredTask(
        segment=place[0],
        task_id=place[1],
        state=new.state,
        pri=new.pri,
        utube=new.utube,
        data=data,
        created=new.created,
        ttl=new.ttl,
        ttr=new.ttr,
        next_event=new.next_event,
        expires_at=new.expires_at,
        owner=None,
        attempts=0,
        claim=None,
    )
