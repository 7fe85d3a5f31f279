"""Native verbs refuse a damaged log by the name of a file, or read on from its sound part."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable, write_deltalake

from tests.native.damage import PLANTED, checkpoint, commit
from tests.native.logs import aged, versions
from tests.native.support import opened
from tubeq_spark import StoreError
from tubeq_spark.storage.log import tidying
from tubeq_spark.storage.log.actions import encoded, fault_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tubeq_spark import Tube

BY_NAME = {planted.name: planted for planted in PLANTED}


@pytest.fixture
def place(sound: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    return shutil.copytree(sound, tmp_path / "queue")


@pytest.fixture
def tube(place: Path) -> Iterator[Tube]:
    """The tube, in a queue that is open."""
    with opened(place) as queue:
        yield queue["work"]


VERBS: dict[str, Callable[[Tube], object]] = {
    "put": lambda tube: tube.put("new"),
    "put_many": lambda tube: tube.put_many(["new"] * 2),
    "take": lambda tube: tube.take(0),
    "take_many": lambda tube: tube.take_many(5),
    "peek": lambda tube: tube.peek(1),
    "list": lambda tube: list(tube.tasks_by_state("r")),
}


@pytest.mark.parametrize(
    "name", ["empty commit before the end", "commit cut in a line", "commit cut at a line", "hole"]
)
def test_verbs_when_a_commit_is_damaged_or_missing_name_it_and_write_nothing(
    place: Path, name: str
) -> None:
    BY_NAME[name].damage(place / "work")
    before = versions(place / "work" / "_delta_log")

    for verb in VERBS.values():
        with opened(place) as queue, pytest.raises(StoreError, match=commit(place, 9).name):
            verb(queue["work"])

    assert versions(place / "work" / "_delta_log") == before
    with opened(place) as queue:
        other = queue.create_tube("other")
        other.put("a")
        assert other.take(0) is not None
        [problem] = [found for found in queue.health().problems if found.kind == "unreadable"]
        assert problem.tube == "work"
        assert commit(place, 9).name in problem.message
        assert set(queue.statistics()) == {"other"}


def test_commit_of_ours_cut_anywhere_has_a_fault() -> None:
    text = encoded([{"commitInfo": {}}, {"remove": {"path": "x\u2028y"}}, {"add": {"path": "z"}}])
    assert [size for size in range(len(text) + 1) if not fault_of(text[:size])] == [len(text)]


@pytest.mark.parametrize("text", ["", "{}\n", "\0" * 100])
def test_commit_that_says_nothing_when_it_comes_to_an_open_queue_is_refused(
    place: Path, tube: Tube, text: str
) -> None:
    assert tube.take() is not None
    newest = commit(place / "work", max(versions(place / "work" / "_delta_log")) + 1)
    newest.write_text(text)

    for verb in ("put", "take"):
        with pytest.raises(StoreError, match=newest.name):
            VERBS[verb](tube)

    newest.unlink()
    tube.put("new")


def test_hole_in_a_queue_that_is_open_is_not_filled(place: Path, tube: Tube) -> None:
    assert tube.take() is not None
    newest = max(versions(place / "work" / "_delta_log"))
    shutil.copy(commit(place / "work", newest), commit(place / "work", newest + 2))

    with pytest.raises(StoreError, match=commit(place, newest + 1).name):
        tube.put("new")

    assert not commit(place / "work", newest + 1).exists()


def test_commit_of_an_old_library_is_read(place: Path) -> None:
    """As deltalake 1.0 and earlier have it: what it tells of itself is its last line."""
    table = DeltaTable(str(place / "work"))
    write_deltalake(table, table.to_pyarrow_table(), mode="overwrite", partition_by=["segment"])
    file = commit(place / "work", 11)
    first, *others = file.read_bytes().split(b"\n")
    assert first.startswith(b'{"commitInfo":')
    file.write_bytes(b"\n".join([*others, first]))

    with opened(place) as queue:
        assert len(queue["work"].take_many(20)) == 10
        assert queue.check().sound

    # It was not taken for lost, and its version given to another one.
    assert file.read_bytes() == b"\n".join([*others, first])


@pytest.mark.parametrize("part", ["all", "end", "middle"])
@pytest.mark.parametrize("older", ["commits", "checkpoint"])
def test_newest_checkpoint_when_damaged_is_passed_over_and_followed_by_new_ones(
    place: Path, monkeypatch: pytest.MonkeyPatch, part: str, older: str
) -> None:
    monkeypatch.setattr(tidying, "EVERY", 5)
    if older == "checkpoint":
        DeltaTable(str(place / "work")).create_checkpoint()
        for version in range(9):
            commit(place / "work", version).unlink()
    file = checkpoint(place / "work", 10 if older == "checkpoint" else 8)
    text = file.read_bytes()
    middle = text[:4] + b"\0" * (len(text) - 12) + text[-8:]
    file.write_bytes({"all": b"", "end": text[:900], "middle": middle}[part])

    with opened(place) as queue:
        assert queue.statistics("work")["tasks"]["total"] == 10
        for number in range(10):
            queue["work"].put(number)
        assert len(queue["work"].take_many(20)) == 20

    # Other readers go on as well: they begin at one that was written since.
    assert versions(place / "work" / "_delta_log", r"checkpoint\.parquet")[-1] >= 15
    assert DeltaTable(str(place / "work")).to_pyarrow_table().num_rows == 20


def test_newest_checkpoint_when_damaged_and_the_log_begins_there_is_named(place: Path) -> None:
    for version in range(9):
        commit(place / "work", version).unlink()
    checkpoint(place / "work").write_bytes(b"")

    with opened(place) as queue, pytest.raises(StoreError, match=checkpoint(place).name):
        queue["work"].take(0)


@pytest.mark.parametrize("name", [name for name in BY_NAME if name.startswith("hint")])
def test_hint_when_wrong_stops_neither_verbs_nor_checkpoints_nor_shortening(
    place: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tidying, "EVERY", 5)
    BY_NAME[name].damage(place / "work")
    log = place / "work" / "_delta_log"

    with opened(place) as queue:
        tube = queue["work"]
        for number in range(20):
            tube.put(number)
        assert versions(log, r"checkpoint\.parquet")[-1] >= 25
        aged(log, 7 * 3600)
        monkeypatch.setattr("tubeq_spark.storage.log.tidying.LocalRetention.versions", 3)
        for number in range(10):
            tube.put(number)
        assert versions(log)[0] > 8
        assert queue.check().sound
