"""A location on S3 that Spark has made gets the native engine as its only committer: `Queue.upgrade`.

Spark is played by another native engine, with the steps of Delta's log store for DynamoDB: a commit is written
to `_delta_log/.tmp` and noted elsewhere first, and only the next read by Spark copies it into the log.
"""

from __future__ import annotations

import itertools
import json
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest
from typer.testing import CliRunner

from tests.thorough import thorough
from tubeq_spark import QueueState, StoreError, TubeBusyError
from tubeq_spark.admin import hand_over
from tubeq_spark.admin.engines import engines_of
from tubeq_spark.cli import ahead
from tubeq_spark.cli.app import app
from tubeq_spark.cli.call import Outside
from tubeq_spark.storage import opened_location
from tubeq_spark.storage.location import name_of, path_of
from tubeq_spark.storage.native import open_location
from tubeq_spark.storage.native.engine import NativeEngine
from tubeq_spark.storage.native.tables import NativeTables
from tubeq_spark.storage.opened_location import Permission
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.concurrency.s3_store import Store
    from tubeq_spark import Queue
    from tubeq_spark.storage.engine import Tables

pytest.importorskip("moto", reason="the emulated S3")
pytestmark = [pytest.mark.processes]

#: The commit of the mark.
MARK = r"^PUT .*/_tubeq_tubes/_delta_log/\d{20}\.json$"


class StoppedError(Exception):
    """The process is stopped here."""


class PlayedTables(NativeTables):
    """Tables as Spark sees them, with a log store that notes commits elsewhere first."""

    def __init__(self, client: Any, noted: dict[str, str], tables: NativeTables) -> None:
        super().__init__(tables._handles)
        self._client, self._noted = client, noted
        #: Called after each commit to a table itself.
        self.committed: Callable[[str], object] = lambda _: None
        #: Whether the next commits to tables themselves are only noted.
        self.only_notes = False

    def last_commit(self, table: str) -> tuple[int, int]:
        self._finish(table)
        return super().last_commit(table)

    def set_property(self, table: str, name: str, value: str) -> bool:
        self._finish(table)
        done = super().set_property(table, name, value)
        if self.only_notes:
            self.take_out(table)
        self.committed(name_of(table))
        return done

    def take_out(self, table: str) -> None:
        """Make the newest commit to a table one that is only noted."""
        log = f"{(path_of(table) or '').removeprefix('s3://bucket/')}/_delta_log"
        newest = max(key for key in keys_below(self._client, log) if key.endswith(".json"))
        there = f"{log}/.tmp/{newest.rsplit('/', 1)[1]}.0a1b"
        self._move(newest, there)
        self._client.delete_object(Bucket="bucket", Key=newest)
        self._noted[table] = there

    def _finish(self, table: str) -> None:
        there = self._noted.pop(table, None)
        if there is not None:
            self._move(there, there.replace("/.tmp/", "/").removesuffix(".0a1b"))

    def _move(self, key: str, to: str) -> None:
        self._client.copy_object(Bucket="bucket", Key=to, CopySource=f"bucket/{key}")


def keys_below(client: Any, prefix: str) -> list[str]:
    listed = client.list_objects_v2(Bucket="bucket", Prefix=prefix)
    return [each["Key"] for each in listed["Contents"]]


class Place:
    """A location that Spark has made."""

    def __init__(self, store: Store, client: Any, name: str, patch: pytest.MonkeyPatch) -> None:
        self._client, self.clock = client, ManualClock()
        #: Where commits are noted first, by their tables.
        self.noted: dict[str, str] = {}
        self.store, self.location, self._patch = store, f"s3://bucket/{name}", patch
        self.finishes = True
        patch.setattr(
            hand_over,
            "native_beside",
            lambda _, opened: engines_of(None, opened.location, "native", store.options),
        )
        patch.setattr(hand_over, "finishes", lambda *_: self.finishes)

    @contextmanager
    def spark(
        self, *, is_asked_for: bool = False, **settings: Any
    ) -> Iterator[tuple[Queue, PlayedTables]]:
        """A queue object as of a program with a session."""
        with self._patch.context() as patched:
            for module in (open_location, opened_location):
                patched.setattr(module, "allows_one_engine_only", lambda _: False)
            queue = self.store.open(self.location, **settings)
        engine: Any = queue._engines.rows
        engine._admin = tables = PlayedTables(self._client, self.noted, engine.tables)
        queue._engines = replace(queue._engines, name="spark", is_asked_for=is_asked_for)
        queue._context.loop._permission = Permission(tables, queue._opened, "spark", self.clock)
        with queue:
            yield queue, tables

    def native_tables(self) -> Tables:
        """The tables as the native engine sees them."""
        return NativeEngine(self.store.options).tables

    def native(self) -> Queue:
        return self.store.open(self.location)

    def require_sparks(self) -> None:
        """It is Spark's, and the native engine says what helps."""
        with pytest.raises(StoreError, match="run `tubeq upgrade` with a Spark session"):
            self.native()

    def commits(self) -> set[str]:
        return {
            key
            for key in keys_below(self._client, self.location.removeprefix("s3://bucket/"))
            if key.endswith(".json") and "/_delta_log/" in key
        }


@pytest.fixture(scope="module")
def client(store: Store) -> Iterator[Any]:
    with store.client() as found:
        yield found


@pytest.fixture(scope="module")
def made(store: Store, client: Any) -> list[str]:
    """The keys of a location with a tube and a task."""
    with pytest.MonkeyPatch.context() as patched:
        found = Place(store, client, "made", patched)
        with found.spark() as (queue, _):
            tube = queue.create_tube("work", "fifottl")
            tube.upgrade()
            tube.put("first")
    return keys_below(client, "made/")


@pytest.fixture
def place(
    store: Store, client: Any, made: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Place:
    """A copy of that."""
    found = Place(store, client, tmp_path.name, monkeypatch)
    for key in made:
        to = f"{tmp_path.name}/{key.removeprefix('made/')}"
        client.copy_object(Bucket="bucket", Key=to, CopySource=f"bucket/{key}")
    return found


def after_mark(patched: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Act after the commit of the mark."""
    set_property = NativeTables.set_property

    def marked(tables: NativeTables, table: str, name: str, value: str) -> bool:
        done = set_property(tables, table, name, value)
        if name == opened_location.WRITERS:
            act()
        return done

    patched.setattr(NativeTables, "set_property", marked)


def drained(place: Place) -> list[Any]:
    """What the native engine takes and acks."""
    with place.native() as queue:
        assert queue.engine == "native"
        tasks = queue["work"].take_many(100)
        queue["work"].ack_many([task.task_id for task in tasks])
        return [task.data for task in tasks]


def test_upgrade_when_spark_has_a_commit_unfinished_finishes_it_and_lets_native_in(
    place: Place,
) -> None:
    with place.spark() as (queue, tables):
        queue["work"].put("second")
        queue.create_tube("gone").drop()
        queue.create_tube("old")
        tables.take_out(queue["work"]._current.ctx.table.name)
        place.require_sparks()

        # The commits of the upgrade are only noted at first, too.
        tables.only_notes = True
        assert queue.upgrade() == ["old"]

        with pytest.raises(StoreError, match="belongs to engine='native'"):
            queue["work"].put("late")
    assert drained(place) == ["first", "second"]
    before = place.commits()
    with place.native() as queue:
        assert queue.upgrade() == []
    assert place.commits() == before


@pytest.mark.thorough
def test_upgrade_when_it_is_stopped_after_any_commit_leaves_the_location_to_one_engine(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, stopped_after = ["first"], []
    for stop in itertools.count():
        steps: list[str] = []

        def stop_at(table: str, stop: int = stop, steps: list[str] = steps) -> None:
            steps.append(table)
            if len(steps) > stop:
                raise StoppedError

        with place.spark() as (queue, tables), monkeypatch.context() as patched:
            after_mark(patched, lambda: stop_at("the mark"))
            tables.committed, tables.only_notes = stop_at, True
            with suppress(StoppedError):
                queue.upgrade()
        stopped_after.append(steps[-1])
        if steps[-1] == "the mark":
            break
        place.require_sparks()
        with place.spark() as (queue, tables):
            # What the stopped one has noted is finished by whoever reads with the log store.
            for table in tuple(place.noted):
                tables.last_commit(table)
            queue["work"].put(f"after {stop}")
            expected.append(f"after {stop}")

    assert stopped_after == [
        "work",
        "_tubeq_sessions",
        "_tubeq_tubes",
        "the mark",
    ]
    assert drained(place) == expected


@pytest.mark.parametrize(
    "how",
    [
        {"kind": "reset"},
        pytest.param({"kind": "reset", "kept": False}, marks=pytest.mark.thorough),
        pytest.param({"kind": "403", "dark": True}, marks=pytest.mark.thorough),
    ],
    ids=str,
)
def test_upgrade_when_the_answer_to_the_mark_is_lost_is_finished_by_it_or_the_next_call(
    place: Place, how: dict[str, Any]
) -> None:
    options = {"timeout": "1s", "retry_timeout": "1s"}
    with place.spark(options=options) as (queue, tables):

        def lose(table: str) -> None:
            if table == "_tubeq_tubes":
                place.store.lose(MARK, **how)

        tables.committed = lose
        try:
            with suppress(StoreError):
                queue.upgrade()
        finally:
            place.store.answer()
    with suppress(StoreError), place.spark() as (queue, _):
        queue.upgrade()
    assert drained(place) == ["first"]


@pytest.mark.thorough
def test_upgrade_when_the_answer_to_the_mark_stays_unknown_refuses_commits_of_the_same_queue_object(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop() -> None:
        raise StoppedError

    with place.spark() as (queue, _), monkeypatch.context() as patched:
        after_mark(patched, stop)
        with pytest.raises(StoppedError):
            queue.upgrade()
        with pytest.raises(StoreError, match="belongs to engine='native'"):
            queue["work"].put("late")


def test_upgrade_when_a_session_is_alive_names_it_and_upgrades_only_the_tubes(
    place: Place,
) -> None:
    with place.spark() as (other, _), place.spark() as (queue, _):
        queue.create_tube("old")
        assert other["work"].take(0) is not None
        (alive,) = other.sessions()

        said = (
            rf"^the tubes are upgraded, but .* stays Spark's: .*{alive.uuid} \(.* pid {alive.pid}\)"
        )
        with pytest.raises(TubeBusyError, match=said):
            queue.upgrade()

        before = place.commits()
        with pytest.raises(TubeBusyError, match=said):
            queue.upgrade()
        assert place.commits() == before
        assert queue["old"]._current.ctx.table.optional
    place.require_sparks()


def test_upgrade_when_spark_was_asked_for_upgrades_only_the_tubes(place: Place) -> None:
    with place.spark(is_asked_for=True) as (queue, _):
        queue.create_tube("old")
        assert queue.upgrade() == ["old"]
        before = place.commits()
        assert queue.upgrade() == []
        assert place.commits() == before
    place.require_sparks()


@pytest.mark.thorough
def test_upgrade_when_the_native_engine_does_not_reach_the_location_upgrades_the_tubes(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def native_beside(*_: object) -> None:
        msg = "no library"
        raise StoreError(msg)

    monkeypatch.setattr(hand_over, "native_beside", native_beside)
    with place.spark() as (queue, _):
        queue.create_tube("old")
        with pytest.raises(StoreError, match=r"^the tubes are upgraded, but .*: no library$"):
            queue.upgrade()
        assert queue["old"]._current.ctx.table.optional


@pytest.mark.thorough
def test_upgrade_when_its_own_queue_object_holds_a_task_gives_it_back(place: Place) -> None:
    with place.spark() as (queue, _):
        assert queue["work"].take(0) is not None
        queue.upgrade()
    assert drained(place) == ["first"]


@pytest.mark.parametrize("table", ["work", *thorough("_tubeq_tubes")])
def test_upgrade_when_another_program_commits_meanwhile_is_refused(
    place: Place, table: str
) -> None:
    with place.spark() as (other, _), place.spark() as (queue, tables):
        work = other["work"]

        def commit(finished: str) -> None:
            if finished == "_tubeq_tubes":
                work.put("meanwhile") if table == "work" else work.pause()

        tables.committed = commit
        with pytest.raises(TubeBusyError, match=f"commit to .*{table}: stop all programs"):
            queue.upgrade()
    place.require_sparks()


@pytest.mark.thorough
def test_upgrade_when_another_program_commits_at_the_moment_of_the_mark_says_so(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with place.spark() as (other, _), place.spark() as (queue, _):
        work = other["work"]
        with monkeypatch.context() as patched:
            after_mark(patched, lambda: work.put("late"))
            with pytest.raises(StoreError, match="was not stopped committed to .*work"):  # noqa: RUF043
                queue.upgrade()

        place.clock.advance(4)
        with pytest.raises(StoreError, match="belongs to engine='native'"):
            work.put("later")


def test_close_of_a_program_when_its_lease_ended_before_the_hand_over_leaves_its_task_to_native(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    with place.spark(clock=clock) as (other, _):
        other["work"].put("second")
        assert other["work"].take(0) is not None
        clock.advance(3600)
        with place.spark(clock=clock) as (queue, _):
            queue.upgrade()
        place.clock.advance(4)
        caplog.clear()
    assert other.state() is QueueState.WAITING
    left = "left behind until the session's lease ends: what was taken from work"
    assert [record.getMessage() for record in caplog.records] == [left]
    assert {*drained(place)} == {"first", "second"}


@pytest.mark.thorough
def test_upgrade_when_another_program_has_only_noted_a_commit_at_the_moment_of_the_mark_says_so(
    place: Place, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with place.spark() as (queue, tables), monkeypatch.context() as patched:
        table = queue["work"]._current.ctx.table.name
        log = f"{(path_of(table) or '').removeprefix('s3://bucket/')}/_delta_log"

        def note() -> None:
            version = tables.version(table) or 0
            client.put_object(
                Bucket="bucket", Key=f"{log}/.tmp/{version + 1:020}.json.0a1b", Body=b"{}"
            )

        after_mark(patched, note)
        with pytest.raises(StoreError, match="was not stopped committed to work "):
            queue.upgrade()


@pytest.mark.thorough
def test_upgrade_when_the_session_lacks_the_log_store_is_refused_only_if_a_commit_is_unfinished(
    place: Place,
) -> None:
    place.finishes = False
    with place.spark() as (queue, tables):
        name = queue["work"]._current.ctx.table.name
        tables.take_out(name)
        noted = place.noted.pop(name)
        before = place.commits()
        with pytest.raises(StoreError, match=r"of work was begun and is not in its log"):
            hand_over.HandOver(
                queue._context,
                queue._opened,
                queue._registry,
                place.native_tables(),
                finishes=False,
            )._finish(name)
        assert place.commits() == before
        place.noted[name] = noted
        tables.last_commit(name)
        queue.upgrade()
    assert drained(place) == ["first"]


def test_upgrade_when_a_tube_has_a_feed_of_changes_leaves_the_location_to_spark(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with place.spark() as (queue, _):
        record = queue._registry.find("work")
        assert record is not None
        fed = replace(record, options=replace(record.options, change_feed=True))
        monkeypatch.setattr(queue._registry, "records", lambda: [fed])
        before = place.commits()
        with pytest.raises(StoreError, match=r"feed of changes \(work\)"):
            queue.upgrade()
        assert place.commits() == before


def test_upgrade_when_native_cannot_write_a_table_is_refused_before_the_hand_over_begins(
    place: Place, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with place.spark() as (queue, _):
        table = queue["work"]._current.ctx.table.name
        log = f"{(path_of(table) or '').removeprefix('s3://bucket/')}/_delta_log"
        version = queue._context.engine.tables.version(table) or 0
        protocol = {
            "minReaderVersion": 1,
            "minWriterVersion": 7,
            "writerFeatures": ["clustering", "domainMetadata"],
        }
        client.put_object(
            Bucket="bucket",
            Key=f"{log}/{version + 1:020}.json",
            Body=f"{json.dumps({'protocol': protocol})}\n".encode(),
        )
        # Spark can write it.
        monkeypatch.setattr(queue, "_upgrade_tubes", list)
        before = place.commits()
        with pytest.raises(StoreError, match="features clustering, domainMetadata, as work: "):
            queue.upgrade()
        assert place.commits() == before
    place.require_sparks()


@pytest.mark.thorough
def test_upgrade_when_the_store_overwrites_is_refused(place: Place) -> None:
    with (
        place.spark() as (queue, _),
        place.store.overwriting(),
        pytest.raises(StoreError, match="overwrites an object"),
    ):
        queue.upgrade()
    place.require_sparks()


def test_tubeq_upgrade_when_the_location_is_sparks_tells_of_it_and_repeated_does_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def upgrade(queue: Queue) -> list[str]:
        engines: list[str] = []

        def opened(_spark: object, _location: str, *, engine: str, **_: Any) -> Queue:
            engines.append(engine)
            return queue

        monkeypatch.setattr(ahead, "QueueOfOneCall", opened)
        outside: Any = Outside(open_spark=lambda _: cast("Any", None))
        call = ["--location", place.location, "--engine", "auto", "upgrade"]
        done = CliRunner().invoke(app, call, obj=outside, prog_name="tubeq")
        assert (done.exit_code, engines) == (0, ["auto"]), done.stderr
        return [*done.stdout.splitlines(), *done.stderr.splitlines()]

    with place.spark() as (queue, _):
        assert upgrade(queue) == [
            f"upgraded {place.location}: the native engine makes all commits from now on"
        ]
    assert upgrade(place.native()) == ["tubeq: all tubes have the newest format"]
