"""An open queue goes on with new credentials from a program when the old ones expire."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.concurrency.support import end_heartbeat
from tubeq_spark import Queue, StoreError
from tubeq_spark.storage.store import store_options
from tubeq_spark.storage.store.object_store import ObjectStore
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.concurrency.s3_store import Store
    from tubeq_spark import Tube

pytestmark = [pytest.mark.processes]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """The clock by which options grow old."""
    clock = ManualClock()
    monkeypatch.setattr(store_options, "_CLOCK", clock)
    return clock


class Program:
    """Gives options with the key of the day."""

    def __init__(self, store: Store) -> None:
        self._options, self.key = store.options, "first"

    def __call__(self) -> dict[str, str]:
        return self._options | {"AWS_ACCESS_KEY_ID": self.key}


@contextmanager
def working(
    store: Store, name: str
) -> Iterator[tuple[Program, Callable[[str], None], Queue, Tube]]:
    """A program that gives credentials, a function that tells the store which it accepts, and a tube."""
    program, place = Program(store), f"s3://bucket/{name}"
    made = Queue(None, place, engine="native", storage_options=program, clock=ManualClock())
    with store.accepting() as accept, made as queue:
        end_heartbeat(queue)
        yield program, accept, queue, queue.create_tube("work", "fifo")


def test_verbs_when_credentials_expire_go_on_with_new_ones(
    store: Store, clock: ManualClock, tmp_path: Path
) -> None:
    with working(store, tmp_path.name) as (program, accept, queue, tube):
        tube.put("a")
        for verb, key in enumerate(("second", "third", "fourth")):
            clock.advance(60)
            program.key = key
            accept(key)
            if verb == 0:
                tube.put("b")
            elif verb == 1:
                assert [task.data for task in tube.take_many(2)] == ["a", "b"]
            else:
                queue.sweep()
                assert queue.statistics("work")["tasks"]["taken"] == 2
        accept("nobody")
        with pytest.raises(StoreError, match="ExpiredToken"):
            tube.put("c")
        accept("fourth")


def test_commit_when_its_credentials_are_refused_is_made_once(
    store: Store, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They expire between the data file and the commit."""
    put = ObjectStore.put_if_absent
    with working(store, tmp_path.name) as (program, accept, _, tube):
        tube.put("a")

        def late(files: ObjectStore, name: str, content: bytes, _needs: object = ()) -> str | None:
            clock.advance(60)
            program.key = "second"
            accept("second")
            return put(files, name, content)

        monkeypatch.setattr(ObjectStore, "put_if_absent", late)
        store.requests()
        tube.put("b")
        assert [status for _, status in store.commits()] == [200]
        assert [task.data for task in tube.take_many(3)] == ["a", "b"]
