"""`Queue.check` and `tubeq check` find each planted damage on local files, and repair as much as was asked."""

from __future__ import annotations

import errno
import json
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from typer.testing import CliRunner

from tests.native.damage import (
    PLANTED,
    Planted,
    checkpoint,
    commit,
    data_file,
)
from tests.native.support import opened
from tubeq_spark import InvalidOptionError, Queue, QueueConfig, StoreError
from tubeq_spark.cli.app import app
from tubeq_spark.storage.location import Location
from tubeq_spark.storage.native.engine import NativeEngine
from tubeq_spark.storage.tables import schema

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def place(sound: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    return shutil.copytree(sound, tmp_path / "queue")


def left(place: Path) -> list[Any]:
    """The payloads that are in the tube."""
    with opened(place) as queue:
        return sorted(task.data for task in queue["work"].tasks_by_state("r"))


def run(place: Path, *options: str) -> tuple[int, list[dict[str, Any]]]:
    """`tubeq check`: its exit code, and what it found."""
    found = CliRunner().invoke(app, ["check", str(place), *options, "--json"])
    assert found.exception is None or isinstance(found.exception, SystemExit)
    return found.exit_code, [json.loads(line) for line in found.stdout.splitlines()]


def contents(place: Path) -> dict[str, bytes]:
    """All files of the tables."""
    return {
        str(file): file.read_bytes()
        for file in place.rglob("*")
        if file.is_file() and "_tubeq_locks" not in file.parts
    }


def test_check_of_a_sound_queue_finds_nothing(place: Path) -> None:
    with opened(place) as queue:
        report = queue.check()

    assert report.sound
    assert report.problems == []
    assert report.tables == ["_tubeq_tubes", "_tubeq_sessions", "work"]
    assert run(place) == (0, [])


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_damage_is_named_by_a_check_and_repaired_as_far_as_was_asked(
    place: Path, planted: Planted
) -> None:
    with opened(place) as queue:
        ids = {task.data: task.task_id for task in queue["work"].tasks_by_state("r")}
    planted.damage(place / "work")
    before, loses = contents(place), bool(planted.lost)

    code, problems = run(place)
    assert (code, contents(place)) == (1, before)
    assert {(each["kind"], each["loses"], each["tube"]) for each in problems} == {
        (planted.kind, loses, "work")
    }
    assert any(planted.said in each["message"] for each in problems)

    code, problems = run(place, "--repair")
    assert (code, {each["repaired"] for each in problems}) == (int(loses), {not loses})
    if loses:
        assert contents(place) == before
        code, problems = run(place, "--repair", "--accept-loss")
        assert (code, {each["repaired"] for each in problems}) == (0, {True})
        named = {int(id) for each in problems for id in each["tasks"]}
        assert named == {ids[number] for number in planted.lost}

    assert run(place) == (0, [])
    kept = [number for number in range(10) if number not in planted.lost]
    assert left(place) == kept
    with opened(place) as queue:
        queue["work"].put(10)
    assert left(place) == [*kept, 10]
    assert DeltaTable(str(place / "work")).to_pyarrow_table().num_rows == len(kept) + 1


def test_repair_of_the_newest_commit_where_a_checkpoint_has_all_of_it_loses_nothing(
    place: Path,
) -> None:
    DeltaTable(str(place / "work")).create_checkpoint()
    commit(place / "work", 10).write_bytes(b"")

    code, [problem] = run(place, "--repair")

    assert (code, problem["loses"], problem["repaired"]) == (0, False, True)
    assert run(place) == (0, [])
    assert DeltaTable(str(place / "work")).to_pyarrow_table().num_rows == 10
    assert left(place) == list(range(10))


def test_check_of_an_open_queue_repairs_tubes_that_are_in_use(place: Path) -> None:
    with opened(place) as queue:
        tube = queue["work"]
        assert tube.take() is not None
        data_file(place / "work", 5).unlink()
        commit(place / "work", 10).write_bytes(b"")

        assert not queue.check().sound
        assert not queue.check(repair=True).sound
        assert queue.check(repair=True, accept_loss=True).sound

        tube.put("new")
        assert queue.check().sound
        assert len(list(tube.tasks_by_state("r"))) == 9


@pytest.mark.parametrize("name", ["_tubeq_tubes", "_tubeq_sessions"])
def test_table_of_the_queue_when_damaged_is_named_and_repaired_though_no_queue_opens(
    place: Path, name: str
) -> None:
    newest = max((place / name / "_delta_log").glob("*.json"))
    newest.write_bytes(newest.read_bytes()[:-30])

    code, [problem] = run(place)
    assert code == 1
    assert (problem["table"], problem["tube"], problem["path"]) == (name, None, str(newest))

    assert run(place, "--repair", "--accept-loss")[0] == 0
    with opened(place) as queue:
        tube = queue.create_tube("work", if_not_exists=True)
        tube.put("new")
        assert tube.take() is not None


def test_check_repairs_a_table_that_another_process_has_put_beside_the_tubes_not_at_all(
    place: Path,
) -> None:
    """It is another program's."""
    write_deltalake(str(place / "pages"), pa.table({"url": ["a"]}))
    commit(place / "pages", 1).write_bytes(b"")

    assert run(place) == (0, [])


@pytest.mark.parametrize("is_shortened", [True, False])
def test_check_of_a_tube_with_a_checkpoint_that_only_spark_reads_says_so_and_repairs_nothing(
    place: Path, is_shortened: bool
) -> None:
    """As Spark writes them by `delta.checkpointPolicy=v2`."""
    of_spark = checkpoint(place / "work").with_name(f"{8:020}.checkpoint.{UUID(int=1)}.parquet")
    checkpoint(place / "work").rename(of_spark)
    for version in range(8 if is_shortened else 0):
        commit(place / "work", version).unlink()
    before = contents(place)

    code, [problem] = run(place, "--repair", "--accept-loss")

    assert (code, problem["kind"], problem["path"]) == (1, "unreadable", str(of_spark))
    assert contents(place) == before


def test_check_where_there_is_no_queue_says_so_and_makes_none(tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["check", str(tmp_path / "nothing")])

    assert found.exit_code != 0
    assert "no queue at" in found.stderr
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("command", ["check", "health"])
def test_command_when_its_answer_cannot_be_printed_does_not_end_as_if_it_had_found_something(
    place: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    def fail(_text: str) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr("tubeq_spark.cli.call.print_line", fail)

    found = CliRunner().invoke(app, ["--engine", "native", "--location", str(place), command])

    assert (found.exit_code, found.stderr) == (141, "")


def test_location_of_another_format_when_opened_or_checked_is_refused_and_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "theirs"
    with monkeypatch.context() as patched:
        patched.setattr(schema, "OUR_FORMAT", "0")
        new = schema.new_system_tables(Location(str(place)), QueueConfig(), "native")
    tables = NativeEngine().tables
    for table in new:
        tables.create(table)
    before = contents(place)

    for _ in range(2):
        with pytest.raises(StoreError, match="make a new queue at another place") as refused:
            Queue(None, str(place), engine="native")
        assert str(refused.value).startswith(f"{place} was made by another version")
    code, lines = run(place, "--repair", "--accept-loss")
    assert (code, lines) == (3, [])
    assert {path: of for path, of in contents(place).items() if path in before} == before


def test_check_that_accepts_a_loss_without_repair_is_refused(place: Path) -> None:
    with opened(place) as queue, pytest.raises(InvalidOptionError, match="repair=True"):
        queue.check(accept_loss=True)


def test_check_of_a_location_on_another_storage_is_refused(place: Path) -> None:
    with opened(place) as queue:
        place_of_spark = "hdfs://host/queue"
        queue._context.opened = replace(
            queue._context.opened, uri=place_of_spark, location=Location.parse(place_of_spark)
        )
        with pytest.raises(StoreError, match="hdfs://host"):
            queue.check()
