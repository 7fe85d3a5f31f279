"""The native engine counts the rows of a commit, finds it by its note, and refuses a commit that comes too late."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.native.logs import HOUR, aged
from tests.native.support import Place, new_rows
from tubeq_spark.errors import StoreError
from tubeq_spark.storage.engine import EngineError, Outcome, outcome_of
from tubeq_spark.storage.native.engine import NativeEngine
from tubeq_spark.storage.statement import Affected, Statement
from tubeq_spark.storage.tables import schema

if TYPE_CHECKING:
    from pathlib import Path


def found(place: Place, operation_id: int) -> tuple[int, Affected | None] | None:
    """The version of a commit by the history, and what it changed."""
    commit = place.engine.commit_of(place.tube, operation_id)
    return None if commit is None else (commit.version, commit.affected)


def test_find_when_spark_has_committed_tells_what_it_changed(place: Place, tmp_path: Path) -> None:
    """Spark's MERGE has its note in the predicate, and its metrics are text."""
    put = place.statements.put(new_rows(5, [50]), 1, [5])
    place.run(put)
    commit = tmp_path / "tube" / "_delta_log" / f"{1:020}.json"
    said, *actions = commit.read_text().splitlines()
    info = json.loads(said)["commitInfo"]
    note = info.pop("userMetadata").replace(" changed=1/0/0", "")
    info |= {
        "operation": "MERGE",
        "operationParameters": {"predicate": f'["(cast(segment as string) <> {note}) AND x)"]'},
        "operationMetrics": {"numTargetRowsInserted": "1", "numTargetRowsUpdated": "0"},
    }
    commit.write_text("\n".join([json.dumps({"commitInfo": info}), *actions, ""]))
    assert found(Place(tmp_path), place.newest) == (1, Affected(inserted=1))


def test_ack_when_files_have_no_statistics_counts_what_was_there(
    place: Place, tmp_path: Path
) -> None:
    place.put(5, [50, 51])
    commit = tmp_path / "tube" / "_delta_log" / f"{1:020}.json"
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    for action in actions:
        action.get("add", {}).pop("stats", None)
    commit.write_text("".join(f"{json.dumps(action)}\n" for action in actions))
    fresh = Place(tmp_path)
    ack = fresh.statements.delete_segments([5])
    assert fresh.run(ack) == Affected(deleted=2)
    assert found(fresh, fresh.newest) == (2, Affected(deleted=2))
    assert found(fresh, 12345) is None


def test_append_once_when_repeated_writes_nothing(place: Place, rival: Place) -> None:
    rows = pa.table({"segment": pa.array([5], pa.int64()), "tube": pa.array([1], pa.int64())})

    def once(version: int) -> Statement:
        return Statement(place.tube, new=rows, once=("app", version), size=1)

    assert place.run(once(3)) == Affected(inserted=1)
    assert rival.run(once(3)) == Affected()
    assert place.run(once(2)) == Affected()
    place.writer.rival = lambda: rival.run(once(4))
    assert place.run(once(4)) == Affected()
    assert len(place.stored()) == 2
    # Without its moment Spark would take it for expired.
    fresh = Place(place.log.parents[1])
    _, at_ms = fresh.engine._handles.table(fresh.tube).newest().transactions["app"]
    assert at_ms is not None


def test_property_when_set_fails_what_was_begun_before(place: Place, rival: Place) -> None:
    place.writer.rival = lambda: rival.engine.tables.set_property(rival.tube, schema.FENCE, "1")
    with pytest.raises(EngineError) as failed:
        place.put(5, [50])
    assert outcome_of(failed.value) is Outcome.CONFLICT
    assert place.engine.tables.properties(place.tube)[schema.FENCE] == "1"
    (newest,) = place.engine.tables.commits(place.tube, 1)
    assert newest.statement == "SET TBLPROPERTIES"
    assert place.engine.tables.properties(place.tube).get("tubeq.nothing") is None


@pytest.mark.parametrize("newer", [1, 3])
def test_vacuum_when_the_table_was_removed_and_made_anew_removes_no_file_of_the_new_one(
    place: Place, tmp_path: Path, newer: int
) -> None:
    place.put(5, [50])
    place.engine.tables.vacuum(place.tube)
    shutil.rmtree(tmp_path / "tube")
    anew = Place(tmp_path).create()
    for task in range(newer):
        anew.put(6 + task, [60 + task])
    for file in tmp_path.glob("tube/segment=*/*.parquet"):
        aged(file.parent, 24 * HOUR)
    place.engine.tables.vacuum(place.tube)
    stored = [(6 + task, 60 + task, "r") for task in range(newer)]
    assert place.stored() == Place(tmp_path).stored() == stored


def test_take_when_the_tube_has_a_change_feed_writes_both_forms_of_its_rows(tmp_path: Path) -> None:
    place = Place(tmp_path).create(change_feed=True)
    place.put(5, [50, 51])
    place.take({5: [50]}, -5)

    table = DeltaTable(str(tmp_path / "tube"))
    feed = pa.table(table.load_cdf(starting_version=2).read_all()).to_pylist()

    told = sorted((row["_change_type"], row["segment"], row["state"]) for row in feed)
    assert told == [("update_postimage", -5, "t"), ("update_preimage", 5, "r")]
    assert place.run(place.statements.delete_segments([5])).deleted == 1


def test_name_of_a_catalog_is_refused() -> None:
    with pytest.raises(StoreError, match="only Spark knows"):
        NativeEngine().tables.is_table("`a`.`b`")
