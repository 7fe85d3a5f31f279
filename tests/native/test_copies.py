"""A copy of a queue on local files has all of it, or nobody can open the place of the copy."""

from __future__ import annotations

import itertools
import json
import operator
import shutil
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from tests.thorough import nightly
from tubeq_spark import (
    InvalidOptionError,
    PutItem,
    Queue,
    QueueNotFoundError,
    StoreError,
    TubeBusyError,
)
from tubeq_spark.admin import copying
from tubeq_spark.admin.copying import _Copy
from tubeq_spark.cli.app import app

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from tubeq_spark import Clock

KEY = pa.table({"data": ["1", "2"]})
TYPES = ("fifo", "fifottl", "utube", "utubettl", "limfifottl")


def opened(place: Path | str, clock: Clock | None = None) -> Queue:
    return Queue(None, place, engine="native", create=False, clock=clock)


def fill(queue: Queue) -> None:
    """Tubes of all types with tasks in all states but taken, some ended, and keys of puts."""
    for kind in TYPES:
        options: dict[str, Any] = {"capacity": 100} if kind == "limfifottl" else {}
        tube = queue.create_tube(kind, kind, max_attempts=7, **options)
        timed, utubes = kind.endswith("ttl"), kind.startswith("utube")
        for n in range(12):
            more = {"ttl": 5_000.0 + n, "pri": n % 3} if timed else {}
            tube.put_many([PutItem([n, "é"], **more, utube=str(n % 4) if utubes else None)])
        if timed:
            tube.put("later", delay=3_600)
        tube.put_arrow(KEY, key="once")
        for _ in range(3):
            task = tube.take(0)
            tube.ack(task.task_id)
        tasks = tube.take_many(2)
        tube.bury(tasks[0].task_id)
        tube.release(tasks[1].task_id, error="why" if timed else None)
    queue.create_tube("typed", schema="url STRING, n ARRAY<INT>").put({"url": "x", "n": [1, None]})


def state_of(queue: Queue) -> Any:
    """All that a copy must keep."""
    tubes = [queue[name] for name in queue.tubes()]
    return {
        tube.name: (
            tube.type,
            tube.options,
            tube.paused,
            [list(tube.tasks_by_state(state)) for state in "rt!~"],
            queue.statistics(tube.name),
        )
        for tube in tubes
    }


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The location of a queue with a past."""
    place = tmp_path_factory.mktemp("filled") / "source"
    with Queue(None, place, engine="native") as queue:
        fill(queue)
    return place


@pytest.fixture
def source(filled: Path, tmp_path: Path) -> Iterator[Queue]:
    """A queue with a past, opened anew."""
    shutil.copytree(filled, tmp_path / "source")
    with opened(tmp_path / "source") as queue:
        yield queue


def test_copy_when_made_has_all_that_the_queue_has(source: Queue, tmp_path: Path) -> None:
    source["fifo"].pause()

    report = source.copy_to(tmp_path / "copy")

    with opened(tmp_path / "copy") as copy:
        assert state_of(copy) == state_of(source)
        assert report.tubes == {
            name: counts["tasks"]["total"] for name, counts in copy.statistics().items()
        }
        assert copy.check().sound
        for kind in TYPES:
            assert copy[kind].put_arrow(KEY, key="once").count == 0
            assert copy[kind].put_arrow(KEY, key="other").count == 2


def test_copy_when_a_tube_was_dropped_before_counts_none_of_its_calls_for_the_next_one(
    tmp_path: Path,
) -> None:
    with Queue(None, tmp_path / "place", engine="native") as queue:
        queue.create_tube("kept").put("a")
        queue.create_tube("unused")
        dropped = queue.create_tube("dropped")
        dropped.put_many(["b", "c"])
        dropped.drop()
        queue.copy_to(tmp_path / "copy")

    with opened(tmp_path / "copy") as copy:
        copy.create_tube("new")
        calls = {name: found["calls"]["put"] for name, found in copy.statistics().items()}
        assert copy["unused"].put("d").data == "d"
    assert calls == {"kept": 1, "new": 0, "unused": 0}


def test_copy_when_a_tube_is_temporary_is_refused(source: Queue, tmp_path: Path) -> None:
    source.create_tube("mine", temporary=True)

    with pytest.raises(TubeBusyError, match="'mine' is temporary"):
        source.copy_to(tmp_path / "copy")

    assert not (tmp_path / "copy").exists()


class StopError(Exception):
    """Stands for the end of the process."""


def stop_after(monkeypatch: pytest.MonkeyPatch, calls: int, owner: Any, name: str) -> None:
    """Have a function raise at the call after so many, and at all later ones."""
    left, real = itertools.count(calls, -1), getattr(owner, name)

    def run(*args: Any, **more: Any) -> Any:
        if next(left) <= 0:
            raise StopError
        return real(*args, **more)

    monkeypatch.setattr(owner, name, run)


@pytest.mark.parametrize("calls", [0, 1, 40, 10_000, *nightly(2, 9, 90, 150)])
def test_copy_when_stopped_cannot_be_opened_and_is_made_again_when_its_files_are_removed(
    source: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    copy = tmp_path / "copy"
    with monkeypatch.context() as patch:
        stop_after(patch, calls, copying, "_copy_file")
        # All but the last step, where no file is left to be copied.
        stop_after(patch, 0, _Copy, "_copy_registry")
        with pytest.raises(StopError):
            source.copy_to(copy)
    with pytest.raises(QueueNotFoundError):
        opened(copy)
    with pytest.raises(StoreError, match=r"not empty.* remove its files"):
        source.copy_to(copy)
    source["fifo"].put("meanwhile")
    shutil.rmtree(copy)

    source.copy_to(copy)

    assert not (copy / copying._MARK).exists()
    with opened(copy) as found:
        assert state_of(found) == state_of(source)
        assert found.check().sound


#: What happens meanwhile: before which step or after it, what, and what the refusal says.
MEANWHILE: dict[str, tuple[str, bool, Callable[[Queue], object], str]] = {
    "early tube": ("_require_apart", False, lambda q: q.create_tube("late"), "list of tubes was"),
    "tube": (
        "_Copy._require_unchanged",
        False,
        lambda q: q.create_tube("late"),
        "list of tubes was",
    ),
    "put": ("_Copy._require_unchanged", False, lambda q: q["fifo"].put("late"), "'fifo'"),
    "take": ("_require_quiet", True, lambda q: q["fifo"].take(0), "'fifo' was changed"),
}


@pytest.mark.parametrize("name", MEANWHILE)
def test_copy_when_the_queue_is_changed_meanwhile_is_refused(
    source: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    step, is_after, act, said = MEANWHILE[name]
    real = operator.attrgetter(step)(copying)

    def changing(*args: Any, **kwargs: Any) -> None:
        if is_after:
            real(*args, **kwargs)
        act(source)
        if not is_after:
            real(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(f"{copying.__name__}.{step}", changing)
        with pytest.raises((TubeBusyError, StoreError), match=said):
            source.copy_to(tmp_path / "copy")
    with pytest.raises(QueueNotFoundError):
        opened(tmp_path / "copy")


def test_copy_when_tasks_are_taken_or_programs_run_is_refused(
    source: Queue, tmp_path: Path
) -> None:
    with opened(tmp_path / "source") as worker:
        tube = worker["fifo"]
        task = tube.take(0)
        with pytest.raises(TubeBusyError, match="'fifo' has 1 taken"):
            source.copy_to(tmp_path / "copy")
        tube.release(task.task_id)
        with pytest.raises(TubeBusyError, match=r"programs use the queue .*fifo"):
            source.copy_to(tmp_path / "copy")
        for name in source.tubes():
            worker[name].pause()
        source.copy_to(tmp_path / "copy")


def test_copy_when_the_target_cannot_be_one_is_refused(source: Queue, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    targets: Mapping[Any, tuple[type[Exception], str]] = {
        tmp_path / "full": (StoreError, "is not empty"),
        tmp_path / "source": (InvalidOptionError, "must be apart"),
        tmp_path / "source" / "in": (InvalidOptionError, "must be apart"),
        tmp_path: (InvalidOptionError, "must be apart"),
        "main.queue": (StoreError, "schema of a catalog"),
        7: (InvalidOptionError, "location"),
    }
    for target, (error, said) in targets.items():
        with pytest.raises(error, match=said):
            source.copy_to(target)
    assert [*(tmp_path / "full").iterdir()] == [tmp_path / "full" / "file"]


def test_tubeq_copy_when_called_tells_the_tubes_and_ends_as_other_commands_do(
    source: Queue, tmp_path: Path
) -> None:
    def call(*arguments: str) -> tuple[int, list[str], str]:
        found = CliRunner().invoke(app, ["copy", *arguments], prog_name="tubeq")
        return found.exit_code, found.stdout.splitlines(), found.stderr

    places = (source.location, str(tmp_path / "copy"))

    code, lines, said = call(*places, "--json")

    tubes = {name: counts["tasks"]["total"] for name, counts in source.statistics().items()}
    assert (code, {t["tube"]: t["tasks"] for t in map(json.loads, lines)}) == (0, tubes)
    assert f"{source.location} stays open: use only one of the two from now on" in said
    assert call(*places)[0] == 3
    assert call(str(tmp_path / "none"), str(tmp_path / "other"))[0] == 2


def test_copy_is_verified_from_its_first_commit_on(source: Queue, tmp_path: Path) -> None:
    source.copy_to(f"{tmp_path}/copy")
    with opened(tmp_path / "copy") as copy:
        tube = copy.tube("fifo")
        tube.put("new")
        tube.ack(tube.take(0))
        assert copy.verify().commits == copy.verify("fifo").commits == 3
