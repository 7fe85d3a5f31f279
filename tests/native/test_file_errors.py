"""A verb raises an error of ours with the file and the cause when the system fails at any file of a queue."""

from __future__ import annotations

import builtins
import errno
import io
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.queries import counted
from tests.thorough import thorough
from tubeq_spark import CommitUnknownError, Queue, StoreError
from tubeq_spark.storage.location import path_of
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tubeq_spark import Tube

#: What asks the system for a file, or to write it.
ASKS = {
    os: ("open", "mkdir", "link", "rename", "replace", "unlink", "listdir", "scandir", "stat"),
    io: ("open",),
    builtins: ("open",),
}
WRITES = ("fsync", "fdatasync", "write")
#: As many are asked by a verb, at the most.
MOST = 200


class Failing:
    """The system, which fails in one way from the nth request for a file of a directory on."""

    def __init__(self, place: Path, number: int) -> None:
        self.place, self.number = str(place), number
        self.is_on = False
        self.asked = self.nth = 0

    def wrapped(self, real: Callable[..., Any], *, writes: bool) -> Callable[..., Any]:
        """A function of the system that fails when it is its turn."""

        def asked(*args: Any, **options: Any) -> Any:
            if self.is_on and (writes or (args and self.place in str(args[0]))):
                self.asked += 1
                if self.asked >= self.nth:
                    raise OSError(self.number, os.strerror(self.number), str(args[0]))
            return real(*args, **options)

        return asked

    @contextmanager
    def failing(self, nth: int) -> Iterator[None]:
        """Fail from the nth request of a block on."""
        self.asked, self.nth, self.is_on = 0, nth, True
        try:
            yield
        finally:
            self.is_on = False


@pytest.fixture
def tube(tmp_path: Path) -> Iterator[Tube]:
    with Queue(None, str(tmp_path), engine="native", clock=ManualClock()) as queue:
        tube = queue.create_tube("work")
        tube.put_many(list("abcd" * 50))
        yield tube


def stored(tube: Tube) -> int:
    return int(tube._ctx.queue.engine.rows(counted(tube.table))[0]["n"])


def reopened(tube: Tube) -> None:
    place = str(path_of(tube.table)).removesuffix("/work")
    with Queue(None, place, engine="native", clock=ManualClock()) as queue:
        queue.tube("work")


VERBS: dict[str, tuple[Callable[[Tube], Any], int]] = {
    "put": (lambda tube: tube.put("x"), 1),
    "take": (lambda tube: tube.take(0), 0),
    "ack": (lambda tube: [tube.ack(task.task_id) for task in tube.take_many(1)], -1),
    "open": (reopened, 0),
}


@pytest.mark.parametrize(
    "number", [errno.ENOSPC, *thorough(errno.EROFS, errno.EACCES, errno.EMFILE)]
)
@pytest.mark.parametrize("verb", ["put", "ack", *thorough("take", "open")])
def test_verb_when_the_system_fails_at_any_file_raises_an_error_of_ours_and_is_done_or_not(
    tube: Tube, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, number: int
) -> None:
    system = Failing(tmp_path, number)
    for module, names in ASKS.items():
        for name in names:
            monkeypatch.setattr(module, name, system.wrapped(getattr(module, name), writes=False))
    for name in WRITES:
        monkeypatch.setattr(os, name, system.wrapped(getattr(os, name), writes=True))
    act, more = VERBS[verb]
    told: list[str] = []
    for nth in range(1, MOST):
        before = stored(tube)
        try:
            with system.failing(nth):
                act(tube)
        except CommitUnknownError:
            assert stored(tube) in {before, before + more}
        except StoreError as error:
            told.append(str(error))
            assert stored(tube) == before
        else:
            assert stored(tube) == before + more
        if system.asked < nth:
            break
    assert told
    assert all(os.strerror(number) in text and str(tmp_path) in text for text in told)
    assert system.asked < nth
    tube.put("y")


def test_put_when_the_lock_file_is_a_directory_says_so(tube: Tube, tmp_path: Path) -> None:
    tube.put("a")
    lock = tmp_path / "_tubeq_locks" / "work.lock"
    lock.unlink()
    lock.mkdir()
    with pytest.raises(StoreError, match=r"work\.lock cannot be used: .*[Dd]irectory"):
        tube.put("b")
