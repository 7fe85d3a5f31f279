"""A verb at a silent or busy store ends after few requests of a real S3 client, and says if it may have written."""

from __future__ import annotations

import os
import threading
from itertools import product
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.concurrency.support import FOR_EVER, end_heartbeat
from tests.queries import select
from tests.thorough import thorough
from tubeq_spark import CommitUnknownError, StoreError
from tubeq_spark.storage.store.object_store import Bucket
from tubeq_spark.storage.store.store_options import with_limits
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from tests.concurrency.s3_store import Store
    from tubeq_spark import Queue, Tube

pytestmark = [pytest.mark.processes]

#: One request, and all repetitions of one that only reads.
SHORT = {"timeout": "300ms", "connect_timeout": "300ms", "retry_timeout": "500ms"}
#: Requests of a verb that gets no answer: of one that only reads three, and of what is repeated the same.
FEW = 6
#: Verbs, given a task that is held, and the tasks after each of them.
VERBS: dict[str, tuple[Callable[[Tube, int], Any], str]] = {
    "put": (lambda tube, _: tube.put("c"), "at br cr"),
    "take": (lambda tube, _: tube.take(0), "at bt"),
    "ack": (lambda tube, held: tube.ack(held), "br"),
    "peek": (lambda tube, held: tube.peek(held), "at br"),
    "truncate": (lambda tube, _: tube.truncate(), ""),
}
#: What happens to requests, by name.
WAYS: dict[str, dict[str, Any]] = {
    "every request hangs": {"kind": "hang", "kept": False},
    "a third of all requests hangs": {"kind": "hang", "kept": False, "share": 1 / 3},
    "503 for half": {"kind": "503", "kept": False, "share": 0.5},
}


class Hooked(ManualClock):
    """A clock at whose next nap something happens."""

    nap: Callable[[], object] | None = None

    def sleep(self, seconds: float) -> None:
        """Let the time pass, and what is to happen once."""
        nap, self.nap = self.nap, None
        if nap is not None:
            nap()
        super().sleep(seconds)


@pytest.fixture
def clock() -> Hooked:
    return Hooked()


@pytest.fixture
def queue(store: Store, tmp_path: Path, clock: Hooked) -> Iterator[Queue]:
    """A queue on a store whose client waits for moments only; its heart does not beat, and its verbs look each 20 s."""
    place = f"s3://bucket/{tmp_path.name}"
    with store.open(place, clock, SHORT, poll_first=20, poll_most=20) as opened:
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


@pytest.fixture
def held(tube: Tube) -> int:
    """The task that is taken."""
    return next(tube.tasks_by_state("t")).task_id


def table(tube: Tube) -> str:
    """All tasks as stored."""
    name = tube._ctx.table
    rows = tube._ctx.queue.engine.rows(select(name.name, "data", "state", where=name.mine()))
    return " ".join(sorted(row["data"].strip('"') + row["state"] for row in rows))


@pytest.mark.parametrize(
    ("verb", "way"),
    [
        *product(("put", "ack"), WAYS),
        ("take", "every request hangs"),
        *thorough(*product(("peek", "truncate"), WAYS)),
    ],
)
def test_verb_when_the_store_is_silent_or_busy_ends_after_few_failures_and_says_what_is_known(
    store: Store, tube: Tube, held: int, verb: str, way: str
) -> None:
    act, after = VERBS[verb]
    error: Exception | None = None
    store.requests()
    with store.losing("", times=None, **WAYS[way], seed=1):
        try:
            act(tube, held)
        except (CommitUnknownError, StoreError) as raised:
            error = raised
    failed = sum(status is None or status >= 500 for _, status in store.requests())

    if error is None:
        assert table(tube) == after
    elif type(error) is StoreError and verb != "truncate":
        assert table(tube) == "at br"
    else:
        # Nobody knows, or a part of several commits was done.
        assert table(tube) in ("at br", after)
    assert failed > 0
    if way.startswith("every"):
        # An ack begins with its commit, all others with a look.
        assert type(error) is (CommitUnknownError if verb == "ack" else StoreError)
        assert failed <= FEW


def test_opening_when_a_request_hangs_lets_other_threads_run(store: Store, tmp_path: Path) -> None:
    def recover() -> None:
        while not store.requests():
            pass
        store.answer()

    store.requests()
    store.lose("", kind="hang", times=None, kept=False)
    thread = threading.Thread(target=recover)
    thread.start()
    options = {"timeout": "3s", "max_retries": "1"}
    with store.open(f"s3://bucket/{tmp_path.name}", options=options) as opened:
        assert opened.tubes() == []
    thread.join()


@pytest.mark.thorough
def test_put_arrow_when_it_is_large_is_sent_by_a_client_that_has_time_for_it(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[float] = []
    client = Bucket._client

    def told(bucket: Bucket, given: Mapping[str, str], size: int) -> Any:
        used.append(float(with_limits({}, size)["timeout"].removesuffix("s")))
        return client(bucket, given, size)

    with store.open(f"s3://bucket/{tmp_path.name}") as opened:
        tube = opened.create_tube("large")
        monkeypatch.setattr(Bucket, "_client", told)
        rows = pa.table({"data": [f'"{os.urandom(150).hex()}"' for _ in range(20_000)]})
        tube.put("a")
        assert {*used} == {5}
        tube.put_arrow(rows)
        assert max(used) > 20
        assert used[-1] == 5
        assert opened.statistics("large")["tasks"]["total"] == 20_001


# -- waiting --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("status", "waits"), [("503", 3), ("403", 0)])
def test_take_when_the_store_fails_until_its_time_is_over_raises_the_last_error(
    store: Store, queue: Queue, caplog: pytest.LogCaptureFixture, status: str, waits: int
) -> None:
    tube = queue.create_tube("work")
    with (
        store.losing("", kind=status, times=None, kept=False),
        pytest.raises(StoreError, match=status) as caught,
    ):
        tube.take(timeout=30)
    assert caught.value.passes == bool(waits)
    assert caplog.text.count("waiting goes on") == waits
