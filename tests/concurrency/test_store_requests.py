"""What verbs ask of an object store, whatever rivals do, and what happens in the background."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.concurrency.round_trips import VERBS, filled, taken
from tests.concurrency.s3_store import COMMIT, ROOT, Store
from tests.concurrency.support import FOR_EVER, WAIT, end_heartbeat
from tests.queries import counted, select
from tubeq_spark import CommitUnknownError, NotTakenError, Queue, StoreError
from tubeq_spark.model import takes
from tubeq_spark.storage.durability.background import Background, at_once
from tubeq_spark.storage.location import path_table
from tubeq_spark.storage.log import tidying
from tubeq_spark.storage.log.log import Log
from tubeq_spark.storage.log.next_version import NextVersion
from tubeq_spark.storage.native.engine import NativeEngine
from tubeq_spark.storage.store import object_store
from tubeq_spark.storage.store.bucket import _TOGETHER, Bucket, client_of
from tubeq_spark.storage.store.object_store import ObjectStore
from tubeq_spark.storage.store.patience import Patience, plain
from tubeq_spark.storage.store.store import RequestError
from tubeq_spark.storage.store.store_options import RenewedOptions, place_of
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tubeq_spark import Task, Tube

pytest.importorskip("moto", reason="the emulated S3")
pytestmark = [pytest.mark.processes]

HOUR = 3600.0
#: Requests of a verb at most, where nobody else works.
MOST = {"put": 3, "take": 3, "ack": 1, "release": 3, "exchange of 20": 4}
DATA = r"PUT .*parquet$"


def opened(store: Store, place: str, **settings: Any) -> Queue:
    """A queue whose time stands still: nothing happens by itself."""
    queue = store.open(place, ManualClock(), **settings)
    end_heartbeat(queue)
    return queue


@pytest.fixture
def place(tmp_path: Path) -> str:
    return f"s3://bucket/{tmp_path.name}"


@pytest.fixture
def tube(store: Store, place: str) -> Iterator[Tube]:
    """A tube that was used: numbers and lease are there."""
    with opened(store, place) as queue:
        queue.cfg(ttr=FOR_EVER)
        yield used(queue.create_tube("work", "fifottl"))


@pytest.fixture
def rival(store: Store, place: str, tube: Tube) -> Iterator[Tube]:
    """The same tube in another process."""
    with opened(store, place) as queue:
        yield used(queue[tube.name])


def used(tube: Tube) -> Tube:
    tube.put("first")
    tube.ack(taken(tube))
    return tube


def requests(store: Store, act: Callable[[], Any], match: str = "") -> list[str]:
    """The requests of a verb, without what the background does."""
    store.requests()
    act()
    return [f"{line} {status}" for line, status in store.requests() if re.search(match, line)]


def stored(store: Store, place: str) -> list[str]:
    """The tasks as the library reads them."""
    table = DeltaTable(f"{place}/work", storage_options=store.options)
    rows = table.to_pyarrow_table().to_pylist()
    return sorted(row["data"].strip('"') + row["state"] for row in rows if row["data"])


def before_commit(monkeypatch: pytest.MonkeyPatch, act: Callable[[], Any], times: int = 1) -> None:
    """Let something happen right before the next commits to the tube."""
    put, left = ObjectStore.put_if_absent, [times]

    def beaten(files: ObjectStore, name: str, content: bytes, _needs: object = ()) -> str | None:
        if f"{files}".endswith("/work") and left[0]:
            left[0] -= 1
            acts, left[0] = left[0], 0
            act()
            left[0] = acts
        return put(files, name, content)

    monkeypatch.setattr(ObjectStore, "put_if_absent", beaten)


# -- how many -------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", MOST)
def test_verb_when_nobody_else_works_needs_few_requests_and_reads_nothing_back(
    store: Store, tube: Tube, verb: str
) -> None:
    given, act = VERBS[verb]
    before = given(tube)
    asked = requests(store, lambda: act(tube, before))
    assert len(asked) <= MOST[verb]
    assert [line for line in asked if line.startswith("GET") and not line.endswith("404")] == []


def test_look_when_nothing_is_there_asks_for_the_next_commit_only(store: Store, tube: Tube) -> None:
    asked = requests(store, lambda: tube.take(0), "/work/")
    # It looks for tasks, whether the tube was dropped, and when there may be a task.
    assert len(asked) <= 3
    assert {re.sub(r".*/", "", line) for line in asked} == {f"{4:020}.json 404"}


def test_take_when_another_process_has_put_reads_its_commit_and_its_file_by_one_request_each(
    store: Store, tube: Tube, rival: Tube
) -> None:
    tube.put("a")
    asked = requests(store, lambda: rival.take(0), "/work/")
    read = Counter(line.split()[1] for line in asked if line.endswith(" 200") and "GET" in line)
    assert sorted(read.values()) == [1, 1]
    assert len(asked) <= 5


def test_take_arrow_when_there_are_many_files_reads_them_together(
    store: Store, place: str, tube: Tube
) -> None:
    files = 40
    filled(tube, 10 * files, files)
    with opened(store, place) as queue:
        other = queue[tube.name]
        used(queue.create_tube("other"))
        tables_of(other).version(other._ctx.table.name)
        store.delay(0.05)
        store.requests()
        try:
            assert other.take_arrow(10 * files).count == 10 * files
            everything, in_sequence = store.rounds()
        finally:
            store.delay(0.0)
    assert everything <= files + 6
    assert in_sequence <= 15


def test_opening_when_there_is_a_checkpoint_reads_it_and_what_follows(
    store: Store, place: str, tube: Tube
) -> None:
    for letter in "abc":
        tube.put(letter)
    table = DeltaTable(f"{place}/work", storage_options=store.options)
    table.create_checkpoint()
    tube.put("d")
    engine = NativeEngine(store.options)
    try:
        asked = requests(store, lambda: engine.tables.version(path_table(f"{place}/work")))
    finally:
        engine.close()
    assert len(asked) == 4
    assert store.requests() == []


def test_opening_when_the_committer_is_not_named_reads_the_registry_once(
    store: Store, place: str, tube: Tube
) -> None:
    def opening(engine: str) -> list[str]:
        def look() -> None:
            with Queue(None, place, engine=engine, storage_options=store.options) as queue:
                assert queue.tubes() == [tube.name]

        return requests(store, look, "/_tubeq_tubes/")

    named, found = opening("native"), opening("auto")
    # It looks once more for a newer commit.
    assert len(found) <= len(named) + 1
    assert sum(line.endswith(" 200") for line in found) == 3


def test_file_when_it_is_large_is_read_in_the_parts_that_are_needed(
    store: Store, place: str, tube: Tube
) -> None:
    count = 40_000
    rows = pa.table({"data": [f'"{os.urandom(150).hex()}"' for _ in range(count)]})
    tube.put_arrow(rows)
    with opened(store, place) as queue:
        other = queue[tube.name]
        query = select(path_table(f"{place}/work"), "task_id", order=["task_id"])
        engine = queue._context.engine
        store.requests()
        assert len(engine.rows(query)) == count
        assert len([line for line, _ in store.requests() if line.endswith("parquet")]) <= 3
        batch = other.take_arrow(count)
        assert set(batch.table.column("data").to_pylist()) == set(rows.column("data").to_pylist())


# -- rivals ---------------------------------------------------------------------------------------


def test_put_when_rivals_commit_first_keeps_its_file_and_takes_the_next_version(
    store: Store, place: str, tube: Tube, rival: Tube, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_commit(monkeypatch, lambda: rival.put("z"), times=3)
    asked = requests(store, lambda: tube.put("a"), "/work/")
    # One file each, and of the four commits that fail the one that was asked for each.
    assert len([line for line in asked if re.search(DATA, line.rsplit(" ", 1)[0])]) == 4
    assert stored(store, place) == ["ar", "zr", "zr", "zr"]


def test_put_when_it_has_lost_once_asks_for_the_next_rival_together_with_its_commit(
    tube: Tube, rival: Tube, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    ask_ahead = NextVersion.ask_ahead

    def told(commit: NextVersion) -> None:
        asked.append(commit.version)
        ask_ahead(commit)

    monkeypatch.setattr(NextVersion, "ask_ahead", told)
    before_commit(monkeypatch, lambda: rival.put("b"), times=3)
    tube.put("a")

    # The first PUT is alone: nothing has told of rivals before.
    first = asked[0]
    assert asked == [first, first + 1, first + 2]
    assert len(tube.take_many(9)) == 4


def test_take_when_a_rival_puts_first_keeps_its_file(
    store: Store, place: str, tube: Tube, rival: Tube, monkeypatch: pytest.MonkeyPatch
) -> None:
    tube.put("a")
    before_commit(monkeypatch, lambda: rival.put("z"))
    asked = requests(store, lambda: tube.take(0), "/work/")
    assert len([line for line in asked if re.search(DATA, line.rsplit(" ", 1)[0])]) == 2
    assert stored(store, place) == ["at", "zr"]


def test_take_when_a_rival_takes_the_same_task_first_takes_the_next_one(
    store: Store, place: str, tube: Tube, rival: Tube, monkeypatch: pytest.MonkeyPatch
) -> None:
    tube.put("a")
    tube.put("b")
    theirs = list[Any]()
    before_commit(monkeypatch, lambda: theirs.append(rival.take(0)))
    mine = tube.take(0)
    assert mine is not None
    assert (theirs[0].data, mine.data) == ("a", "b")
    assert stored(store, place) == ["at", "bt"]


def test_ack_when_a_rival_acks_first_counts_both(
    store: Store, place: str, tube: Tube, rival: Tube, monkeypatch: pytest.MonkeyPatch
) -> None:
    tube.put("a")
    tube.put("b")
    mine, theirs = taken(tube), taken(rival)
    before_commit(monkeypatch, lambda: rival.ack(theirs))
    asked = requests(store, lambda: tube.ack(mine), COMMIT)
    # The rival's ack is the first. The ack does not look before: the rival's take and ack cost a PUT each.
    assert [line.split()[-1] for line in asked] == ["200", "412", "412", "200"]
    assert stored(store, place) == []
    with opened(store, place) as queue:
        assert queue.statistics("work")["tasks"]["done"] == 4


def test_ack_when_its_task_was_taken_away_meanwhile_looks_again_and_changes_nothing(
    store: Store, place: str, tube: Tube, rival: Tube
) -> None:
    tube.put("a")
    task = tube.take(0)
    assert task is not None
    # The rival ends the task by its id, which the known version still has.
    rival.delete(task.task_id)
    with pytest.raises(NotTakenError):
        tube.ack(task.task_id)
    assert stored(store, place) == []
    with opened(store, place) as queue:
        assert queue.statistics("work")["tasks"]["total"] == 0


def filled_segments(tube: Tube, *priorities: int) -> None:
    """Segments of ten tasks, each of one priority, which the tasks have as data."""
    for pri in priorities:
        tube.put_many([str(pri)] * 10, pri=pri)


def stored_tasks(tube: Tube) -> list[Task]:
    """The tasks that wait, in their order."""
    return list(tube.tasks_by_state("r"))


def takes_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on a session that has met rivals takes from the last segment that it may."""
    monkeypatch.setattr(takes, "_hash", lambda _who, segment: segment)


def test_take_when_a_rival_came_first_takes_from_a_segment_of_its_own_until_no_rival_comes(
    store: Store, tube: Tube, rival: Tube, monkeypatch: pytest.MonkeyPatch
) -> None:
    takes_apart(monkeypatch)
    filled_segments(tube, 0, 0, 0)
    ids = [task.task_id for task in stored_tasks(tube)]
    before_commit(monkeypatch, lambda: rival.take(0))
    # The rival has the first task, and there is one segment for it and one for this take.
    assert tube.take_many(1)[0].task_id == ids[10]
    # Nothing that was read or written for these is lost to the rival's next take.
    before_commit(monkeypatch, lambda: rival.take(0))
    asked = requests(store, lambda: tube.take(0), "/work/.*parquet")
    assert len([line for line in asked if line.startswith("PUT")]) == 4
    # Four commits without a rival: strict order again.
    for _ in range(4):
        tube.put("last", pri=9)
    assert tube.take_many(1)[0].task_id == ids[2]


def test_take_when_rivals_come_first_leaves_no_higher_priority_for_a_lower_one(
    tube: Tube, rival: Tube, monkeypatch: pytest.MonkeyPatch
) -> None:
    takes_apart(monkeypatch)
    filled_segments(tube, 1, 0, 2)
    got: list[str] = []

    def come_first() -> None:
        got.extend(task.data for task in rival.take_many(3))

    while True:
        before_commit(monkeypatch, come_first)
        mine = tube.take_many(4)
        if not mine:
            break
        got += [task.data for task in mine]
    assert got == sorted(got)
    assert len(got) == 30


def test_take_when_its_own_segment_has_too_few_tasks_takes_the_first(
    tube: Tube, rival: Tube, monkeypatch: pytest.MonkeyPatch
) -> None:
    takes_apart(monkeypatch)
    filled_segments(tube, 0, 0)
    ids = [task.task_id for task in stored_tasks(tube)]
    before_commit(monkeypatch, lambda: rival.take(0))
    assert tube.take_many(1)[0].task_id == ids[10]
    assert [task.task_id for task in tube.take_many(12)] == [*ids[1:10], *ids[11:14]]


def test_exchange_when_a_rival_came_first_acks_and_takes_from_a_segment_of_its_own(
    store: Store, place: str, tube: Tube, rival: Tube, monkeypatch: pytest.MonkeyPatch
) -> None:
    takes_apart(monkeypatch)
    filled_segments(tube, 0, 0)
    ids = [task.task_id for task in stored_tasks(tube)]
    before_commit(monkeypatch, lambda: rival.take(0))
    held = taken(tube)
    assert [task.task_id for task in tube.exchange(ack=[held], take=2)] == ids[11:13]
    assert len(stored(store, place)) == 19


def test_two_threads_when_they_put_and_take_at_once_lose_nothing(
    store: Store, place: str, tube: Tube, rival: Tube
) -> None:
    got: list[str] = []

    def work(mine: Tube, name: str) -> None:
        for number in range(8):
            mine.put(f"{name}{number}")
            task = mine.take(0)
            if task is not None:
                got.append(task.data)
                mine.ack(task.task_id)

    threads = [
        threading.Thread(target=work, args=(each, name))
        for each, name in ((tube, "a"), (rival, "b"))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    left = [task[:-1] for task in stored(store, place)]
    wanted = {f"{name}{number}" for name in "ab" for number in range(8)}
    assert sorted([*got, *left]) == sorted(wanted)


# -- a commit that comes late ---------------------------------------------------------------------


def grow(rival: Tube) -> None:
    """Let a rival commit so much that what is old is removed from the log."""
    for _ in range(4):
        rival.put("z")
        rival.ack(taken(rival))
    background(rival).wait()


def grow_old(store: Store, rival: Tube, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let three hours pass in which a rival commits so much that the old log is removed."""
    grow(rival)
    pass_hours(store, monkeypatch)
    grow(rival)


def background(tube: Tube) -> Background:
    """What works after the verbs of a process."""
    found: Background = tube._ctx.queue.engine._handles._background  # type: ignore[attr-defined]
    return found


def tidying_of(tube: Tube) -> tidying.Tidying:
    """What keeps the log of a tube short."""
    handles: Any = tube._ctx.queue.engine._handles  # type: ignore[attr-defined]
    found: tidying.Tidying = handles.table(tube._ctx.table.name).tidying
    return found


def pass_hours(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let three hours pass."""
    now = Log._seconds_now
    store.make_older(3 * HOUR)
    monkeypatch.setattr(Log, "_seconds_now", lambda log: now(log) + 3 * HOUR)


def after_commit(monkeypatch: pytest.MonkeyPatch, act: Callable[[], Any]) -> None:
    """Let something happen right after the next commit to the tube, before its answer is read."""
    put = ObjectStore.put_if_absent

    def paused(files: ObjectStore, name: str, content: bytes, _needs: object = ()) -> str | None:
        tag = put(files, name, content)
        if f"{files}".endswith("/work"):
            monkeypatch.setattr(ObjectStore, "put_if_absent", put)
            act()
        return tag

    monkeypatch.setattr(ObjectStore, "put_if_absent", paused)


def tables_of(tube: Tube) -> Any:
    """The tables of a tube's engine."""
    return tube._ctx.queue.engine.tables


def version_of(tube: Tube) -> int:
    """The newest version of a tube."""
    return tables_of(tube).version(tube._ctx.table.name) or 0


def cut_short(monkeypatch: pytest.MonkeyPatch, kept: Sequence[int]) -> None:
    """From now on the commits of some versions are not removed with the others."""
    delete, names = ObjectStore.delete, tuple(f"/{version:020}.json" for version in kept)

    def all_but_these(files: ObjectStore, some: Sequence[str]) -> None:
        delete(files, [name for name in some if not name.endswith(names)])

    monkeypatch.setattr(ObjectStore, "delete", all_but_these)


def after_reading(
    monkeypatch: pytest.MonkeyPatch, method: str, match: str, act: Callable[[], Any]
) -> None:
    """Let something happen right after the next answer to a request about a key."""
    ask = getattr(ObjectStore, method)

    def paused(files: ObjectStore, name: str, *rest: Any, **more: Any) -> Any:
        found = ask(files, name, *rest, **more)
        if re.search(match, f"{files}/{name}"):
            monkeypatch.setattr(ObjectStore, method, ask)
            act()
        return found

    monkeypatch.setattr(ObjectStore, method, paused)


@pytest.fixture
def short_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints after each few commits."""
    monkeypatch.setattr(tidying, "EVERY", 4)


@pytest.mark.usefixtures("short_logs")
def test_put_when_it_was_paused_until_its_version_is_removed_begins_anew(
    store: Store, place: str, tube: Tube, rival: Tube, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = f"{place}/work/_delta_log/".removeprefix("s3://bucket/")
    before_commit(monkeypatch, lambda: grow_old(store, rival, monkeypatch))
    tube.put("a")
    assert stored(store, place) == ["ar"]
    versions = sorted(
        int(key[-25:-5]) for key in store.keys(log) if re.search(r"\d{20}.json$", key)
    )
    assert versions == list(range(versions[0], versions[0] + len(versions)))
    assert versions[0] > 8
    rival.put("b")
    assert stored(store, place) == ["ar", "br"]


@pytest.mark.usefixtures("short_logs")
def test_new_property_when_its_commit_was_paused_until_its_version_is_removed_is_not_sent(
    store: Store, place: str, tube: Tube, rival: Tube, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_commit(monkeypatch, lambda: grow_old(store, rival, monkeypatch))

    tables_of(tube).set_property(tube._ctx.table.name, "tubeq.late", "1")

    log = f"{place}/work/_delta_log/".removeprefix("s3://bucket/")
    versions = sorted(
        int(key[-25:-5]) for key in store.keys(log) if re.search(r"\d{20}.json$", key)
    )
    assert versions == list(range(versions[0], versions[0] + len(versions)))
    assert versions[0] > 8
    tube.put("a")
    assert rival.take(0) is not None


@pytest.mark.usefixtures("short_logs")
def test_put_when_it_was_paused_and_its_answer_is_lost_says_that_nobody_knows(
    store: Store, tube: Tube, rival: Tube, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late() -> None:
        grow_old(store, rival, monkeypatch)
        store.lose(COMMIT.replace(".*", ".*/work"), kept=False)

    before_commit(monkeypatch, late)
    with pytest.raises(CommitUnknownError):
        tube.put("a")
    store.answer()


@pytest.mark.usefixtures("short_logs")
def test_put_when_it_was_paused_after_its_commit_until_that_is_removed_says_that_nobody_knows(
    store: Store, place: str, tube: Tube, rival: Tube, monkeypatch: pytest.MonkeyPatch
) -> None:
    after_commit(monkeypatch, lambda: grow_old(store, rival, monkeypatch))
    with pytest.raises(CommitUnknownError):
        tube.put("a", pri=9)
    assert stored(store, place) == ["ar"]


@pytest.mark.usefixtures("short_logs")
@pytest.mark.parametrize("verb", ["put", "take", "ack"])
def test_verb_when_it_was_paused_after_its_commit_until_the_one_before_is_removed_is_done_once(
    store: Store, place: str, tube: Tube, rival: Tube, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    given, act, after = {
        "put": (lambda: None, lambda _: tube.put("b", pri=9), ["br"]),
        "take": (lambda: tube.put("b"), lambda _: tube.take(0), ["bt"]),
        "ack": (lambda: (tube.put("b"), taken(tube))[1], tube.ack, []),
    }[verb]
    before = given()
    # The log until here is older than it is kept when the rest of it is not.
    store.make_older(3 * HOUR)

    def come_after() -> None:
        # Nobody could tell which of two commits of the same second came first.
        store.make_older(10)
        grow(rival)
        now = Log._seconds_now
        monkeypatch.setattr(Log, "_seconds_now", lambda log: now(log) + HOUR)

    after_commit(monkeypatch, come_after)
    act(before)
    assert stored(store, place) == after


@pytest.mark.usefixtures("short_logs")
def test_put_when_a_removal_of_the_old_log_was_cut_short_is_not_among_what_is_removed(
    store: Store, place: str, tube: Tube, rival: Tube, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_short(monkeypatch, [version_of(tube)])
    grow_old(store, rival, monkeypatch)
    tube.put("a")
    assert stored(store, place) == ["ar"]


@pytest.mark.usefixtures("short_logs")
def test_put_when_it_was_paused_until_its_version_alone_is_removed_begins_anew(
    store: Store, place: str, tube: Tube, rival: Tube, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = version_of(tube)
    cut_short(monkeypatch, [known, known + 2])
    before_commit(monkeypatch, lambda: grow_old(store, rival, monkeypatch))
    tube.put("a")
    assert stored(store, place) == ["ar"]


@pytest.mark.usefixtures("short_logs")
def test_take_when_a_commit_came_too_late_between_what_was_left_of_the_log_does_not_see_it(
    store: Store, place: str, tube: Tube, rival: Tube, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, put, seen = version_of(tube), ObjectStore.put_if_absent, list[Any]()
    cut_short(monkeypatch, [known, *range(known + 2, known + 40)])

    def paused(files: ObjectStore, name: str, content: bytes, _needs: object = ()) -> str | None:
        if not f"{files}".endswith("/work"):
            return put(files, name, content)
        monkeypatch.setattr(ObjectStore, "put_if_absent", put)
        grow_old(store, rival, monkeypatch)
        tag = put(files, name, content)
        seen.append(tube.take(0))
        return tag

    with opened(store, place) as queue:
        late = queue[tube.name]
        monkeypatch.setattr(ObjectStore, "put_if_absent", paused)
        late.put("a")
    assert seen == [None]
    assert stored(store, place) == ["ar"]


@pytest.mark.usefixtures("short_logs")
@pytest.mark.parametrize("is_new", [False, True])
def test_put_when_the_old_log_is_removed_while_it_is_read_is_not_among_what_is_removed(
    store: Store,
    place: str,
    tube: Tube,
    rival: Tube,
    monkeypatch: pytest.MonkeyPatch,
    is_new: bool,
) -> None:
    rival.put("z")
    pass_hours(store, monkeypatch)
    with opened(store, place) as queue:
        used(queue.create_tube("other"))
        last = r"/work/_delta_log/\d*\.checkpoint\.parquet$"
        reading = ("get", last) if is_new else ("list", "/work/_delta_log$")
        after_reading(monkeypatch, *reading, lambda: grow(rival))
        (queue[tube.name] if is_new else tube).put("a", pri=9)
    assert "ar" in stored(store, place)


@pytest.mark.usefixtures("short_logs")
def test_put_when_the_old_log_is_removed_after_a_rival_came_first_is_not_among_what_is_removed(
    store: Store, place: str, tube: Tube, rival: Tube, monkeypatch: pytest.MonkeyPatch
) -> None:
    def come_first() -> None:
        for _ in range(3):
            rival.put("z")
        background(rival).wait()
        pass_hours(store, monkeypatch)

    acts: list[Callable[[], None]] = [lambda: grow(rival), come_first]

    def act() -> None:
        acts.pop()()

    before_commit(monkeypatch, act, times=2)
    tube.put("a", pri=9)
    assert "ar" in stored(store, place)


@pytest.mark.parametrize("verb", ["put", "take"])
def test_verb_when_it_was_paused_until_another_tool_has_removed_its_file_writes_it_again(
    store: Store, place: str, tube: Tube, rival: Tube, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    rival.put("b")

    def vacuum() -> None:
        pass_hours(store, monkeypatch)
        table = DeltaTable(f"{place}/work", storage_options=store.options)
        table.vacuum(2, dry_run=False, full=True)

    after_reading(monkeypatch, "put", r"/work/segment=.*parquet$", vacuum)
    if verb == "put":
        tube.put("a")
        assert stored(store, place) == ["ar", "br"]
    else:
        assert taken(tube)
        assert stored(store, place) == ["bt"]


def test_table_when_it_was_made_anew_at_the_same_place_is_read_anew(
    store: Store, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = f"{place}/plain"
    rows = pa.table({"a": [1, 2]})
    for _ in range(3):
        write_deltalake(uri, rows, mode="append", storage_options=store.options)
    engine = NativeEngine(store.options)
    assert engine.rows(counted(path_table(uri))) == [{"n": 6}]
    with store.client() as client:
        for key in store.keys(uri.removeprefix("s3://bucket/")):
            client.delete_object(Bucket="bucket", Key=key)
    write_deltalake(uri, rows, storage_options=store.options)
    monkeypatch.setattr(Log, "_is_sure", lambda *_: False)
    assert engine.rows(counted(path_table(uri))) == [{"n": 2}]
    engine.close()


# -- in the background ----------------------------------------------------------------------------


@pytest.mark.usefixtures("short_logs")
def test_checkpoint_when_it_is_due_is_written_after_the_answer(
    store: Store, place: str, tube: Tube, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = list[Any]()
    monkeypatch.setattr(tidying_of(tube), "later", later.append)
    asked = [line for _ in range(4) for line in requests(store, lambda: tube.put("a"))]
    assert not [line for line in asked if ".checkpoint." in line or "_last_c" in line]
    (work,) = later
    work()
    log = f"{place}/work/_delta_log/".removeprefix("s3://bucket/")
    assert {f"{log}{4:020}.checkpoint.parquet", f"{log}_last_checkpoint"} <= store.keys(log)
    # Nothing that was committed here was read for it.
    assert not [line for line, _ in store.requests() if re.search(r"GET .*\.json$", line)]
    assert stored(store, place) == ["ar"] * 4


@pytest.mark.usefixtures("short_logs")
def test_checkpoint_when_it_is_too_early_for_one_does_not_read_the_last_one(
    store: Store, place: str, tube: Tube, monkeypatch: pytest.MonkeyPatch
) -> None:
    tube.put("a")
    background(tube).wait()
    log = f"{place}/work/_delta_log/".removeprefix("s3://bucket/")
    assert f"{log}{4:020}.checkpoint.parquet" in store.keys(log)
    monkeypatch.setattr(tidying, "_ACTIONS", 1)
    monkeypatch.setattr(tidying_of(tube), "later", at_once)
    for _ in range(3):
        tube.put("a")
    asked = requests(store, lambda: tube.put("a"), r"checkpoint\.parquet")
    assert [line.rsplit(" ", 1)[1] for line in asked] == ["206"]


@pytest.mark.usefixtures("short_logs")
def test_close_when_a_checkpoint_is_due_waits_for_it(store: Store, place: str) -> None:
    with opened(store, place) as queue:
        tube = queue.create_tube("work", "fifottl")
        for _ in range(4):
            tube.put("a")
    log = f"{place}/work/_delta_log/".removeprefix("s3://bucket/")
    assert f"{log}{4:020}.checkpoint.parquet" in store.keys(log)


# -- options --------------------------------------------------------------------------------------


def test_client_when_options_are_unknown_or_given_twice_is_made(store: Store) -> None:
    more = {"endpoint_url": store.url, "endpoint": store.url, "nonsense": "1", "max_retries": "2"}
    client = client_of("s3://bucket", store.options | more)
    assert client is not None


def test_client_when_all_is_in_the_environment_is_made_by_that(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (store.options | {"AWS_TIMEOUT": "200ms"}).items():
        monkeypatch.setenv(name.upper(), value)
    files = ObjectStore(Bucket("s3://bucket", RenewedOptions()), "of/the", Patience(0, 1.0))
    files.put("environment", b"x")
    assert files.get("environment")[0] == b"x"
    with store.losing("", kind="hang", kept=False), pytest.raises(RequestError, match="timed out"):
        files.get("environment")


@pytest.mark.parametrize(
    ("path", "options"),
    [
        ("hdfs://host/queue", {}),
        ("s3://bucket/100%", {}),
        ("s3://bucket/queue", {"AWS_S3_LOCKING_PROVIDER": "dynamodb"}),
        ("s3://bucket/queue", {"conditional_put": "disabled"}),
    ],
)
def test_place_when_our_commits_are_not_safe_there_is_refused(
    path: str, options: dict[str, str]
) -> None:
    with pytest.raises(StoreError, match=r"Spark|conditional PUTs"):
        place_of(path, options)


def test_queue_when_its_credentials_are_those_of_a_profile_reads_them_by_boto3(
    store: Store, place: str, tube: Tube, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tube.put("a")
    (tmp_path / ".aws").mkdir()
    keys = "aws_access_key_id = k\naws_secret_access_key = s\n"
    (tmp_path / ".aws" / "credentials").write_text(f"[work]\n{keys}")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY", raising=False)
    secret = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}
    options = {name: value for name, value in store.options.items() if name not in secret}
    options |= {"AWS_PROFILE": "work"}
    with Queue(None, place, engine="native", storage_options=options) as queue:
        assert queue["work"].take(0) is not None
    monkeypatch.setitem(sys.modules, "obstore.auth.boto3", None)
    with pytest.raises(StoreError, match="pip install boto3"):
        Queue(None, place, engine="native", storage_options=options)


def test_place_of_all_stores_has_the_keys_below_its_bucket() -> None:
    key = {"access_key_id": "k"}
    assert place_of("s3a://bucket/a/b", key) == ("s3a://bucket", "a/b")
    assert place_of("abfss://c@a.dfs.core.windows.net/a", {}) == (
        "abfss://c@a.dfs.core.windows.net",
        "a",
    )
    assert place_of("gs://bucket/a/", {}) == ("gs://bucket", "a")
    assert plain("AWS_REGION") == "region"


def test_queue_when_the_store_ignores_conditions_is_not_made_and_health_says_so(
    store: Store, place: str
) -> None:
    with store.overwriting(), pytest.raises(StoreError, match="overwrites an object"):
        store.open(f"{place}/new")
    with opened(store, place) as queue:
        sound = queue.health().problems
        with store.overwriting():
            problems = queue.health().problems

    assert "storage" not in {problem.kind for problem in sound}
    assert [problem.kind for problem in problems if problem not in sound] == ["storage"]
    assert not store.keys(f"{place.removeprefix('s3://bucket/')}/new")
    assert not [key for key in store.keys("") if "probe" in key]


def test_new_property_when_its_commit_gets_no_answer_is_not_there_and_passes(
    store: Store, place: str
) -> None:
    moments = {"timeout": "300ms", "connect_timeout": "300ms", "retry_timeout": "500ms"}
    with opened(store, place, options=moments) as queue:
        tube = queue.create_tube("work")

        with (
            store.losing(r"^PUT .*/work/_delta_log/", kind="hang", times=None, kept=False),
            pytest.raises(StoreError, match="could not be changed") as told,
        ):
            tables_of(tube).set_property(tube._ctx.table.name, "tubeq.tried", "1")

        assert told.value.passes
        assert "tubeq.tried" not in tables_of(tube).properties(tube._ctx.table.name)
        assert tube.put("a") is not None


# -- looks and threads ------------------------------------------------------------------------------


def lists_without_quotes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Azure, whose listings have tags without the quotes that they have in headers."""
    pages = object_store.obstore.list

    def without(*arguments: Any, **options: Any) -> Iterator[Any]:
        for page in pages(*arguments, **options):
            yield [{**each, "e_tag": each["e_tag"].strip('"')} for each in page]

    monkeypatch.setattr(object_store.obstore, "list", without)


@pytest.mark.parametrize("as_listed", [lambda _: None, lists_without_quotes], ids=["S3", "Azure"])
def test_look_when_the_last_listing_was_a_minute_ago_lists_what_is_new_and_reads_nothing_again(
    store: Store, tube: Tube, monkeypatch: pytest.MonkeyPatch, as_listed: Callable[..., None]
) -> None:
    as_listed(monkeypatch)
    monkeypatch.setattr(Log, "_is_sure", lambda *_: False)
    assert requests(store, lambda: version_of(tube)) == ["GET /bucket 200"]


def test_look_asks_for_as_many_commits_as_one_of_the_last_has_found_and_one_more(
    store: Store, tube: Tube, rival: Tube, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(4):
        version_of(tube)
    before_commit(monkeypatch, lambda: rival.put("z"), times=3)
    tube.put("a")
    # That a commit gave way to others says nothing of looks. The request beside the last try of the put may arrive
    # only now; it finds our commit.
    asked = [sent for sent in requests(store, lambda: version_of(tube)) if sent.endswith(" 404")]
    assert len(asked) == 1
    for _ in range(3):
        rival.put("z")
    version_of(tube)
    assert len(requests(store, lambda: version_of(tube))) == 4


def test_read_when_it_began_after_commits_that_another_thread_lost_to_sees_all_of_them(
    tube: Tube, rival: Tube, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, put = tube._ctx.queue.engine, ObjectStore.put_if_absent
    seen = list[Any]()
    with ThreadPoolExecutor(1) as other, contextlib.ExitStack() as operation:

        def read(files: ObjectStore, name: str, content: bytes, _needs: object = ()) -> str | None:
            monkeypatch.setattr(ObjectStore, "put_if_absent", put)
            query = counted(tube._ctx.table.name)
            seen.extend(other.submit(engine.rows, query).result())
            return put(files, name, content)

        def beaten(
            files: ObjectStore, name: str, content: bytes, _needs: object = ()
        ) -> str | None:
            monkeypatch.setattr(ObjectStore, "put_if_absent", put)
            rival.put("y")
            rival.put("z")
            other.submit(operation.enter_context, engine.operating("take", None)).result()
            monkeypatch.setattr(ObjectStore, "put_if_absent", read)
            return put(files, name, content)

        monkeypatch.setattr(ObjectStore, "put_if_absent", beaten)
        tube.put("a")
        other.submit(operation.close).result()
    assert seen == [{"n": 2}]


def test_commit_that_is_asked_for_ahead_when_its_request_has_not_begun_is_not_asked_for(
    store: Store, place: str, tube: Tube
) -> None:
    bucket, free = Bucket("s3://bucket", RenewedOptions(store.options)), threading.Event()
    files = ObjectStore(bucket, f"{place.removeprefix('s3://bucket/')}/work", Patience(1, 1.0))
    ahead = NextVersion(files, version_of(tube))
    for _ in range(_TOGETHER):
        bucket.beside(free.wait)
    ahead.ask_ahead()
    store.requests()
    assert not ahead.is_rivals()
    free.set()
    last = bucket.beside(lambda: None)
    assert last is not None
    last.result()
    bucket._pool.shutdown()
    assert store.requests() == []


#: Takes what is there when its main thread has ended, in another one or at its exit.
LATE = """
import atexit, json, sys, threading
from tubeq_spark import Queue

queue = Queue(None, sys.argv[1], engine="native", storage_options=json.loads(sys.argv[2]))
tube = queue["work"]
tube.take(0)

def work():
    print("ended", flush=True)
    sys.stdin.readline()
    print(len(tube.take_many(9)), flush=True)

def work_after():
    threading.main_thread().join()
    work()

if sys.argv[3] == "thread":
    threading.Thread(target=work_after).start()
else:
    atexit.register(work)
"""


@pytest.mark.parametrize("where", ["thread", "exit"])
def test_take_when_the_main_thread_has_ended_reads_what_others_have_committed(
    store: Store, place: str, tube: Tube, where: str
) -> None:
    arguments = [place, json.dumps(store.options), where]
    with subprocess.Popen(
        [sys.executable, "-c", LATE, *arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        assert program.stdout.readline() == "ended\n"
        for letter in "abcdef":
            tube.put(letter)
        said, _ = program.communicate("\n", timeout=WAIT)
    assert said == "6\n"
