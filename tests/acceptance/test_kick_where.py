"""`kick` with a condition of the program kicks exactly the buried tasks for which the condition holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.acceptance.support import counts, data_of, ids_of, take
from tubeq_spark import InvalidOptionError, PutItem, TaskState
from tubeq_spark.storage.user_condition import condition_of, shown

if TYPE_CHECKING:
    from tests.acceptance.support import NewTube, Versions
    from tubeq_spark import Queue, Tube
    from tubeq_spark.testing import ManualClock


def buried(tube: Tube, *items: object) -> list[int]:
    ids = ids_of(tube.put_many(items))
    tube.bury_many(ids)
    return ids


def ready(tube: Tube) -> list[object]:
    return data_of(tube.tasks_by_state("r"))


@pytest.fixture
def mixed(new_tube: NewTube) -> Tube:
    """Buried tasks that differ in each column."""
    tube = new_tube("utubettl", ttr=60)
    buried(
        tube,
        PutItem("late", pri=7),
        PutItem("it's 100% a_b", pri=3, utube="x"),
        PutItem("zażółć 漢字", pri=3, utube="ß", ttl=100.5),
        PutItem(None, pri=0, utube="", ttl=3600, ttr=1.5),
    )
    tube.put("never buried", pri=9)
    return tube


LATE, SIGNS, RARE, NOTHING = "late", "it's 100% a_b", "zażółć 漢字", None
PICKED: dict[str, list[object]] = {
    "TRUE": [NOTHING, SIGNS, RARE, LATE],
    "FALSE": [],
    "pri = 3": [SIGNS, RARE],
    "pri <> 3 AND pri < 5": [NOTHING],
    "pri IN (7, 3000000000)": [LATE],
    "NOT (pri BETWEEN 1 AND 6)": [NOTHING, LATE],
    "utube IS NULL": [LATE],
    "utube = ''": [NOTHING],
    "utube > 'x' OR utube = 'x'": [SIGNS, RARE],
    # A condition that is neither true nor false picks nothing, and neither does its opposite.
    "utube = 'x'": [SIGNS],
    "NOT utube = 'x'": [NOTHING, RARE],
    "data LIKE '%100% %'": [SIGNS],
    "contains(data, '0%') AND startswith(data, '\"it''s') AND endswith(data, 'a_b\"')": [SIGNS],
    "startswith(data, '_it')": [],
    "data LIKE '_it''s%'": [SIGNS],
    "length(data) = 11": [RARE],
    "length(data) = 4 AND data = 'null'": [NOTHING],
    "length(utube) = 1": [SIGNS, RARE],
    "ttl > 100": [NOTHING, RARE],
    "ttl = 100.5": [RARE],
    "ttl IN (1, 3600)": [NOTHING],
    "ttr < 2 AND ttr < ttl": [NOTHING],
    "coalesce(ttl, 0) = 0": [SIGNS, LATE],
    "coalesce(utube, 'none') IN ('none', 'x')": [SIGNS, LATE],
    "state = '!' AND attempts = 0 AND owner IS NULL AND taken_at IS NULL AND next_event IS NOT NULL": (
        [NOTHING, RARE]
    ),
    "created < TIMESTAMP '2000-01-01' OR created > TIMESTAMP '9000-01-01T00:00:00+02:00'": [],
    "task_id > 0 AND task_id <= 9223372036854775807": [NOTHING, SIGNS, RARE, LATE],
}


@pytest.mark.thorough
def test_where_a_condition_holds_are_these_tasks_and_spark_finds_no_others(mixed: Tube) -> None:
    ctx, names = mixed._ctx, shown(TaskState.BURIED, typed=False)
    frame = None if ctx.queue.spark is None else mixed.df().where("state = '!'")
    assert frame is None or frame.columns == list(names)

    for where, expected in PICKED.items():
        buried = ctx.table.is_buried(ctx.queue.now_us()) & condition_of(where, names)
        ids = ctx.reader.ids(buried, order=ctx.table.order)
        assert [mixed.peek(number).data for number in ids] == expected, where
        if frame is not None:
            by_spark = frame.where(where).orderBy("pri", "task_id").select("task_id").collect()
            assert [row["task_id"] for row in by_spark] == ids, where


def test_kick_where_there_is_a_count_kicks_the_first_in_order(
    mixed: Tube, new_tube: NewTube
) -> None:
    fifo = new_tube("fifo")
    buried(fifo, "a", "b", "c")

    assert mixed.kick(where="pri > 0") == 1
    assert ready(mixed) == [SIGNS, "never buried"]
    assert mixed.kick(2, where="TRUE") == 2
    assert ready(mixed) == [NOTHING, SIGNS, RARE, "never buried"]
    assert mixed.kick(0, where="TRUE") == 0
    assert mixed.kick(5, where="pri = 9 OR state = 'r'") == 0
    assert fifo.kick(2, where="data IN ('\"c\"', '\"b\"')") == 2
    assert ready(fifo) == ["b", "c"]


def test_kick_where_a_condition_holds_goes_by_what_time_has_ended(
    new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("fifottl", ttr=60, max_attempts=1)
    buried(tube, PutItem("short", ttl=10), "long")
    tube.put_many(["worn", "alive"])
    take(tube)
    clock.advance(61)

    assert tube.kick(None, where="data = '\"worn\"'") == 1
    assert ready(tube) == ["worn", "alive"]
    assert tube.kick(None) == 1
    assert tube.kick(None) == tube.kick(None, where="TRUE") == 0
    assert ready(tube) == ["long", "worn", "alive"]


def test_kick_where_the_condition_is_bad_writes_nothing(
    mixed: Tube, queue: Queue, versions: Versions
) -> None:
    before = versions()

    for count in (None, 0, 1):
        with pytest.raises(InvalidOptionError, match="where"):
            mixed.kick(count, where="nothing = 1")
    for count in (-1, 1.5, "2", True):
        with pytest.raises(InvalidOptionError, match="count"):
            mixed.kick(count, where="TRUE")  # type: ignore[arg-type]

    assert versions() == before
    assert counts(queue, mixed) == {"buried": 4, "ready": 1, "total": 5}
