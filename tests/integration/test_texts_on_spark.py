"""Spark understands each query and statement of the package, on the tables of a queue.

What each does is compared without Spark (tests/native), its text with the golden file: so the verbs need
not run once more on Spark for each query of theirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.native import grid
from tubeq_spark.config import QueueConfig
from tubeq_spark.storage.location import path_table
from tubeq_spark.storage.query import Select
from tubeq_spark.storage.spark.jvm import frame_of
from tubeq_spark.storage.spark.quoting import string
from tubeq_spark.storage.spark.render import Renderer, creation_of
from tubeq_spark.storage.tables.schema import new_registry, new_sessions, new_tube_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tubeq_spark.storage.statement import Statement

NEW: dict[str, Any] = {
    "registered": lambda table, config: new_registry(table, config, "spark"),
    "sessions_table": new_sessions,
    "tube": lambda table, config: new_tube_table(table, config, None, change_feed=False),
}


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The tables of a queue, without rows, by the names of the grid."""
    place = tmp_path_factory.mktemp("queue")
    found = {name: path_table(str(place / name)) for name in NEW}
    for name, make in NEW.items():
        spark.sql(creation_of(make(found[name], QueueConfig())))
    return found


def analyze(spark: SparkSession, part: Select | Statement) -> str:
    """Have Spark resolve all names, functions and types; nothing is read or written."""
    renderer = Renderer()
    text = renderer.query(part) if isinstance(part, Select) else renderer.statement(part)
    for name, rows in renderer.sources.items():
        frame_of(spark, rows).createOrReplaceTempView(f"tubeq_given_{name}")
        text = text.replace("{" + name + "}", f"tubeq_given_{name}")
    if isinstance(part, Select):
        return str(spark.sql(text).schema)
    text = text.replace("{note}", string("a note"))
    return str(spark.sql(f"EXPLAIN {text}").collect()[0][0])


@pytest.mark.parametrize("parts", [grid.queries, grid.statements], ids=["queries", "statements"])
def test_spark_when_it_is_given_each_text_there_is_understands_it(
    spark: SparkSession, tables: dict[str, str], parts: Any
) -> None:
    refused = []
    for title, part in parts():
        try:
            found = analyze(spark, grid.about(part, tables[grid.table_of(part)]))
        except Exception as error:  # noqa: BLE001  (each is shown)
            found = f"Error {error}"
        # EXPLAIN tells of an error instead of raising it.
        if found.startswith("Error "):
            refused.append(f"{title}: {found[:300]}")

    assert not refused, f"{len(refused)} refused:\n" + "\n".join(refused[:10])
