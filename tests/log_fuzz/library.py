"""Changes a tube's table by the library `deltalake` and by Spark, as other programs do beside the queue."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import write_deltalake

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from pyspark.sql import SparkSession

    from tests.log_fuzz.verbs import Act
    from tests.log_fuzz.world import World


def _rows(world: World, name: str, count: int) -> pa.Table:
    schema = pa.schema(world.table(name).schema().to_arrow())
    rows: list[dict[str, Any]] = []
    for _ in range(count):
        world.foreign += 1
        rows.append(
            {
                "segment": world.foreign,
                "tube": world.tube_id(name),
                "task_id": world.foreign,
                "state": "r",
                "pri": 3,
                "utube": world.random.choice([None, world.text()]) if name == "hosts" else None,
                "data": '"foreign"',
                "created": world.clock.now()
                - dt.timedelta(microseconds=world.random.randint(0, 999)),
                "ttr": 3_600_000_000,
                "attempts": 0,
            }
        )
    columns = {field.name: [row.get(field.name) for row in rows] for field in schema}
    return pa.table(columns, schema)


def append(world: World, name: str) -> None:
    rows = _rows(world, name, world.random.randint(1, 3))
    write_deltalake(world.table(name), rows, mode="append")
    world.known[name].ids.update(rows.column("task_id").to_pylist())


def delete(world: World, name: str) -> None:
    stored = world.stored(name)
    if stored:
        row = world.random.choice(stored)
        by = world.random.choice(["task_id", "segment"])
        world.table(name).delete(f"{by} = {row[by]}")
        world.gone(name, [r["task_id"] for r in stored if r[by] == row[by]])


def compact(world: World, name: str) -> None:
    world.table(name).optimize.compact()


def checkpoint(world: World, name: str) -> None:
    world.table(name).create_checkpoint()


def vacuum(world: World, name: str) -> None:
    """As by the table's retention, or of all that the newest version does not need."""
    if world.random.random() < 0.7:
        world.table(name).vacuum(dry_run=False, full=world.random.random() < 0.5)
    else:
        world.table(name).vacuum(0, dry_run=False, enforce_retention_duration=False)


def clean_up(world: World, name: str) -> None:
    world.table(name).cleanup_metadata()


#: How often each is done, in comparison.
ACTS: Mapping[Act, int] = {append: 4, delete: 3, compact: 3, checkpoint: 3, vacuum: 3, clean_up: 2}


# -- by Spark --------------------------------------------------------------------------------------


#: Statements about a table, and how often each is run, in comparison.
_STATEMENTS = {
    "OPTIMIZE {table}": 3,
    "OPTIMIZE {table} ZORDER BY (task_id)": 2,
    "VACUUM {table} RETAIN 0 HOURS": 2,
    "UPDATE {table} SET pri = 4 WHERE state = 'r' AND pri = 3": 4,
    "INSERT INTO {table} (segment, tube, task_id, state, pri, utube, data, created, ttr, attempts) "
    "VALUES ({number}, {tube}, {number}, 'r', 3, {utube}, '1', TIMESTAMP '{now} UTC', 3600000000, 0)": 4,
}


def acts_of(spark: SparkSession) -> Mapping[Act, int]:
    """The acts of a session, and how often each is done, in comparison."""
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    return {_act(spark, statement): often for statement, often in _STATEMENTS.items()}


def _act(spark: SparkSession, statement: str) -> Act:
    def act(world: World, name: str) -> None:
        world.foreign += 1
        text = statement.format(
            table=f"delta.`{world.path(name)}`",
            number=world.foreign,
            tube=world.tube_id(name),
            utube="NULL" if name == "plain" else "'\U00020bb7'",
            now=f"{world.clock.now():%Y-%m-%d %H:%M:%S.%f}",
        )
        spark.sql(text).collect()
        if statement.startswith("INSERT"):
            world.known[name].ids[world.foreign] += 1

    act.__name__ = statement.partition(" ")[0]
    return act
