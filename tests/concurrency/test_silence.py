"""An object store that does not answer: each verb ends within its time limits, and says what is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.concurrency.lost_answers import letters
from tests.concurrency.s3_store import Store, served
from tests.concurrency.support import FOR_EVER, end_heartbeat
from tests.thorough import thorough
from tubeq_spark import CommitUnknownError, StoreError
from tubeq_spark.storage.native import writer
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tubeq_spark import Queue, Tube

pytest.importorskip("moto", reason="the emulated S3")
pytestmark = [pytest.mark.processes]

#: One request, and all repetitions of one that only reads.
SHORT = {"timeout": "300ms", "connect_timeout": "300ms", "retry_timeout": "500ms"}
#: Requests of a verb that gets no answer: of one that only reads three, and of what is repeated the same.
FEW = 6


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with served() as found:
        yield found


@pytest.fixture
def queue(store: Store, tmp_path: Path) -> Iterator[Queue]:
    """A queue on a store whose client waits for moments only, and whose heart does not beat."""
    with store.open(f"s3://bucket/{tmp_path.name}", ManualClock(), SHORT) as opened:
        end_heartbeat(opened)
        opened.cfg(ttr=FOR_EVER)
        yield opened


@pytest.fixture
def tube(queue: Queue) -> Tube:
    """A tube with two tasks, one of them taken by this queue; numbers and lease are there."""
    tube = queue.create_tube("work")
    tube.put_many(["a", "b"])
    tube.take(0)
    return tube


def table(tube: Tube) -> str:
    """All tasks as stored."""
    name = tube._ctx.table
    rows = tube._ctx.queue.engine.rows(f"SELECT data, state FROM {name.name} WHERE {name.mine()}")
    return " ".join(sorted(row["data"].strip('"') + row["state"] for row in rows))


VERBS: dict[str, Callable[[Tube], Any]] = {
    "put": lambda tube: tube.put("c"),
    "take": lambda tube: tube.take(0),
    "ack": lambda tube: tube.ack(1),
    "peek": lambda tube: tube.peek(0),
    "kick": lambda tube: tube.kick(1),
    "truncate": lambda tube: tube.truncate(),
}


@pytest.mark.parametrize("verb", ["put", "take", *thorough("peek", "kick", "truncate")])
def test_verb_when_every_request_hangs_ends_after_a_few_and_has_written_nothing(
    store: Store, tube: Tube, verb: str
) -> None:
    store.requests()
    with store.losing("", kind="hang", times=None, kept=False), pytest.raises(StoreError):
        VERBS[verb](tube)

    asked = store.requests()
    assert {status for _, status in asked} == {None}
    assert 0 < len(asked) <= FEW
    assert table(tube) == "at br"


def test_opening_when_every_request_hangs_ends_after_a_few(store: Store, tmp_path: Path) -> None:
    store.requests()
    with store.losing("", kind="hang", times=None, kept=False), pytest.raises(StoreError):
        store.open(f"s3://bucket/{tmp_path.name}", options=SHORT)
    assert 0 < len(store.requests()) <= FEW


def test_put_arrow_when_it_is_large_is_sent_by_a_client_that_has_time_for_it(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[str] = []
    write = writer.write_deltalake

    def told(handle: Any, *args: Any, **options: Any) -> None:
        used.append(handle._storage_options["timeout"])
        write(handle, *args, **options)

    with store.open(f"s3://bucket/{tmp_path.name}") as opened:
        tube = opened.create_tube("large")
        monkeypatch.setattr(writer, "write_deltalake", told)
        rows = pa.table({"data": [f'"{number:0300}"' for number in range(20_000)]})
        tube.put("a")
        assert {*used} == {"5s"}
        tube.put_arrow(rows)
        assert int(used[-1].removesuffix("s")) > 20
        assert letters([tube.take(0)]) == "a"
        assert opened.statistics("large")["tasks"]["total"] == 20_001


@pytest.fixture(scope="module")
def orphan() -> Iterator[Tube]:
    """A tube of a store whose endpoint refuses connections from now on."""
    with served() as gone:
        queue = gone.open("s3://bucket/queue", ManualClock(), SHORT)
        end_heartbeat(queue)
        queue.cfg(ttr=FOR_EVER)
        tube = queue.create_tube("work")
        tube.put_many(["a", "b"])
        tube.take(0)
    yield tube
    queue._context.session.stop()


@pytest.mark.parametrize("verb", ["put", "take", "ack", *thorough("peek", "kick", "truncate")])
def test_verb_when_connections_are_refused_says_that_nothing_was_written(
    orphan: Tube, verb: str
) -> None:
    with pytest.raises(StoreError, match="Connection refused") as caught:
        VERBS[verb](orphan)
    assert type(caught.value) is StoreError


@pytest.mark.parametrize("verb", ["put", "take"])
@pytest.mark.parametrize("kind", ["hang", "503"])
def test_verb_when_the_data_before_its_commit_is_not_answered_says_that_nothing_was_written(
    store: Store, tube: Tube, verb: str, kind: str
) -> None:
    with (
        store.losing("PUT .*parquet$", kind=kind, times=None, kept=False, dark=True),
        pytest.raises(StoreError) as caught,
    ):
        VERBS[verb](tube)
    assert type(caught.value) is StoreError
    assert not [row for row in store.commits() if row[1] is None]
    assert table(tube) == "at br" or verb == "take"


@pytest.mark.parametrize("way", ["hang", "reset"])
def test_put_when_its_commit_is_sent_and_nothing_answers_any_more_says_that_nobody_knows(
    store: Store, tube: Tube, way: str
) -> None:
    with (
        store.losing(kind=way, times=None, dark=True),
        pytest.raises(CommitUnknownError) as caught,
    ):
        tube.put("c")
    assert caught.value.operation_id
    assert table(tube) == "at br cr"
