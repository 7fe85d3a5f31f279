"""Two versions of the package beside one another: which tubes each of them uses, and when a tube changes."""

from __future__ import annotations

import datetime as dt
import json
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.acceptance.support import FOR_EVER, Native, data_of, put_and_take, take
from tests.thorough import without_spark
from tubeq_spark import Backoff, Rate, StoreError
from tubeq_spark.queue import look
from tubeq_spark.storage.tables.schema import FORMAT_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.acceptance.support import Engine, NewTube, Session
    from tubeq_spark import Queue, Tube
    from tubeq_spark.storage.tables.registry import TubeRecord
    from tubeq_spark.testing import ManualClock

#: What the version before has written of a tube: its options in the registry, and its table.
OPTIONS_BEFORE = {
    "capacity",
    "change_feed",
    "delay",
    "max_attempts",
    "pri",
    "schema",
    "storage_mode",
    "temporary",
    "ttl",
    "ttr",
}
COLUMNS_BEFORE = [
    "segment",
    "tube",
    "task_id",
    "state",
    "pri",
    "utube",
    "data",
    "created",
    "ttl",
    "ttr",
    "next_event",
    "expires_at",
    "owner",
    "attempts",
    "taken_at",
    "claim",
    "change",
]
STATISTICS_BEFORE = "task_id,pri,state,next_event,expires_at,claim,utube"
#: Seconds after which every program has seen a change.
SEEN = 5


def record_of(queue: Queue, tube: Tube) -> TubeRecord:
    found = queue._registry.find(tube.name)
    assert found is not None
    return found


def written_by_a_newer_version(queue: Queue, tube: Tube) -> Tube:
    """Change a tube's record as a newer version may: to a format that this one does not know."""
    newer = lambda record: replace(record, format_version=FORMAT_VERSION + 1)  # noqa: E731
    queue._registry.alter(record_of(queue, tube), newer)
    return tube


def is_refused(error: pytest.ExceptionInfo[StoreError], tube: Tube) -> bool:
    return f"tube '{tube.name}' has format version {FORMAT_VERSION + 1}" in str(error.value)


# -- a tube of a newer format ---------------------------------------------------------------------


def test_tube_when_a_newer_version_has_written_it_is_named_and_refused(
    queue: Queue, session: Session, new_tube: NewTube
) -> None:
    tube = new_tube("utubettl")
    beside = new_tube("utubettl")
    written_by_a_newer_version(queue, tube)
    old = session()

    assert {tube.name, beside.name} <= {*old.tubes()}
    for opened in (
        lambda: old.tube(tube.name),
        lambda: old[tube.name],
        lambda: old.statistics(tube.name),
        lambda: old.create_tube(tube.name, "utubettl"),
        lambda: old.create_tube(tube.name, "fifo", if_not_exists=True),
        lambda: old.create_tube(tube.name.upper(), "utubettl", if_not_exists=True),
    ):
        with pytest.raises(StoreError) as refused:
            opened()
        assert is_refused(refused, tube)
    put_and_take(old[beside.name])


def test_tube_when_a_newer_version_changes_an_open_one_is_refused_within_five_seconds(
    queue: Queue, new_tube: NewTube, clock: ManualClock, versions: Callable[[], dict[str, int]]
) -> None:
    tube = new_tube("fifottl", max_attempts=3)
    tube.put_many([1, 2])
    held = take(tube)
    written_by_a_newer_version(queue, tube)
    before = versions()
    for registered in (
        tube.pause,
        tube.drop,
        lambda: tube.alter(ttr=5),
        lambda: tube.alter(most_taken=5),
    ):
        with pytest.raises(StoreError) as refused:
            registered()
        assert is_refused(refused, tube)
    clock.advance(SEEN)

    for verb in (
        lambda: tube.put(3),
        lambda: tube.take(timeout=0),
        lambda: tube.ack(held.task_id),
        tube.kick,
        tube.truncate,
        tube.upgrade,
        lambda: tube.options,
        lambda: tube.paused,
    ):
        with pytest.raises(StoreError) as refused:
            verb()
        assert is_refused(refused, tube)

    assert versions() == before


@pytest.mark.thorough
def test_queue_when_a_newer_version_has_a_tube_leaves_it_out_and_serves_the_others(
    engine: Engine,
    session: Session,
    clock: ManualClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    old = engine.open(f"{session().location}_beside", clock=clock)
    old.cfg(ttr=FOR_EVER)
    try:
        newer, tube = (old.create_tube(name, "utubettl", ttl=5) for name in ("newer", "known"))
        newer.put_many([1, 2])
        tube.put_many([1, 2])
        written_by_a_newer_version(old, newer)
        before = engine.versions(old.location)["newer"]
        caplog.set_level(logging.WARNING)

        assert [*old.statistics()] == ["known"]
        assert [*old.metrics().tubes] == ["known"]
        assert [*look(old)] == ["known"]
        old.sessions()
        old._repr_html_()
        assert "tube newer is left out: tube 'newer' has format version" in caplog.text
        if old.engine != "memory":  # which has no health
            problems = {problem.tube: problem for problem in old.health().problems}
            assert problems["newer"].kind == "unreadable"
            assert f"format version {FORMAT_VERSION + 1}" in problems["newer"].message
        swept = old.sweep(clock.now() + dt.timedelta(days=1))
        assert swept.tubes["known"].expired == 2
        assert "format version" in (swept.tubes["newer"].error or "")
        assert "Traceback" not in caplog.text
        assert old.upgrade() == ["known"]
        assert engine.versions(old.location)["newer"] == before
    finally:
        engine.leave(old)


def test_queue_when_it_closes_beside_a_tube_of_a_newer_version_releases_the_others(
    queue: Queue, session: Session, new_tube: NewTube
) -> None:
    newer, tube = new_tube("fifo"), new_tube("fifo")
    tube.put(1)
    old = session()
    old.identify()
    take(old[tube.name])
    written_by_a_newer_version(queue, newer)

    old.close()

    assert data_of([take(tube)]) == [1]


@pytest.mark.parametrize("status", ["live", "dropping", "creating", "rebuilding"])
def test_sweep_when_a_newer_version_writes_a_record_that_nobody_here_can_read_leaves_it(
    tmp_path: Path, status: str
) -> None:
    engine = Native()
    with engine.open(str(tmp_path / "q")) as queue:
        queue.create_tube("newer", "fifottl").put(1)
        queue.create_tube("known").put(1)
        options = json.dumps({"rate": {"tasks": 1, "burst": 2}, "temporary": f"{'0' * 32}/1"})
        sets = {"format_version": "3", "options": f"'{options}'", "status": f"'{status}'"}
        engine.update(f"{queue.location}/_tubeq_tubes", sets, "name = 'newer'")
        before = engine.versions(queue.location)

    with engine.open(str(tmp_path / "q")) as queue:
        assert queue.tubes() == ["known", "newer"]
        queue.sweep()
        with pytest.raises(StoreError, match="format version 3"):
            queue.create_tube("newer")
        assert data_of([take(queue["known"])]) == [1]

    after = engine.versions(str(tmp_path / "q"))
    assert {name: after[name] for name in ("newer", "_tubeq_tubes")} == {
        name: before[name] for name in ("newer", "_tubeq_tubes")
    }


def test_check_when_a_newer_version_has_written_a_damaged_tube_does_not_repair_it(
    tmp_path: Path,
) -> None:
    engine = Native()
    with engine.open(str(tmp_path / "q")) as queue:
        for name in ("newer", "known"):
            queue.create_tube(name, "fifottl").put(1)
            for file in (tmp_path / "q" / name).rglob("*.parquet"):
                file.unlink()
        written_by_a_newer_version(queue, queue["newer"])
        before = engine.versions(queue.location)

        report = queue.check(repair=True, accept_loss=True)

        found = {damage.tube: damage for damage in report.problems}
        assert (found["known"].repaired, found["newer"].repaired) == (True, False)
        assert "newer version" in found["newer"].message
        assert engine.versions(queue.location)["newer"] == before["newer"]


# -- the format before ----------------------------------------------------------------------------


USES = {
    "put, take and settle": lambda tube: tube.ack(put_and_take(tube).task_id),
    "alter of what there was": lambda tube: tube.alter(ttr=5, ttl=9, pri=1, max_attempts=3),
    "resume of what is not paused": lambda tube: tube.resume(),
    "alter to the defaults": lambda tube: tube.alter(backoff=None, parallel=1, order="fifo"),
}
FEATURES: dict[str, Callable[[Tube], object]] = {
    "pause": lambda tube: tube.pause(),
    "backoff": lambda tube: tube.alter(backoff=Backoff()),
    "parallel": lambda tube: tube.alter(parallel=2),
    "rate": lambda tube: tube.alter(rate=Rate(1, 1)),
    "order": lambda tube: tube.alter(order="fair"),
    "most_taken": lambda tube: tube.alter(most_taken=1),
    "aging": lambda tube: tube.alter(aging=1),
    "upgrade": lambda tube: tube.upgrade(),
}


@pytest.mark.parametrize("use", without_spark(*USES))
def test_tube_when_no_new_feature_was_used_has_the_format_before(
    engine: Engine, queue: Queue, new_tube: NewTube, use: str
) -> None:
    tube = new_tube("utubettl")

    USES[use](tube)

    assert format_of(engine, queue, tube) == (1, OPTIONS_BEFORE, COLUMNS_BEFORE, STATISTICS_BEFORE)


@pytest.mark.parametrize("feature", ["upgrade", *without_spark(*list(FEATURES)[:-1])])
def test_tube_when_a_new_feature_was_used_has_the_new_format(
    engine: Engine, queue: Queue, new_tube: NewTube, feature: str
) -> None:
    tube = new_tube("utubettl")

    FEATURES[feature](tube)

    number, _, columns, statistics = format_of(engine, queue, tube)
    assert number == FORMAT_VERSION
    assert columns == [*COLUMNS_BEFORE, "error", "unique", "rank"]
    assert statistics == f"{STATISTICS_BEFORE},unique,rank"


def test_tube_when_all_that_was_used_is_reset_keeps_the_new_format(
    queue: Queue, new_tube: NewTube
) -> None:
    tube = new_tube("utubettl")
    tube.alter(most_taken=1)

    tube.alter(most_taken=None)

    assert record_of(queue, tube).format_version == FORMAT_VERSION


def format_of(
    engine: Engine, queue: Queue, tube: Tube
) -> tuple[int, set[str], list[str], str | None]:
    """The format of a tube, its stored options, its columns, and which of these have statistics."""
    record = record_of(queue, tube)
    tables, name = queue._context.engine.tables, tubes_table(queue, tube)
    columns = columns_of(queue, name)
    return (
        record.format_version,
        {*json.loads(record.text)},
        columns,
        tables.property(name, "delta.dataSkippingStatsColumns"),
    )


def tubes_table(queue: Queue, tube: Tube) -> str:
    return queue._opened.location.table(tube.name)


def columns_of(queue: Queue, name: str) -> list[str]:
    if queue.engine == "memory":
        return [*queue._store.tables[name].rows.schema.names]  # type: ignore[attr-defined]
    from deltalake import DeltaTable  # noqa: PLC0415  memory needs none

    return [field.name for field in DeltaTable(name[7:-1]).schema().fields]


# -- upgrade --------------------------------------------------------------------------------------


def moved(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """How many commits each table got."""
    return {name: after[name] - before[name] for name in after if after[name] != before[name]}


@pytest.mark.thorough
def test_upgrade_when_a_tube_has_the_format_before_adds_the_columns_once(
    new_tube: NewTube, versions: Callable[[], dict[str, int]]
) -> None:
    tube = new_tube("fifottl")
    tube.put_many([1, 2])
    held = take(tube)
    before = versions()

    assert tube.upgrade()
    first = moved(before, versions())
    assert not tube.upgrade()

    assert first == moved(before, versions()) == {"_tubeq_tubes": 1, tube.name: 2}
    tube.ack(held.task_id)
    assert data_of([take(tube)]) == [2]


def test_upgrade_when_it_is_of_all_tubes_names_those_that_had_the_format_before(
    engine: Engine, session: Session, clock: ManualClock
) -> None:
    queue = engine.open(f"{session().location}_upgraded", clock=clock)
    try:
        for name in ("a", "b"):
            queue.create_tube(name)
        queue.create_tube("c", most_taken=1)

        assert queue.upgrade() == ["a", "b"]
        assert queue.upgrade() == []
    finally:
        engine.leave(queue)


def test_upgrade_when_another_program_has_done_it_commits_nothing(
    new_tube: NewTube, other: Queue, versions: Callable[[], dict[str, int]]
) -> None:
    tube = new_tube("fifo")
    theirs = other[tube.name]
    tube.upgrade()
    before = versions()

    theirs.upgrade()

    assert versions() == before
