"""changes: finds the version of a tube's table from which its change feed starts.

A stream keeps its position in its checkpoint. But Delta asks for the start again as long as the
checkpoint has only the first batch, and fails if the start is then a later version. So a program
that restarts a stream passes a fixed start.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pyarrow as pa

from tubeq_spark.clock import to_us
from tubeq_spark.errors import InvalidOptionError
from tubeq_spark.model import validation
from tubeq_spark.storage.arrow.columns import empty
from tubeq_spark.storage.commit_loop import Plan, Stale
from tubeq_spark.storage.spark import task_frames
from tubeq_spark.storage.statement import Affected, Statement, new_operation_id
from tubeq_spark.verbs import read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tubeq_spark.runtime.context import TubeContext

#: The operations that create a table, or adapt the table of an earlier tube. The change feed begins there.
_MADE = frozenset({"CREATE TABLE", "SET TBLPROPERTIES"})


def changes(ctx: TubeContext, starting: int | dt.datetime | None) -> DataFrame:
    """The stream of changes.

    Raises:
        InvalidOptionError: The tube has no change feed, or `starting` is bad.
    """
    if not ctx.table.change_feed:
        msg = f"tube {ctx.record.name!r} has no feed of changes: create it with change_feed=True"
        raise InvalidOptionError(msg)
    return task_frames.changes(ctx.frames.engine.spark, ctx.table, _start(ctx, starting))


def _start(ctx: TubeContext, starting: int | dt.datetime | None) -> int:
    if starting is None:
        return _now(ctx)
    if isinstance(starting, dt.datetime):
        at_us, version = to_us(validation.moment("starting", starting)), 0
    else:
        at_us, version = None, validation.count("starting", starting)
    commits = read.commits(ctx)
    made = (commit.version for commit in commits if commit.statement in _MADE)
    oldest = max(made, default=commits[-1].version)
    if at_us is not None:
        since = [commit.version for commit in commits if commit.at_us >= at_us]
        return max(since[-1], oldest) if since else _now(ctx)
    newest = commits[0].version
    if version > newest:
        validation.refuse("starting", version, f"a version of the table, at most {newest}")
    # 0 begins with the oldest version that exists. Delta refuses any other removed version, unless the stream has a
    # checkpoint and does not need it.
    return version or oldest


def _now(ctx: TubeContext) -> int:
    """The version of a new empty commit. All commits after this call have later versions."""
    engine, table = ctx.frames.engine, ctx.table.name
    # Delta needs a column that is no partition column.
    nothing = empty(pa.schema([("segment", pa.int64()), ("task_id", pa.int64())]))

    def attempt() -> Plan[int]:
        last, _ = engine.tables.last_commit(table)
        operation_id = new_operation_id()
        # Delta commits an append without rows only if it has a transaction id.
        once = (f"tubeq/{ctx.table.id}/changes", last)

        def finish(_affected: Affected) -> int:
            commit = engine.commit_of(table, operation_id)
            if commit is None:
                raise Stale  # another call was at the same version
            return commit.version

        statement = Statement(table, new=nothing, once=once)
        return Plan(statement, finish, operation_id=operation_id)

    return ctx.queue.loop.run("changes", ctx.table_lock, attempt)
