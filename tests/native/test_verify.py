"""`Queue.verify` finds each planted violation in a log, names its commit, and finds none in sound logs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.acceptance.command_line import invoke
from tubeq_spark import Queue, QueueConfig, Rate
from tubeq_spark.storage.check import on_local_files
from tubeq_spark.storage.note import Note, note_in
from tubeq_spark.testing import ManualClock
from tubeq_spark.verify.verify import verify

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Rows = Callable[[pa.Table], pa.Table]

#: The logs of a location on local files have the commits of the retention only if it is longer than the default.
CONFIG = QueueConfig(retention_hours=3)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A location whose tubes were worked off by all verbs."""
    place: Path = tmp_path_factory.mktemp("verified") / "queue"
    clock = ManualClock()
    with (
        Queue(None, place, config=CONFIG, clock=clock, engine="native") as queue,
        Queue(None, place, config=CONFIG, clock=clock, engine="native") as other,
    ):
        plain = queue.create_tube("plain", "fifottl", ttr=30, max_attempts=3)
        for n in range(12):
            plain.put(n, pri=n % 2, unique=f"key {n}")
        task = plain.take()
        assert task is not None
        plain.release(task.task_id)
        theirs = other.tube("plain").take()
        assert theirs is not None
        other.tube("plain").ack(theirs.task_id)
        kept = plain.take()
        assert kept is not None
        plain.touch(kept.task_id, 10)
        plain.bury(kept.task_id)
        plain.kick(1)
        plain.put("later", delay=60)
        plain.put("short", ttl=20)
        clock.advance(70)
        queue.sweep()
        last = plain.take()
        assert last is not None
        plain.delete(plain.put("gone").task_id)
        utubes = queue.create_tube(
            "utubes", "utubettl", parallel=2, rate=Rate(3, 60), most_taken=4, ttr=1000
        )
        for n in range(12):
            utubes.put(n, utube="ab"[n % 2])
        held = [utubes.take() for _ in range(4)]
        for task in held:
            assert task is not None
            utubes.ack(task.task_id)
            clock.advance(40)
        rated = queue.create_tube("rated", "utube", rate=Rate(1, 60))
        for n in range(2):
            rated.put(n, utube="a")
        for _ in range(2):
            task = rated.take()
            assert task is not None
            rated.ack(task.task_id)
            clock.advance(70)
        full = queue.create_tube("full", "limfifottl", capacity=2)
        full.put(1)
        full.put(2)
    return place


def verified(place: Path) -> Any:
    opened = on_local_files(str(place))
    assert opened is not None
    return verify(opened)


def commits_of(table: Path, operation: str) -> list[Path]:
    """The commits of an operation, in their order."""
    files = sorted((table / "_delta_log").glob("*.json"))
    notes = ((file, _note(file)) for file in files)
    return [file for file, note in notes if note is not None and note.operation == operation]


def _note(commit: Path) -> Note | None:
    return note_in(_info(commit).get("userMetadata") or "")


def _info(commit: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(commit.read_text().splitlines()[0])["commitInfo"]
    return found


def _write(commit: Path, info: Mapping[str, Any], actions: list[str]) -> None:
    # Without the length of its other lines a commit is not ours, and may have any.
    told = {name: value for name, value in info.items() if name != "follows"}
    lines = [json.dumps({"commitInfo": told}), *actions]
    commit.write_text("".join(f"{line}\n" for line in lines))


def plant_note(commit: Path, **fields: str) -> None:
    """Change fields in the note of a commit."""
    info = _info(commit)
    words = info["userMetadata"].split(" ")
    values = dict(word.split("=", 1) for word in words[1:]) | fields
    info["userMetadata"] = " ".join([words[0], *(f"{name}={of}" for name, of in values.items())])
    _write(commit, info, commit.read_text().splitlines()[1:])


def plant_rows(commit: Path, change: Rows) -> None:
    """Change the rows of tasks in the files that a commit has added."""
    lines = commit.read_text().splitlines()
    actions = [json.loads(line) for line in lines[1:]]
    table = commit.parents[1]
    for action in actions:
        if "add" not in action:
            continue
        file = table / action["add"]["path"]
        rows = pq.ParquetFile(file).read()
        is_task = pc.greater(rows["tube"], 0)
        if not pc.any(is_task).as_py():
            continue
        rows = pa.concat_tables([change(rows.filter(is_task)), rows.filter(pc.invert(is_task))])
        pq.write_table(rows, file)
        action["add"]["size"] = file.stat().st_size
    _write(commit, _info(commit), [json.dumps(action) for action in actions])


def plant_total(commit: Path, more: int) -> None:
    """Change the total of ended tasks that a commit has written."""
    actions = [json.loads(line) for line in commit.read_text().splitlines()[1:]]
    for action in actions:
        if "txn" in action:
            action["txn"]["version"] += more
    _write(commit, _info(commit), [json.dumps(action) for action in actions])


def sets(**values: Any) -> Rows:
    """All rows get these values."""

    def change(rows: pa.Table) -> pa.Table:
        for name, value in values.items():
            kind = rows.schema.field(name).type
            column = pa.array([value] * rows.num_rows, kind)
            rows = rows.set_column(rows.column_names.index(name), name, column)
        return rows

    return change


def fewer(rows: pa.Table) -> pa.Table:
    return rows.slice(0, 0)


def twice(rows: pa.Table) -> pa.Table:
    return pa.concat_tables([rows, rows])


def another(rows: pa.Table) -> pa.Table:
    """A second task beside each."""
    number = pc.add(rows["task_id"], 1)
    place = rows.column_names.index("task_id")
    return pa.concat_tables([rows, rows.set_column(place, "task_id", number)])


#: When the clock of the tests begins.
_BEGAN = ManualClock().now()
#: For each planted violation: the tube, the operation and the number of its commit, the change, and the rule.
PLANTED: list[tuple[str, str, int, Callable[[Path], None], str]] = [
    ("plain", "release", 0, lambda c: plant_rows(c, fewer), "step"),
    ("plain", "put", 2, lambda c: plant_rows(c, twice), "doubled"),
    ("plain", "put", 2, lambda c: plant_rows(c, sets(unique="key 0")), "unique"),
    ("plain", "put", 2, lambda c: plant_rows(c, sets(state="t")), "step"),
    ("plain", "put", 2, lambda c: plant_rows(c, sets(attempts=2)), "step"),
    ("plain", "take", 0, lambda c: plant_rows(c, sets(attempts=3)), "step"),
    ("plain", "take", 0, lambda c: plant_rows(c, sets(owner="nobody/0")), "step"),
    ("plain", "ack", 0, lambda c: plant_note(c, session="another"), "step"),
    ("plain", "ack", 0, lambda c: plant_note(c, at="9000000000000000"), "step"),
    ("plain", "ack", 0, lambda c: plant_note(c, operation="take"), "step"),
    ("plain", "ack", 0, lambda c: plant_note(c, changed="0/0/2"), "count"),
    ("plain", "ack", 0, lambda c: plant_total(c, 1), "count"),
    ("plain", "touch", 0, lambda c: plant_note(c, session="another"), "step"),
    ("plain", "touch", 0, lambda c: plant_rows(c, sets(state="r")), "step"),
    ("plain", "bury", 0, lambda c: plant_rows(c, sets(state="~")), "step"),
    ("plain", "kick", 0, lambda c: plant_rows(c, sets(state="~")), "step"),
    ("plain", "end_due", 0, lambda c: plant_note(c, at="1"), "step"),
    ("plain", "delete", 0, lambda c: plant_note(c, operation="fold"), "step"),
    ("plain", "put", 1, lambda c: plant_rows(c, sets(pri=-5)), "order"),
    ("utubes", "put", 1, lambda c: plant_rows(c, sets(utube="a", pri=-5)), "order"),
    ("utubes", "put", 2, lambda c: plant_rows(c, sets(utube="b", pri=-5)), "order"),
    ("utubes", "take", 1, lambda c: plant_rows(c, sets(utube="c")), "step"),
    ("rated", "take", 1, lambda c: plant_rows(c, sets(since=_BEGAN)), "rate"),
    ("full", "put", 1, lambda c: plant_rows(c, another), "capacity"),
]


@pytest.mark.parametrize(("tube", "operation", "number", "plant", "rule"), PLANTED)
def test_a_planted_violation_is_found(
    tube: str,
    operation: str,
    number: int,
    plant: Callable[[Path], None],
    rule: str,
    sound: Path,
    tmp_path: Path,
) -> None:
    place = tmp_path / "queue"
    shutil.copytree(sound, place)
    commit = commits_of(place / tube, operation)[number]
    plant(commit)
    found = verified(place)
    first = min(found.violations, key=lambda each: each.version)
    assert rule in {each.rule for each in found.violations}, found.violations
    assert {each.tube for each in found.violations} == {tube}
    if rule != "order":
        assert first.version == int(commit.stem), found.violations


def test_a_sound_location_has_no_violation(sound: Path) -> None:
    found = verified(sound)
    assert found.violations == []
    assert found.unread == []
    assert found.commits > 30
    assert found.tasks == 15 + 12 + 2 + 2


@pytest.mark.parametrize(
    ("is_current", "damage", "said", "is_damaged"),
    [
        (True, lambda file: file.write_bytes(file.read_bytes()[:-9]), "cannot be read", True),
        (True, Path.unlink, "is missing", True),
        (False, Path.unlink, "was removed, because no newer version needs it", False),
    ],
)
def test_a_data_file_that_cannot_be_read_is_told_as_damage_if_it_should_be_there(
    is_current: bool,
    damage: Callable[[Path], object],
    said: str,
    is_damaged: bool,
    sound: Path,
    tmp_path: Path,
) -> None:
    place = tmp_path / "queue"
    shutil.copytree(sound, place)
    # The last put has added a task that is still there; the first task of this tube is done.
    commit = commits_of(place / ("utubes" if is_current else "rated"), "put")[
        -1 if is_current else 0
    ]
    [path] = [
        line["add"]["path"]
        for line in map(json.loads, commit.read_text().splitlines())
        if "add" in line
    ]
    damage(commit.parents[1] / unquote(path))

    found = verified(place)

    assert found.violations == []
    assert [said in text for text in found.unread] == [True]
    assert found.damaged == (found.unread if is_damaged else [])
    ended = invoke("--location", str(place), "verify")
    assert ended.exit_code == (3 if is_damaged else 0)
    assert said in ended.stdout
    assert ended.stdout.endswith("no violations in the part that could be read\n")
    assert ("`tubeq check`" in ended.stderr) is is_damaged
