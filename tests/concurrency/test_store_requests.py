"""Verbs need few requests of a real S3 client, and the client finds its options and the place of a queue.

`tests/simulation/costs.json` has the requests of many more verbs, on a store in memory.
"""

from __future__ import annotations

import json
import os
import re
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.concurrency.s3_store import Store, before_commit
from tests.concurrency.support import FOR_EVER, WAIT, end_heartbeat
from tests.programs import conversing
from tests.queries import counted, select
from tubeq_spark import Queue, StoreError
from tubeq_spark.storage.location import path_table
from tubeq_spark.storage.log import tidying
from tubeq_spark.storage.log.log import Log
from tubeq_spark.storage.native.engine import NativeEngine
from tubeq_spark.storage.store import object_store
from tubeq_spark.storage.store.object_store import Bucket, ObjectStore
from tubeq_spark.storage.store.store import Patience, RequestError
from tubeq_spark.storage.store.store_options import RenewedOptions, place_of
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tubeq_spark import Tube

pytestmark = [pytest.mark.processes]

HOUR = 3600.0
#: Verbs, given a task that is held, with the requests that they need at most where nobody else works.
VERBS: dict[str, tuple[Callable[[Tube, int], Any], int]] = {
    "put": (lambda tube, _: tube.put("a"), 3),
    "take": (lambda tube, _: tube.take(0), 3),
    "ack": (lambda tube, held: tube.ack(held), 1),
    "release": (lambda tube, held: tube.release(held), 3),
    "exchange": (lambda tube, held: tube.exchange(ack=[held], take=20), 4),
}
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


def taken(tube: Tube) -> int:
    """The id of a task that is taken."""
    (task,) = tube.take_many(1)
    return task.task_id


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


# -- how many -------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
def test_verb_when_nobody_else_works_needs_few_requests_and_reads_nothing_back(
    store: Store, tube: Tube, verb: str
) -> None:
    act, most = VERBS[verb]
    tube.put("a")
    held = taken(tube)
    tube.put("b")
    asked = requests(store, lambda: act(tube, held))
    assert len(asked) <= most
    assert [line for line in asked if line.startswith("GET") and not line.endswith("404")] == []


def test_take_arrow_when_there_are_many_files_reads_them_together(
    store: Store, place: str, tube: Tube
) -> None:
    files = 40
    for _ in range(files):
        tube.put_many(range(10))
    with opened(store, place) as queue:
        other = queue[tube.name]
        used(queue.create_tube("other"))
        version_of(other)
        store.delay(0.05)
        store.requests()
        try:
            assert other.take_arrow(10 * files).count == 10 * files
            everything, in_sequence = store.rounds()
        finally:
            store.delay(0.0)
    assert everything <= files + 6
    assert in_sequence <= 15


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


# -- a commit that comes late ---------------------------------------------------------------------


def handles_of(tube: Tube) -> Any:
    """What the tube's engine knows of its tables, and what works after its verbs."""
    return tube._ctx.queue.engine._handles  # type: ignore[attr-defined]


def version_of(tube: Tube) -> int:
    """The newest version of a tube."""
    return tube._ctx.queue.engine.tables.version(tube._ctx.table.name) or 0


def pass_hours(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let three hours pass."""
    now = Log._seconds_now
    store.make_older(3 * HOUR)
    monkeypatch.setattr(Log, "_seconds_now", lambda log: now(log) + 3 * HOUR)


@pytest.fixture
def short_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints after each few commits."""
    monkeypatch.setattr(tidying, "EVERY", 4)


def test_put_when_it_was_paused_until_another_tool_has_removed_its_file_writes_it_again(
    store: Store, place: str, tube: Tube, monkeypatch: pytest.MonkeyPatch
) -> None:
    def vacuum() -> None:
        pass_hours(store, monkeypatch)
        table = DeltaTable(f"{place}/work", storage_options=store.options)
        table.vacuum(2, dry_run=False, full=True)

    before_commit(monkeypatch, vacuum)
    tube.put("a")
    assert stored(store, place) == ["ar"]


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
    tidied = handles_of(tube).table(tube._ctx.table.name).tidying
    monkeypatch.setattr(tidied, "later", later.append)
    asked = [line for _ in range(4) for line in requests(store, lambda: tube.put("a"))]
    assert not [line for line in asked if ".checkpoint." in line or "_last_c" in line]
    (work,) = later
    work()
    log = f"{place}/work/_delta_log/".removeprefix("s3://bucket/")
    assert {f"{log}{4:020}.checkpoint.parquet", f"{log}_last_checkpoint"} <= store.keys(log)
    # Nothing that was committed here was read for it.
    assert not [line for line, _ in store.requests() if re.search(r"GET .*\.json$", line)]
    assert stored(store, place) == ["ar"] * 4


# -- options --------------------------------------------------------------------------------------


def test_client_when_all_is_in_the_environment_is_made_by_that(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = {"AWS_TIMEOUT": "200ms", "AWS_NONSENSE": "1", "AWS_ENDPOINT": store.url}
    for name, value in (store.options | more).items():
        monkeypatch.setenv(name.upper(), value)
    files = ObjectStore(Bucket("s3://bucket", RenewedOptions()), "of/the", Patience(0, 1.0))
    files.put("environment", b"x")
    assert files.get("environment")[0] == b"x"
    with store.losing("", kind="hang", kept=False), pytest.raises(RequestError, match="timed out"):
        files.get("environment")


@pytest.mark.parametrize(
    ("path", "options", "place"),
    [
        ("s3://bucket/100%", {}, None),
        ("s3://bucket/queue", {"AWS_S3_LOCKING_PROVIDER": "dynamodb"}, None),
        ("s3://bucket/queue", {"conditional_put": "disabled"}, None),
        ("s3a://bucket/a/b", {"access_key_id": "k"}, ("s3a://bucket", "a/b")),
        ("abfss://c@a.dfs.core.windows.net/a", {}, ("abfss://c@a.dfs.core.windows.net", "a")),
        ("gs://bucket/a/", {}, ("gs://bucket", "a")),
    ],
)
def test_place_of_a_store_has_the_keys_below_its_bucket_or_is_refused(
    path: str, options: dict[str, str], place: tuple[str, str] | None
) -> None:
    if place is not None:
        assert place_of(path, options) == place
        return
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


#: Takes what is there when its main thread has ended, in another one or at its exit.
LATE = """
import atexit, json, sys, threading
from tubeq_spark import Queue

tube = Queue(None, sys.argv[1], engine="native", storage_options=json.loads(sys.argv[2]))["work"]
tube.take(0)

def work():
    if sys.argv[3] == "thread":
        threading.main_thread().join()
    print("ended", flush=True)
    sys.stdin.readline()
    print(len(tube.take_many(9)), flush=True)

if sys.argv[3] == "thread":
    threading.Thread(target=work).start()
else:
    atexit.register(work)
"""


@pytest.mark.parametrize("where", ["thread", "exit"])
def test_take_when_the_main_thread_has_ended_reads_what_others_have_committed(
    store: Store, place: str, tube: Tube, where: str
) -> None:
    arguments = [place, json.dumps(store.options), where]
    with conversing(LATE, *arguments) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ended\n"
        for letter in "abcdef":
            tube.put(letter)
        said, _ = program.communicate("\n", timeout=WAIT)
    assert said == "6\n"
