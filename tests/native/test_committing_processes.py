"""Whose commits a writer without a JVM waits for, on local files, and who waits for its own."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tubeq_spark import Queue
from tubeq_spark.storage.durability.synced_log import LOCKS
from tubeq_spark.storage.locks.committer import Committer, CommitterFile, processes
from tubeq_spark.storage.native.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WAIT = 60.0


@pytest.fixture
def location(tmp_path: Path) -> str:
    return str(tmp_path / "queue")


@pytest.fixture
def queue(location: str) -> Iterator[Queue]:
    with Queue(None, location, engine="native") as opened:
        opened.create_tube("work")
        yield opened


def notes(location: str) -> list[bytes]:
    return [file.read_bytes() for file in Path(location, LOCKS).glob("*.committing")]


class Told(logging.Handler):
    """Sets an event when something is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.event = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.event.set()


@pytest.mark.processes
def test_put_when_the_jvm_of_another_client_may_be_committing_waits_for_its_end(
    queue: Queue, location: str
) -> None:
    jvm = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert jvm.stdin is not None
    here = processes()
    committer = Committer("", jvm.pid, here.host(), here.started(jvm.pid))
    CommitterFile(Path(location, LOCKS, "work.committing")).write(committer)
    told = Told()
    logging.getLogger("tubeq_spark.storage.locks.committer").addHandler(told)
    try:
        with ThreadPoolExecutor(1) as pool:
            putting = pool.submit(queue["work"].put, "mine")
            assert told.event.wait(WAIT)
            assert not putting.done()
            assert queue.statistics("work")["tasks"]["total"] == 0
            jvm.stdin.close()
            jvm.wait(WAIT)
            putting.result(WAIT)
    finally:
        logging.getLogger("tubeq_spark.storage.locks.committer").removeHandler(told)
        jvm.kill()
        jvm.wait()
    assert queue.statistics("work")["tasks"]["total"] == 1
    assert not any(notes(location))


@pytest.mark.parametrize("raised", [None, KeyboardInterrupt])
def test_commit_when_it_ends_in_any_way_has_kept_nobody_else_waiting(
    queue: Queue,
    location: str,
    monkeypatch: pytest.MonkeyPatch,
    raised: Callable[[], BaseException] | None,
) -> None:
    seen: list[bytes] = []
    commit: Any = Writer.commit

    def look(*args: Any, **named: Any) -> None:
        seen.extend(notes(location))
        commit(*args, **named)
        if raised is not None:
            raise raised()

    queue["work"].put("before")
    monkeypatch.setattr(Writer, "commit", look)
    if raised is None:
        queue["work"].put("mine")
    else:
        with pytest.raises(raised):  # type: ignore[arg-type]
            queue["work"].put("mine")
    monkeypatch.undo()

    assert not any(seen)
    assert not any(notes(location))
    assert queue.statistics("work")["tasks"]["total"] == 2
