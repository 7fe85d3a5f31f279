"""Logs of earlier versions, which the library misreads: a tube that has one works again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyarrow.parquet import read_table, write_table

from tests.native.logs import versions
from tests.other_readers import FINDS
from tubeq_spark import Queue

if TYPE_CHECKING:
    from pathlib import Path

#: The library misreads the escapes of the first two: it finds other characters.
NAMES = ["\U00020bb7", "\U0010ffff" * 3, "\U0001f600", "\u00e9", "z", "C:\\udata"]


def escaped(action: dict[str, Any]) -> dict[str, Any]:
    """An action as earlier versions wrote it: its statistics, and nothing of what follows it."""
    (action.get("commitInfo") or {}).pop("follows", None)
    add = action.get("add")
    if add and add["stats"]:
        add["stats"] = json.dumps(json.loads(add["stats"]), separators=(",", ":"))
    return action


def as_before(log: Path) -> None:
    """Make a log as earlier versions wrote it."""
    for version in versions(log):
        place = log / f"{version:020}.json"
        actions = map(json.loads, place.read_text(encoding="utf-8").splitlines())
        lines = (json.dumps(escaped(action), separators=(",", ":")) for action in actions)
        place.write_text("".join(f"{line}\n" for line in lines), encoding="ascii")
    for place in log.glob("*.checkpoint.parquet"):
        table = read_table(place)
        rows = [escaped(row) for row in table.to_pylist(maps_as_pydicts="strict")]
        write_table(pa.Table.from_pylist(rows, table.schema), place, store_schema=False)


def old_tube(place: Path, *, commits: int = 0) -> None:
    """A tube that an earlier version left, with a task for each name, after some other commits."""
    with Queue(None, str(place), engine="native") as queue:
        tube = queue.create_tube("hosts", "utube")
        for name in NAMES:
            tube.put("first", utube=name)
        for _ in range(commits):
            tube.delete(tube.put("gone", utube=NAMES[0]).task_id)
    as_before(place / "hosts" / "_delta_log")


def misread(place: Path) -> set[str]:
    """The sub-queues that others do not find."""
    table = DeltaTable(place / "hosts")
    return {
        name
        for name in NAMES
        for finds in FINDS.values()
        if finds(table, "utube", name).num_rows != 1
    }


@pytest.mark.parametrize("checkpoint", ["none", "ours", "the library's"])
def test_tube_with_an_old_log_when_opened_is_read_by_all_and_taken_from(
    tmp_path: Path, checkpoint: str
) -> None:
    old_tube(tmp_path, commits=25 if checkpoint == "ours" else 0)
    log = tmp_path / "hosts" / "_delta_log"
    if checkpoint == "the library's":
        DeltaTable(tmp_path / "hosts").create_checkpoint()
    assert bool(versions(log, r"checkpoint\.parquet")) is (checkpoint != "none")
    assert misread(tmp_path) == {*NAMES[:2]}
    version = versions(log)[-1]

    with Queue(None, str(tmp_path), engine="native") as queue:
        tube = queue.tube("hosts")
        assert misread(tmp_path) == set()
        assert versions(log)[-1] == version
        taken = tube.take_many(len(NAMES))
        assert [task.utube for task in taken] == NAMES
        assert tube.ack_many([task.task_id for task in taken]) is not None
        assert queue.statistics("hosts")["tasks"]["total"] == 0


def test_tube_when_an_earlier_version_goes_on_beside_it_is_taken_from(tmp_path: Path) -> None:
    with Queue(None, str(tmp_path), engine="native") as queue:
        tube = queue.create_tube("hosts", "utube")
        tube.put("a", utube="z")
        assert tube.take(timeout=0) is not None
        tube.put("first", utube=NAMES[0])
        as_before(tmp_path / "hosts" / "_delta_log")
        task = tube.take(timeout=0)
        assert task is not None
        assert task.utube == NAMES[0]
        tube.ack(task.task_id)
        assert queue.statistics("hosts")["tasks"]["total"] == 1


def test_lock_of_a_sub_queue_in_an_old_log_is_known(tmp_path: Path) -> None:
    with Queue(None, str(tmp_path), engine="native") as first:
        held = first.create_tube("hosts", "utube")
        held.put_many(["a", "b"], utube=NAMES[0])
        assert held.take(timeout=0) is not None
        for name in ("hosts", "_tubeq_taken_utubes"):
            as_before(tmp_path / name / "_delta_log")
        with Queue(None, str(tmp_path), engine="native") as second:
            assert second.tube("hosts").take(timeout=0) is None
            locks = DeltaTable(tmp_path / "_tubeq_taken_utubes")
            assert FINDS["deltalake"](locks, "utube", NAMES[0]).num_rows == 1


def test_log_that_is_read_as_it_is_gets_no_checkpoint_when_opened(tmp_path: Path) -> None:
    with Queue(None, str(tmp_path), engine="native") as queue:
        tube = queue.create_tube("hosts", "utube")
        for name in NAMES:
            tube.put("first", utube=name)
    with Queue(None, str(tmp_path), engine="native") as queue:
        assert queue.tube("hosts").peek(queue.tube("hosts").put("a").task_id).data == "a"
    assert versions(tmp_path / "hosts" / "_delta_log", r"checkpoint\.parquet") == []
