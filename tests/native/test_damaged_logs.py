"""What verbs do at a damaged log: they refuse it by the name of a file, or read on from what is whole."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable, write_deltalake

from tests.native.damage import PLANTED, checkpoint, commit, made_sound, opened
from tests.native.logs import aged, versions
from tubeq_spark import StoreError
from tubeq_spark.storage.log import tidying

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tubeq_spark import Tube

BY_NAME = {planted.name: planted for planted in PLANTED}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A queue with the tube `work`: eleven versions, a checkpoint at the eighth, the tasks 0 to 9."""
    return made_sound(tmp_path_factory.mktemp("sound") / "queue")


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


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    "name",
    ["commit of 0 bytes before the end", "commit cut in a line", "commit cut at the end of a line"],
)
def test_verb_when_a_commit_is_damaged_names_it_and_writes_nothing(
    place: Path, name: str, verb: str
) -> None:
    BY_NAME[name].damage(place / "work")
    before = versions(place / "work" / "_delta_log")

    with opened(place) as queue, pytest.raises(StoreError, match=commit(place, 9).name):
        VERBS[verb](queue["work"])

    assert versions(place / "work" / "_delta_log") == before


def test_other_tubes_when_the_log_of_one_is_damaged_go_on_and_health_names_the_file(
    place: Path,
) -> None:
    BY_NAME["commit cut at the end of a line"].damage(place / "work")

    with opened(place) as queue:
        other = queue.create_tube("other")
        other.put("a")
        assert other.take(0) is not None
        [problem] = [found for found in queue.health().problems if found.kind == "unreadable"]
        assert problem.tube == "work"
        assert commit(place, 9).name in problem.message
        assert set(queue.statistics()) == {"other"}


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


def by_old_library(place: Path) -> Path:
    """A commit as deltalake 1.0 and earlier have it: what it tells of itself is its last line."""
    table = DeltaTable(str(place / "work"))
    write_deltalake(table, table.to_pyarrow_table(), mode="overwrite", partition_by=["segment"])
    file = commit(place / "work", 11)
    first, *others = file.read_bytes().split(b"\n")
    assert first.startswith(b'{"commitInfo":')
    file.write_bytes(b"\n".join([*others, first]))
    return file


def test_commit_of_an_old_library_is_read(place: Path) -> None:
    before = by_old_library(place).read_bytes()

    with opened(place) as queue:
        assert len(queue["work"].take_many(20)) == 10
        assert queue.check().sound

    # It was not taken for lost, and its version given to another one.
    assert commit(place / "work", 11).read_bytes() == before


@pytest.mark.parametrize("name", ["newest checkpoint empty", "newest checkpoint cut"])
def test_newest_checkpoint_when_damaged_is_passed_over_and_replaced(place: Path, name: str) -> None:
    BY_NAME[name].damage(place / "work")

    with opened(place) as queue:
        tube = queue["work"]
        assert len(tube.take_many(3)) == 3
        assert queue.statistics("work")["tasks"]["total"] == 10

    # Other readers go on as well: they begin at one that was written since.
    assert DeltaTable(str(place / "work")).to_pyarrow_table().num_rows == 10


def test_checkpoint_when_the_newest_is_damaged_between_its_ends_is_followed_by_new_ones(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tidying, "EVERY", 5)
    file = checkpoint(place / "work")
    text = file.read_bytes()
    file.write_bytes(text[:4] + b"\0" * (len(text) - 12) + text[-8:])

    with opened(place) as queue:
        for number in range(10):
            queue["work"].put(number)

    assert versions(place / "work" / "_delta_log", r"checkpoint\.parquet")[-1] >= 15
    assert DeltaTable(str(place / "work")).to_pyarrow_table().num_rows == 20


def test_newest_checkpoint_when_damaged_and_the_log_begins_there_is_named(place: Path) -> None:
    for version in range(9):
        commit(place / "work", version).unlink()
    checkpoint(place / "work").write_bytes(b"")

    with opened(place) as queue, pytest.raises(StoreError, match=checkpoint(place).name):
        queue["work"].take(0)


def test_checkpoint_when_the_newest_is_damaged_and_there_is_an_older_one_is_that(
    place: Path,
) -> None:
    DeltaTable(str(place / "work")).create_checkpoint()
    for version in range(9):
        commit(place / "work", version).unlink()
    checkpoint(place / "work", 10).write_bytes(b"")

    with opened(place) as queue:
        assert len(queue["work"].take_many(20)) == 10


@pytest.mark.parametrize(
    "name",
    ["hint of a checkpoint that is not there", "hint that is garbage", "hint older than the log"],
)
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


def test_hint_when_wrong_leaves_verbs_to_the_native_reader(place: Path) -> None:
    BY_NAME["hint that is garbage"].damage(place / "work")

    with opened(place) as queue:
        queue["work"].put("new")

    newest = commit(place / "work", max(versions(place / "work" / "_delta_log")))
    assert b'"engineInfo":"tubeq_spark"' in newest.read_bytes()


@pytest.mark.parametrize("verb", VERBS)
def test_hole_when_a_queue_is_opened_is_refused(place: Path, verb: str) -> None:
    BY_NAME["hole"].damage(place / "work")

    with opened(place) as queue, pytest.raises(StoreError, match=commit(place, 9).name):
        VERBS[verb](queue["work"])

    assert versions(place / "work" / "_delta_log")[-2:] == [8, 10]


def test_hole_in_a_queue_that_is_open_is_not_filled(place: Path, tube: Tube) -> None:
    assert tube.take() is not None
    newest = max(versions(place / "work" / "_delta_log"))
    shutil.copy(commit(place / "work", newest), commit(place / "work", newest + 2))

    with pytest.raises(StoreError, match=commit(place, newest + 1).name):
        tube.put("new")

    assert not commit(place / "work", newest + 1).exists()


def test_hole_before_a_checkpoint_is_no_harm(place: Path) -> None:
    commit(place / "work", 4).unlink()

    with opened(place) as queue:
        assert len(queue["work"].take_many(20)) == 10


def test_commit_of_a_verb_tells_how_much_follows_its_first_line(place: Path) -> None:
    text = commit(place / "work", 10).read_bytes()
    first, _, rest = text.partition(b"\n")

    assert first.startswith(
        b'{"commitInfo":{"follows":{"lines":%d,"bytes":%d},' % (rest.count(b"\n"), len(rest))
    )
