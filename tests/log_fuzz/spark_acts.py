"""What others do to a tube's table by Spark."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tests.log_fuzz.library import whole_versions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from tests.log_fuzz.verbs import Act
    from tests.log_fuzz.world import World

__all__ = ["acts_of"]

_UNCHECKED = "spark.databricks.delta.retentionDurationCheck.enabled"


class _Acts:
    """Acts of a session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        spark.conf.set(_UNCHECKED, "false")

    def _sql(self, world: World, name: str, statement: str) -> None:
        self._spark.sql(statement.format(f"delta.`{world.path(name)}`")).collect()

    def optimize(self, world: World, name: str) -> None:
        self._sql(world, name, "OPTIMIZE {}")

    def z_order(self, world: World, name: str) -> None:
        self._sql(world, name, "OPTIMIZE {} ZORDER BY (task_id)")

    def vacuum(self, world: World, name: str) -> None:
        self._sql(world, name, "VACUUM {} RETAIN 0 HOURS")

    def restore(self, world: World, name: str) -> None:
        back = whole_versions(world, name)
        if back:
            version = world.random.choice(back)
            self._sql(world, name, f"RESTORE {{}} TO VERSION AS OF {version}")
            known = world.known[name]
            known.ids = Counter(known.versions[version][1])
            known.held.clear()

    def insert(self, world: World, name: str) -> None:
        world.foreign += 1
        number, utube = world.foreign, "NULL" if name == "plain" else "'\U00020bb7'"
        self._sql(
            world,
            name,
            "INSERT INTO {} (segment, tube, task_id, state, pri, utube, data, created, ttr, attempts) "
            f"VALUES ({number}, {world.tube_id(name)}, {number}, 'r', 3, {utube}, '1', "
            f"TIMESTAMP '{world.clock.now():%Y-%m-%d %H:%M:%S.%f} UTC', 3600000000, 0)",
        )
        world.known[name].ids[number] += 1

    def delete(self, world: World, name: str) -> None:
        ids = list(world.known[name].ids)
        if ids:
            task_id = world.random.choice(ids)
            self._sql(world, name, f"DELETE FROM {{}} WHERE task_id = {task_id}")
            world.gone(name, [task_id])

    def update(self, world: World, name: str) -> None:
        self._sql(world, name, "UPDATE {} SET pri = 4 WHERE state = 'r' AND pri = 3")


def acts_of(spark: SparkSession) -> Mapping[Act, int]:
    """The acts of a session, and how often each is done, in comparison."""
    acts = _Acts(spark)
    return {
        acts.optimize: 3,
        acts.z_order: 2,
        acts.vacuum: 2,
        acts.restore: 2,
        acts.insert: 4,
        acts.delete: 3,
        acts.update: 4,
    }
