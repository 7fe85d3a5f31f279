"""An object store that does not answer: each verb ends within its time limits, and says what is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.concurrency.lost_answers import letters
from tests.concurrency.s3_store import Store, served
from tests.concurrency.support import FOR_EVER, end_heartbeat
from tests.thorough import thorough
from tubeq_spark import StoreError
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
    "ack": lambda tube: tube.ack(0),
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
