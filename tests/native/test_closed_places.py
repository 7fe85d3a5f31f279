"""A place that was closed by a copy takes no task and no tube any more, also from programs that were slow to see it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.acceptance.command_line import invoke
from tests.native.test_copies import opened
from tubeq_spark import (
    CommitUnknownError,
    InvalidOptionError,
    Queue,
    QueueNotFoundError,
    StoreError,
    Tube,
    TubeBusyError,
    TubeMovedError,
)
from tubeq_spark.admin import tubes
from tubeq_spark.admin.copying import _Copy
from tubeq_spark.storage.tables.registry import Registry
from tubeq_spark.tarantool15 import Queue15
from tubeq_spark.testing import ManualClock
from tubeq_spark.verbs import put

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Before = Callable[[Any, str, Callable[[], object]], None]


@pytest.fixture
def old(tmp_path: Path, clock: ManualClock) -> Iterator[Queue]:
    with Queue(None, tmp_path / "old", engine="native", clock=clock) as queue:
        yield queue


@pytest.fixture
def other(old: Queue, clock: ManualClock) -> Iterator[Queue]:
    """Another program of the same queue."""
    with opened(old.location, clock) as queue:
        yield queue


@pytest.fixture
def before(monkeypatch: pytest.MonkeyPatch) -> Before:
    """Do something before the next call of a function."""

    def patch(owner: Any, name: str, act: Callable[[], object]) -> None:
        real = getattr(owner, name)

        def run(*args: Any, **more: Any) -> Any:
            monkeypatch.setattr(owner, name, real)
            act()
            return real(*args, **more)

        monkeypatch.setattr(owner, name, run)

    return patch


def test_copy_when_it_closes_the_old_place_names_the_new_one_there(
    old: Queue, other: Queue, clock: ManualClock, tmp_path: Path
) -> None:
    queue, new = old, str(tmp_path / "new")
    tube, seen = queue.create_tube("work"), other["work"]
    paused = queue.create_tube("paused")
    paused.pause()
    seen.put("a")
    seen.take(0)
    with pytest.raises(TubeBusyError, match="1 taken tasks"):
        queue.copy_to(new, close=True)
    seen.release_all()
    queue.copy_to(new, close=True)

    verbs: list[Callable[[Tube], object]] = [
        lambda t: t.put("b"),
        lambda t: t.take(0),
        lambda t: t.take_arrow(1),
        lambda t: t.kick(),
        lambda t: t.bury_many([1]),
        lambda t: t.alter(max_attempts=3),
        Tube.release_all,
        Tube.truncate,
        Tube.drop,
    ]
    for verb in verbs:
        for of_old in (tube, seen, paused):
            with pytest.raises(TubeMovedError, match=f"was moved to {new}: use the queue there"):
                verb(of_old)
    assert old.statistics("work")["tasks"]["total"] == 1
    for command in ("put", "truncate", "kick"):
        yes = ["--yes"] if command == "truncate" else []
        told = invoke("--location", old.location, command, "work", *yes, stdin="1\n")
        assert (told.exit_code, "use the queue there" in told.stderr) == (2, True), told.stderr
    with opened(new, clock) as moved:
        assert moved["paused"].paused
        assert moved["work"].take(0).data == "a"  # type: ignore[union-attr]
    tube.resume()
    assert tube.take(0) is not None


def test_copy_when_a_put_comes_while_it_closes_the_old_place_opens_it_again(
    old: Queue, other: Queue, clock: ManualClock, tmp_path: Path, before: Before
) -> None:
    queue = old
    tube = queue.create_tube("work")
    tube.put("a")
    late = other["work"]
    # It has not yet seen that the tube was moved.
    before(clock, "sleep", lambda: late.put("late"))
    with pytest.raises(TubeBusyError, match="tube 'work' was changed while it was copied"):
        queue.copy_to(tmp_path / "new", close=True)

    assert [tube.take(0).data, tube.take(0).data] == ["a", "late"]  # type: ignore[union-attr]
    with pytest.raises(QueueNotFoundError):
        opened(tmp_path / "new", clock)


def test_put_when_it_waits_for_room_and_the_tube_is_moved_is_refused(
    old: Queue, other: Queue, clock: ManualClock, tmp_path: Path, before: Before
) -> None:
    tube = old.create_tube("small", "limfifottl", capacity=1)
    first = tube.put("a")

    def make_room_and_move() -> None:
        other.tube("small").delete(first)  # type: ignore[arg-type]
        other.copy_to(tmp_path / "new", close=True)

    before(clock, "sleep", make_room_and_move)

    with pytest.raises(StoreError, match="was moved to"):
        tube.put("b", timeout=60)

    assert other.statistics("small")["tasks"]["total"] == 0


@pytest.mark.parametrize("urgent", [False, True])
def test_put_when_suspended_until_the_tube_is_moved_does_not_succeed(
    old: Queue, other: Queue, clock: ManualClock, tmp_path: Path, before: Before, urgent: bool
) -> None:
    tube = old.create_tube("work", "fifottl")
    tube.put("a")
    verb = (lambda: Queue15(old).urgent("work", "b")) if urgent else (lambda: tube.put("b"))
    before(put, "prepare", lambda: other.copy_to(tmp_path / "new", close=True))

    with pytest.raises(CommitUnknownError, match=r"perhaps not where .* was moved to"):
        verb()

    with pytest.raises(StoreError, match="was moved to") as refused:
        verb()
    assert not isinstance(refused.value, CommitUnknownError)
    with opened(tmp_path / "new", clock) as new:
        assert [task.data for task in new["work"].tasks_by_state("ready")] == ["a"]


@pytest.mark.parametrize("late", [False, True])
def test_create_tube_when_the_place_is_closed_is_refused(
    old: Queue, other: Queue, tmp_path: Path, before: Before, late: bool
) -> None:
    old.create_tube("work").put("a")
    if late:
        # The place is closed between its first look and its commit.
        before(tubes, "_make_unused", lambda: other.copy_to(tmp_path / "new", close=True))
    else:
        other.copy_to(tmp_path / "new", close=True)

    with pytest.raises(StoreError, match=r"'work' was moved to .*new"):
        old.create_tube("more")

    assert old.create_tube("work", if_not_exists=True).paused
    assert old.tubes() == ["work"]
    old["work"].resume()
    old.create_tube("more")


def test_copy_when_a_tube_is_dropped_while_it_closes_the_old_place_is_refused(
    old: Queue, other: Queue, clock: ManualClock, tmp_path: Path, before: Before
) -> None:
    for each in ("work", "rest"):
        old.create_tube(each).put("a")
    before(clock, "sleep", other["rest"].drop)

    with pytest.raises((TubeBusyError, StoreError), match="was"):
        old.copy_to(tmp_path / "new", close=True)

    with pytest.raises(QueueNotFoundError):
        opened(tmp_path / "new", clock)
    assert old["work"].take(0) is not None


def test_copy_when_made_from_a_closed_place_is_open_and_paused_only_where_a_program_has_paused(
    old: Queue, clock: ManualClock, tmp_path: Path
) -> None:
    # The marks are those that a copy leaves when it is killed before its end.
    old.create_tube("work").put("a")
    old.create_tube("paused").pause()
    old.copy_to(tmp_path / "new", close=True)
    shutil.rmtree(tmp_path / "new")

    old.copy_to(tmp_path / "new", close=True)

    with opened(tmp_path / "new", clock) as new:
        assert [new[name].paused for name in ("work", "paused")] == [False, True]
        assert new["work"].take(0) is not None
        new.create_tube("more")
    with pytest.raises(StoreError, match=r"was moved to .*new"):
        old["work"].put("b")


@pytest.mark.parametrize("close", [True, False])
def test_copy_when_the_place_was_moved_elsewhere_is_refused(
    old: Queue, tmp_path: Path, *, close: bool
) -> None:
    old.create_tube("work").put("a")
    old.copy_to(tmp_path / "new", close=True)

    with pytest.raises(
        TubeBusyError, match=r"'work' was moved to .*new: copy the queue from there"
    ):
        old.copy_to(tmp_path / "other", close=close)

    assert not (tmp_path / "other").exists()


def test_health_and_why_when_a_tube_was_moved_name_the_new_place(
    old: Queue, tmp_path: Path
) -> None:
    tube, new = old.create_tube("work"), str(tmp_path / "new")
    task = tube.put("a")
    old.copy_to(new, close=True)

    [problem] = [each for each in old.health().problems if each.kind == "paused"]
    assert problem.message == f"was moved to {new} with 1 ready task; use the queue there"
    assert tube.why(task).endswith(f"waits: its tube was moved to {new}, so use the queue there.")  # type: ignore[arg-type]


def test_copy_when_close_is_no_boolean_is_refused_before_anything_is_done(
    old: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Queue, "sweep", lambda *_: pytest.fail("it has swept"))

    with pytest.raises(InvalidOptionError, match="close='yes'"):
        old.copy_to(tmp_path / "new", close="yes")  # type: ignore[arg-type]


def test_copy_when_a_mark_cannot_be_undone_undoes_the_others(
    old: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        old.create_tube(name).put("a")
    alter = Registry.alter

    def failing(self: Registry, record: Any, change: Any, operation: str = "alter") -> Any:
        if record.name == "b" and change(replace(record, moved_to="x")).moved_to is None:
            msg = f"no {record.name}"
            raise StoreError(msg)
        return alter(self, record, change, operation)

    def fails(*_: object) -> None:
        raise TubeBusyError("stopped")

    with monkeypatch.context() as patch:
        patch.setattr(Registry, "alter", failing)
        patch.setattr(_Copy, "_copy_registry", fails)
        with pytest.raises(StoreError, match="no b"):
            old.copy_to(tmp_path / "new", close=True)

    with opened(old.location, ManualClock()) as again:
        assert [again[name].paused for name in ("a", "b", "c")] == [False, True, False]
