"""Texts that the library reads in our logs as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from tubeq_spark import Queue

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", ["\U00020bb7", "\U0001f600", "\u00e9", "\u2028", 'a"\\b'])
def test_sub_queue_with_a_rare_character_is_found_by_the_library(tmp_path: Path, name: str) -> None:
    with Queue(None, str(tmp_path), engine="native") as queue:
        hosts = queue.create_tube("hosts", "utube")
        hosts.put("a", utube=name)
        hosts.put("b", utube="z")

    table = DeltaTable(str(tmp_path / "hosts"))
    quoted = name.replace("'", "''")
    query = QueryBuilder().register("t", table)
    found = pa.table(query.execute(f"SELECT utube FROM t WHERE utube = '{quoted}'").read_all())
    assert found.column("utube").to_pylist() == [name]
