"""Changes a tube's table by Spark, as other programs do beside the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from tests.log_fuzz.verbs import Act
    from tests.log_fuzz.world import World


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
