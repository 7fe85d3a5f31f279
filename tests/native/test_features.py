"""The native engine refuses a log whose features or properties it does not know, and writes nothing there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from tests.native.logs import log_files_of, versions
from tests.native.support import Place
from tubeq_spark import Queue
from tubeq_spark.errors import StoreError
from tubeq_spark.storage.log import reading
from tubeq_spark.storage.log.actions import UnknownLogError
from tubeq_spark.storage.log.log_files import moved_on

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tubeq_spark.storage.log.snapshot import Shape


def write_next(log: Path, *actions: Mapping[str, Any]) -> int:
    """Commit actions, as somebody else does; returns the version."""
    version = versions(log)[-1] + 1
    text = "".join(f"{json.dumps(action)}\n" for action in actions)
    (log / f"{version:020}.json").write_text(text, encoding="utf-8")
    return version


def shape_of(log: Path) -> Shape:
    return reading.newest(log_files_of(log)).shape


FILE = {"path": "a", "partitionValues": {"segment": "5"}, "size": 1, "modificationTime": 1}
UNKNOWN: list[dict[str, Any]] = [
    {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7}},
    {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}},
    {"add": FILE | {"path": "a%20b"}},
    {"add": FILE | {"path": "/x/y"}},
    {"add": FILE | {"deletionVector": {"storageType": "u"}}},
    {"add": FILE | {"partitionValues": {"segment": "x"}}},
    {"nonsense": {}},
]


@pytest.mark.parametrize("action", UNKNOWN)
def test_log_when_it_has_what_is_not_known_is_refused(place: Place, action: Any) -> None:
    log = place.log
    seen = reading.newest(log_files_of(log))
    write_next(log, action)
    with pytest.raises(UnknownLogError):
        moved_on(log_files_of(log), seen)


#: Features of writers, those of readers, properties, an older version of writers, and what an error names.
NEEDED: list[tuple[list[str], list[str], dict[str, str], int, str]] = [
    (["rowTracking", "domainMetadata"], [], {}, 7, "domainMetadata, rowTracking"),
    (["typeWidening"], ["typeWidening"], {"delta.enableTypeWidening": "true"}, 7, "typeWidening"),
    (["later"], [], {}, 7, "the feature later"),
    (["later"], ["later"], {}, 7, "later"),
    (["appendOnly"], [], {"delta.appendOnly": "true"}, 7, "delta.appendOnly"),
    ([], [], {"delta.constraints.few": "pri < 5"}, 2, "delta.constraints.few"),
    ([], [], {}, 6, "columnMapping, identityColumns"),
]


@pytest.mark.parametrize(("writers", "readers", "properties", "version", "named"), NEEDED)
def test_verb_when_its_tube_got_a_feature_that_is_not_known_names_it(
    tmp_path: Path,
    writers: list[str],
    readers: list[str],
    properties: dict[str, str],
    version: int,
    named: str,
) -> None:
    log = tmp_path / "work" / "_delta_log"
    with Queue(None, str(tmp_path), engine="native") as queue:
        tube = queue.create_tube("work")
        tube.put_many(["a", "b"])
        task = tube.take(timeout=0)
        protocol = {"minReaderVersion": 3 if readers else 1, "minWriterVersion": version}
        protocol |= {"writerFeatures": writers} if version == 7 else {}
        protocol |= {"readerFeatures": readers} if readers else {}
        metadata = dict(shape_of(log).metadata)
        metadata["configuration"] = metadata["configuration"] | properties
        write_next(log, {"commitInfo": {}}, {"protocol": protocol}, {"metaData": metadata})
        before = versions(log)
        tables, name = tube._ctx.queue.engine.tables, tube.table
        for verb in (
            lambda: tube.take(timeout=0),
            lambda: tube.ack(task.task_id),
            lambda: tables.set_property(name, "tubeq.x", "1"),
            lambda: tables.vacuum(name),
        ):
            with pytest.raises(StoreError, match=f"native engine cannot .* this table: .*{named};"):
                verb()
        assert versions(log) == before


def test_table_when_its_feed_was_switched_on_by_the_protocol_of_today_keeps_it_in_checkpoints(
    place: Place,
) -> None:
    log = place.log
    features = ["appendOnly", "changeDataFeed", "invariants"]
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}
    version = write_next(log, {"protocol": protocol})
    place.put(5, [50])
    place.engine.tables.vacuum(place.tube)
    (log / f"{version:020}.json").unlink()
    assert sorted(shape_of(log).protocol["writerFeatures"]) == features
    assert Place(log.parents[1]).put(6, [60]).inserted == 1
    assert sorted(DeltaTable(str(log.parent)).protocol().writer_features or ()) == features
