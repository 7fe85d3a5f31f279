"""Verbs work on Spark Connect, where errors come as messages and files lie where the server is."""

from __future__ import annotations

import datetime as dt
import doctest
import re
import socket
import socketserver
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import sweeper
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql.connect.client.retries import DefaultPolicy

from tests.concurrency.support import Probe, end_heartbeat, on_another_host
from tests.connect_server import connected
from tests.pages import PAGES
from tubeq_spark import CommitUnknownError, Queue, QueueConfig, StoreError
from tubeq_spark.storage.spark.spark_session import missing_settings
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession


pytestmark = pytest.mark.connect

LARGE = 40_000


@pytest.fixture(scope="module", autouse=True)
def _only_on_connect(request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("--connect"):
        pytest.skip("needs --connect: a process has either kind of session")


def json_of(column: str) -> Any:
    """A payload that holds a column."""
    return F.to_json(F.struct(column)).alias("data")


def test_take_when_a_rival_of_another_session_comes_first_takes_the_next(
    spark: SparkSession, location: str
) -> None:
    probe = Probe()
    config = QueueConfig(observer=probe, backoff_first=0.0, backoff_most=0.0)
    queue = on_another_host(Queue(spark, location, config=config))
    rival = on_another_host(Queue(spark.cloneSession(), location))
    with queue, rival:
        tube = queue.create_tube("shared")
        tube.put_many(["a", "b"])

        with probe.interrupted("decided", "take", lambda: rival["shared"].take(0)):
            task = tube.take(0)

        assert task is not None
        assert task.data == "b"
        assert ("conflicted", "take") in probe.events


def test_verbs_when_a_program_has_tags_leave_them(spark: SparkSession, location: str) -> None:
    spark.addTag("of the program")
    with Queue(spark, location) as queue:
        queue.create_tube("letters").put("a")

    assert spark.getTags() == {"of the program"}
    spark.clearTags()


@pytest.mark.thorough
def test_put_df_when_more_rows_come_than_were_counted_says_so(
    spark: SparkSession, location: str, tmp_path: Path
) -> None:
    source = str(tmp_path / "source")
    spark.range(10).write.format("delta").save(source)
    rows = spark.read.format("delta").load(source).select(json_of("id"))

    def add_rows() -> None:
        spark.range(10).coalesce(1).write.format("delta").mode("append").save(source)

    probe = Probe()
    with Queue(spark, location, config=QueueConfig(observer=probe)) as queue:
        tube = queue.create_tube("t")
        with (
            probe.interrupted("decided", "put", add_rows),
            pytest.raises(StoreError, match="other rows when written than when counted"),
        ):
            tube.put_df(rows)
        assert queue.statistics("t")["tasks"]["total"] == 0


def test_put_df_of_a_sorted_frame_numbers_its_rows_in_that_order(
    spark: SparkSession, location: str
) -> None:
    rows = spark.range(0, 6_000, 1, 3).selectExpr("CAST(id * 7919 % 6000 AS STRING) AS data")

    with Queue(spark, location) as queue:
        tube = queue.create_tube("t")
        assert tube.put_df(rows.orderBy(F.col("data").cast("int"))).count == 6_000
        found = [int(row["data"]) for row in tube.df().orderBy("task_id").select("data").collect()]

    assert found == list(range(6_000))


@pytest.mark.thorough
def test_put_df_of_many_rows_leaves_the_session_as_it_is(
    spark: SparkSession, location: str
) -> None:
    assert missing_settings(spark) == []
    before = spark.conf.getAll

    with Queue(spark, location) as queue:
        tube = queue.create_tube("t")
        first = tube.put_df(spark.range(LARGE).select(json_of("id")))
        second = tube.put_df(spark.range(LARGE).select(json_of("id")), key="once")

    assert (first.count, second.count) == (LARGE, LARGE)
    after = spark.conf.getAll
    # Delta itself notes there what a session has committed last, and its first write adds settings.
    changed = {name for name, value in before.items() if after.get(name) != value}
    assert not {name for name in changed if "lastCommitVersion" not in name}
    assert not [name for name in after if name not in before and "codegen" in name]


@pytest.mark.thorough
def test_one_session_in_many_threads_keeps_their_statements_apart(
    spark: SparkSession, location: str
) -> None:
    done: dict[str, list[object]] = {}

    def work(name: str) -> None:
        tube = queue.create_tube(name)
        tube.put_many([[name, number] for number in range(3)])
        tasks = tube.take_many(3)
        done[name] = [task.data for task in tasks]
        tube.ack_many([task.task_id for task in tasks])

    with Queue(spark, location) as queue:
        threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert done == {name: [[name, number] for number in range(3)] for name in "abc"}


def test_queue_at_a_path_where_spark_would_commit_is_refused_and_not_made(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(StoreError, match="cannot lock the files of its server"):
        Queue(spark, tmp_path / "q", engine="spark")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.thorough
def test_queue_at_a_path_commits_natively_beside_its_session(
    spark: SparkSession, tmp_path: Path
) -> None:
    with Queue(spark, tmp_path / "q") as queue:
        tube = queue.create_tube("t")
        assert tube.put_df(spark.range(3).select(json_of("id"))).count == 3
        with tube.take_df(2) as batch:
            assert batch.df.count() == 2
        assert tube.df().count() == 1

    assert queue.engine == "native"
    assert Path(tmp_path, "q", "_tubeq_locks", "t.lock").exists()


@pytest.mark.thorough
def test_sweeper_over_connect_makes_one_pass_and_refuses_to_stream(
    server_url: str, spark: SparkSession, location: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--location", location, "--remote", server_url]
    hour_ago = ManualClock(dt.datetime.now(dt.UTC) - dt.timedelta(hours=1))
    with Queue(spark, location, clock=hour_ago) as queue:
        queue.create_tube("timed", "fifottl").put("delayed", delay=60)

    assert sweeper.main([*arguments, "--once"]) == 0
    assert capsys.readouterr().out.endswith("timed: 1 readied\n")
    assert sweeper.main(arguments) == 2
    assert capsys.readouterr().err == (
        "sweeper.py: a Spark Connect server cannot run the stream: use --once\n"
    )


@pytest.mark.thorough
def test_example_of_the_docs_when_run_prints_what_it_says(
    server_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = PAGES["docs/how-to/several-drivers.md"].read_text(encoding="utf-8")
    [shown] = re.findall(r"```pycon\n(.*?)```", page, flags=re.DOTALL)
    shown = shown.replace("sc://localhost:15002", server_url)
    example = doctest.DocTestParser().get_doctest(shown, {}, "page", None, 0)

    result = doctest.DocTestRunner().run(example)

    assert (result.failed, result.attempted) == (0, len(example.examples))


class Way(socketserver.ThreadingTCPServer):
    """A way to a server on loopback that can be cut."""

    daemon_threads = True

    def __init__(self, target: str) -> None:
        host, port = target.removeprefix("sc://").split(":")
        self.target = host, int(port)
        self.is_cut = False
        self.ends: list[socket.socket] = []
        super().__init__(("127.0.0.1", 0), Passage)

    @property
    def url(self) -> str:
        """Where it begins."""
        return f"sc://127.0.0.1:{self.server_address[1]}"

    def cut(self) -> None:
        """Let nothing through from now on."""
        self.is_cut = True
        for end in self.ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class Passage(socketserver.BaseRequestHandler):
    """One connection over a way."""

    server: Way

    def handle(self) -> None:
        if self.server.is_cut:
            return
        with socket.create_connection(self.server.target) as there:
            self.server.ends += [self.request, there]
            back = threading.Thread(target=self.carry, args=(there, self.request))
            back.start()
            self.carry(self.request, there)
            back.join()

    @staticmethod
    def carry(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def way(server_url: str) -> Iterator[Way]:
    with Way(server_url) as way:
        threading.Thread(target=way.serve_forever, args=(0.05,), daemon=True).start()
        yield way
        way.cut()
        way.shutdown()


# The client warns when it gives up: here at once.
@pytest.mark.filterwarnings("ignore:.*RETRIES_EXCEEDED")
def test_ack_when_the_connection_breaks_may_have_landed(
    spark: SparkSession, way: Way, location: str
) -> None:
    probe = Probe()
    with Queue(spark, location) as queue:
        queue.create_tube("t")
        remote = connected(way.url)
        remote.client.set_retry_policies([DefaultPolicy(max_retries=0)])
        cut_off = Queue(remote, location, config=QueueConfig(observer=probe))
        far = cut_off["t"]

        near = queue["t"]
        held = near.put_many(["a", "b"])
        ids = [task.task_id for task in far.take_many(2)]
        assert ids == [task.task_id for task in held]

        with (
            probe.interrupted("decided", "ack", way.cut),
            pytest.raises(CommitUnknownError),
        ):
            far.ack(ids[0])

        # Else its heart beats on, and each beat waits for a server that nobody reaches.
        end_heartbeat(cut_off)
        assert queue.statistics("t")["tasks"]["total"] == 2
    remote.stop()


@pytest.mark.filterwarnings("ignore:.*RETRIES_EXCEEDED")
def test_verbs_when_the_server_is_gone_raise_errors_of_ours_and_close_ends(
    spark: SparkSession, way: Way, location: str
) -> None:
    with Queue(spark, location) as near:
        near.create_tube("t").put_many(["a", "b", "c"])
    remote = connected(way.url)
    remote.client.set_retry_policies([DefaultPolicy(max_retries=0)])
    queue = Queue(remote, location)
    tube, frame = queue["t"], remote.sql("SELECT '1' AS data")
    ids = [task.task_id for task in tube.take_many(2)]
    way.cut()
    verbs: dict[str, Callable[[], object]] = {
        "put": lambda: tube.put("x"),
        "put_df": lambda: tube.put_df(frame),
        "take": lambda: tube.take(0),
        "take_df": lambda: tube.take_df(1),
        "kick": tube.kick,
        "peek": lambda: tube.peek(ids[0]),
        "truncate": tube.truncate,
        "create_tube": lambda: queue.create_tube("u"),
        "tubes": queue.tubes,
        "statistics": queue.statistics,
        "metrics": queue.metrics,
        "health": queue.health,
        "sweep": queue.sweep,
        "ack": lambda: tube.ack(ids[0]),
        "release": lambda: tube.release(ids[1]),
    }

    raised: dict[str, object] = {}
    for name, verb in verbs.items():
        try:
            raised[name] = verb()
        except Exception as error:  # noqa: BLE001  (what it is, is what the test asks)
            raised[name] = type(error)

    queue.close()
    assert [raised.pop("ack"), raised.pop("release")] == [CommitUnknownError] * 2
    assert {name: kind for name, kind in raised.items() if kind is not StoreError} == {}


@pytest.mark.thorough
def test_verb_when_a_frame_names_a_table_that_is_not_there_raises_the_error_that_names_it(
    spark: SparkSession, location: str
) -> None:
    with Queue(spark, location) as queue:
        tube = queue.create_tube("t")
        tube.put("a")
        batch = tube.take_df(1)

        for verb in (tube.put_df, batch.ack):
            with pytest.raises(AnalysisException, match="typo"):
                verb(spark.table("typo"))

        assert batch.ack() == 1
