"""A tube as DataFrames in the program's session, and the feed of its changes.

Delta's change feed shows each row before and after a change, but not the reason: an ack and a
delete, or a touch and a mere move, look the same. So in a tube with a change feed each statement
writes its events to the column `change`, and NULL for a mere move. The feed is read row by row,
without state:

- an inserted row is a put, and an updated row has its events in `change`;
- a deleted row that was taken is an ack; other deleted rows are no events. So acks are still mostly
  deletions of a whole partition, which read and write no rows;
- other verbs that remove a task write its row to a segment of *gone* rows, with the negated id of the
  tube, like gates, so that no verb sees them; a sweep removes these segments.

Events by time that were not written before are written together with the next event: "delay take".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tubeq_spark.storage.expression import all_of, row
from tubeq_spark.storage.location import identifier, path_of
from tubeq_spark.storage.spark.quoting import bigint, string
from tubeq_spark.storage.spark.render import text_of
from tubeq_spark.storage.tables.tube_table import GONE, SEGMENT_0, TubeTable, is_alive
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Collection

    from tubeq_spark.storage.spark.engine import SparkEngine

#: Columns that are shown as they are stored, but durations in seconds.
_SHOWN = ("pri", "utube", "data", "created", "ttl / 1000000D AS ttl", "ttr / 1000000D AS ttr")
_TAKEN = string(TaskState.TAKEN.value)
#: The state after an event, if the event alone determines it.
_AFTER = {
    **dict.fromkeys(("take", "touch"), TaskState.TAKEN),
    **dict.fromkeys(("ack", "delete", "ttl"), TaskState.DONE),
    **dict.fromkeys(("kick", "ttr", "delay"), TaskState.READY),
    "bury": TaskState.BURIED,
}


class TaskFrames:
    """One tube's rows, as lazy DataFrames."""

    def __init__(self, engine: SparkEngine, table: TubeTable) -> None:
        """Show `table` through `engine`."""
        self.engine = engine
        self._table = table

    def batch(self, take_id: int, owner: str) -> DataFrame:
        """The remaining tasks of a take, for programs. File statistics skip all other files."""
        payload = "data"
        if self._table.payload_columns is not None:
            payload = ", ".join(f"data.{identifier(name)}" for name in self._table.payload_columns)
        return self.engine.in_user_session(
            f"SELECT task_id, {payload}, pri, utube, ttl / 1000000D AS ttl, ttr / 1000000D AS ttr, "
            f"attempts, created FROM {self._table.name} WHERE {text_of(self._table.mine())} "
            f"AND state = 't' AND claim = {bigint(take_id)} AND owner = {string(owner)}",
            self._table.name,
        )

    def everything(self, now_us: int | None, over: Collection[str] = ()) -> DataFrame:
        """The tube as a DataFrame with the states at a time, or as stored (`None`).

        Tasks of owners in `over`, whose sessions are over, show as ready.
        """
        state, next_event, source = "state", "next_event", self._table.name
        where = text_of(self._table.mine())
        if now_us is not None:
            by_now = text_of(self._table.state(now_us, over))
            source = f"(SELECT *, {by_now} AS now_state FROM {self._table.name})"
            state = "now_state"
            next_event = "CASE WHEN now_state = state THEN next_event ELSE expires_at END"
            where += " AND now_state IS NOT NULL"
        # Like `Task.owner`: the session without its epoch, for taken tasks only.
        owner = f"CASE WHEN {state} = {_TAKEN} THEN substring_index(owner, '/', 1) END"
        return self.engine.in_user_session(
            f"SELECT task_id, {state} AS state, {', '.join(_SHOWN)}, "
            f"{next_event} AS next_event, attempts, {owner} AS owner, "
            f"CASE WHEN {state} = {_TAKEN} THEN since END AS taken_at, "
            f"error FROM {source} WHERE {where}",
            self._table.name,
        )

    def keys(self, session: SparkSession, now_us: int) -> DataFrame:
        """The keys in use at a moment, as a DataFrame of a session, which may join it with its own ones."""
        used = self._table.mine()
        if self._table.unique_for_us is not None:
            used |= self._table.is_kept_key() & is_alive(now_us)
        self.engine.prepare(self._table.name)
        with self.engine.reading():
            return session.sql(
                f"SELECT {identifier('unique')} AS tubeq_stored FROM {self._table.name} "
                f"WHERE {text_of(all_of(used, row().unique.is_not_null()))}"
            )


def changes(spark: SparkSession, table: TubeTable, start: int) -> DataFrame:
    """A stream of a tube's changes, from a version of its table on."""
    reader = spark.readStream.format("delta").option("readChangeFeed", "true")
    reader = reader.option("startingVersion", start)
    path = path_of(table.name)
    rows = reader.table(table.name) if path is None else reader.load(path)
    ours = f"{text_of(table.mine())} AND segment <> {bigint(SEGMENT_0)}"
    gone = f"tube = {bigint(-table.id)} AND state = {string(GONE)}"
    events = (
        f"CASE WHEN _change_type = 'insert' AND {ours} THEN 'put' "
        f"WHEN _change_type = 'delete' AND {ours} AND state = {_TAKEN} THEN 'ack' "
        f"WHEN _change_type = 'update_postimage' AND ({ours} OR {gone}) THEN change END"
    )
    told = rows.withColumn("events", F.expr(events)).where("events IS NOT NULL")
    each = told.select("*", F.posexplode(F.split(F.trim("events"), " ")).alias("step", "event"))
    after = {event: string(state.value) for event, state in _AFTER.items()}
    # A single "ttr" has left the state of the row. If another event follows, "ttr" has made the task ready.
    after["ttr"] = f"CASE WHEN trim(events) = 'ttr' THEN state ELSE {after['ttr']} END"
    branches = "".join(f"WHEN {string(event)} THEN {state} " for event, state in after.items())
    return each.selectExpr(
        "task_id",
        f"CASE event {branches}ELSE state END AS state",
        "event AS change",
        "_commit_timestamp AS at",
        "_commit_version AS version",
        "step",
        *_SHOWN,
        "next_event",
        "attempts",
        "owner",
    )
