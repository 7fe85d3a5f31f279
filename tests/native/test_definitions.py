"""Our log creates each kind of table exactly as the library `deltalake` creates it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable, Schema

from tests.native.support import Place
from tubeq_spark.config import QueueConfig
from tubeq_spark.storage.location import path_table
from tubeq_spark.storage.tables import schema

if TYPE_CHECKING:
    from pathlib import Path

    from tubeq_spark.storage.tables.schema import NewTable

_PAYLOAD = "STRUCT<n: BIGINT COMMENT 'how many', l: ARRAY<STRING>, m: MAP<STRING, DECIMAL(9, 2)>, b: BINARY>"


def definitions(root: Path) -> list[NewTable]:
    """The definitions of all kinds of tables."""
    config, name = QueueConfig(), path_table(str(root / "made"))
    return [
        schema.new_tube_table(name, config, None, change_feed=False, local=True),
        schema.new_tube_table(name, config, _PAYLOAD, change_feed=False),
        schema.new_tube_table(name, config, None, change_feed=True),
        schema.new_registry(name, config, "native"),
        schema.new_sessions(name, config),
    ]


def actions(table: Path, version: int) -> dict[str, Any]:
    """The actions of a commit, by their kinds."""
    text = (table / "_delta_log" / f"{version:020}.json").read_text(encoding="utf-8")
    found: dict[str, Any] = {}
    for line in text.splitlines():
        found |= json.loads(line)
    return found


def made_by_the_library(directory: Path, new: NewTable, text: str) -> Path:
    """The same table as the library makes it."""
    DeltaTable.create(
        str(directory),
        Schema.from_json(text),
        partition_by=list(new.partitions),
        configuration=dict(new.properties),
        raise_if_key_not_exists=False,
    )
    return directory


@pytest.mark.parametrize("number", range(5))
def test_new_table_is_as_the_library_makes_it(tmp_path: Path, number: int) -> None:
    new = definitions(tmp_path)[number]
    Place(tmp_path).engine.tables.create(new)
    ours = actions(tmp_path / "made", 0)
    text = ours["metaData"]["schemaString"]
    theirs = actions(made_by_the_library(tmp_path / "theirs", new, text), 0)

    def told(metadata: dict[str, Any]) -> dict[str, Any]:
        others = {k: v for k, v in metadata.items() if k not in {"id", "createdTime"}}
        return others | {"schemaString": json.loads(metadata["schemaString"])}

    assert told(ours["metaData"]) == told(theirs["metaData"])
    assert ours["protocol"] == theirs["protocol"]
    assert ours["commitInfo"]["operation"] == theirs["commitInfo"]["operation"]
    fields = json.loads(text)["fields"]
    assert [field["metadata"]["comment"] for field in fields] == [
        c for _, c in new.columns.values()
    ]
