"""Tables that somebody gave a feature of Delta's protocol, or a property, after they were made."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.native.logs import versions
from tubeq_spark import Queue
from tubeq_spark.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def switch_on(
    log: Path, writers: Sequence[str], readers: Sequence[str], properties: dict[str, str]
) -> None:
    """Commit that a table has features, as Spark does it."""
    metadata: dict[str, Any] = {}
    for version in versions(log):
        for line in (log / f"{version:020}.json").read_text(encoding="utf-8").splitlines():
            metadata = json.loads(line).get("metaData", metadata)
    metadata["configuration"].update(properties)
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": writers}
    if readers:
        protocol |= {"minReaderVersion": 3, "readerFeatures": readers}
    at = 1_800_000_000_000
    told = {"inCommitTimestamp": at} if "inCommitTimestamp" in writers else {}
    info = told | {"timestamp": at, "operation": "SET TBLPROPERTIES", "operationParameters": {}}
    actions = ({"commitInfo": info}, {"protocol": protocol}, {"metaData": metadata})
    place = log / f"{versions(log)[-1] + 1:020}.json"
    place.write_text("".join(f"{json.dumps(action)}\n" for action in actions), encoding="utf-8")


@pytest.mark.parametrize(
    ("writers", "readers", "properties", "named"),
    [
        (
            ["rowTracking", "domainMetadata"],
            [],
            {"delta.enableRowTracking": "true"},
            "domainMetadata, rowTracking",
        ),
        (
            ["inCommitTimestamp"],
            [],
            {"delta.enableInCommitTimestamps": "true"},
            "inCommitTimestamp",
        ),
        (["typeWidening"], ["typeWidening"], {"delta.enableTypeWidening": "true"}, "typeWidening"),
        (["clustering", "domainMetadata"], [], {}, "clustering, domainMetadata"),
        (["later"], [], {}, "later"),
        (["later"], ["later"], {}, "later"),
        (["appendOnly"], [], {"delta.appendOnly": "true"}, "delta.appendOnly"),
        (["catalogManaged", "inCommitTimestamp"], ["catalogManaged"], {}, "catalogManaged"),
    ],
)
def test_verb_when_its_tube_got_a_feature_that_the_library_lacks_names_it(
    tmp_path: Path,
    writers: list[str],
    readers: list[str],
    properties: dict[str, str],
    named: str,
) -> None:
    log = tmp_path / "work" / "_delta_log"
    with Queue(None, str(tmp_path), engine="native") as queue:
        tube = queue.create_tube("work")
        tube.put_many(["a", "b"])
        task = tube.take(timeout=0)
        assert task is not None
        switch_on(log, writers, readers, properties)
        before = versions(log)
        for verb in (lambda: tube.take(timeout=0), lambda: tube.ack(task.task_id)):
            with pytest.raises(StoreError, match=f"native engine cannot .* this table: .*{named};"):
                verb()
        assert versions(log) == before
