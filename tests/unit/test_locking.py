"""The locks of a table and the note beside them stop writers while a JVM may still be committing."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

from tubeq_spark import CommitUnknownError, StoreError
from tubeq_spark.storage.locks.committer import NO_JVM, Committer, Host, JvmNote, SystemProcesses
from tubeq_spark.storage.locks.table_lock import TableLock
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


HERE = Host("host", "machine", "boot", "pid:[1]")
MAC = Host("mac")
MINE = Committer(1, HERE, "100")
OTHER = Committer(2, HERE, "200")
WAIT = 30.0


@dataclass
class FakeProcesses(SystemProcesses):
    """What runs on a host: when each process was started."""

    running: dict[int, str] = field(default_factory=dict)
    here: Host = HERE

    def host(self) -> Host:
        return self.here

    def started(self, pid: int) -> str | None:
        return self.running.get(pid)


class Waits(ManualClock):
    """Does something at the nth wait."""

    def __init__(self, act: Callable[[], object] = lambda: None, nth: int = 3) -> None:
        super().__init__()
        self._act, self._left = act, nth

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self._left -= 1
        if not self._left:
            self._act()


@pytest.fixture
def lock_file(tmp_path: Path) -> Path:
    return tmp_path / "work.lock"


@pytest.fixture
def note(tmp_path: Path) -> JvmNote:
    return JvmNote(tmp_path / "work.lock")


def table_lock(
    lock_file: Path, running: FakeProcesses | None = None, wall: ManualClock | None = None
) -> TableLock:
    return TableLock(lock_file, wall or ManualClock(), running or FakeProcesses())


def mine() -> Committer:
    return MINE


def fail_after(has_ended: Callable[[], None]) -> None:
    has_ended()
    raise KeyError


def test_committing_while_the_statement_runs_names_its_jvm(lock_file: Path, note: JvmNote) -> None:
    own = table_lock(lock_file)
    with own.writing(mine):
        assert note.read() is None
        with own.committing(mine):
            assert note.read() == MINE
            assert own.is_exclusive
        assert note.read() is None


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(), ConnectionResetError()])
def test_committing_when_no_answer_came_leaves_the_note_whatever_follows_in_the_same_jvm(
    lock_file: Path, note: JvmNote, error: BaseException
) -> None:
    own = table_lock(lock_file)
    with pytest.raises(type(error)), own.changing(mine):
        raise error
    assert note.read() == MINE

    with own.changing(mine):
        assert not own.is_exclusive
    assert note.read() == MINE
    # Another client of that JVM may go on, too, and must not remove it either.
    with table_lock(lock_file).changing(lambda: replace(MINE)):
        pass
    assert note.read() == MINE


def test_committing_when_the_statement_was_answered_by_an_error_clears_the_note(
    lock_file: Path, note: JvmNote
) -> None:
    own = table_lock(lock_file)
    with pytest.raises(StoreError), own.changing(mine):
        raise StoreError
    assert note.read() is None
    with pytest.raises(KeyError), own.writing(mine), own.committing(mine) as has_ended:
        fail_after(has_ended)
    assert note.read() is None
    with pytest.raises(CommitUnknownError), own.changing(mine):
        raise CommitUnknownError("lost", 1)
    assert note.read() == MINE


def test_committing_when_the_note_cannot_be_written_runs_nothing(
    lock_file: Path, note: JvmNote
) -> None:
    own, ran = table_lock(lock_file), False
    with own.writing(mine):
        note.path.mkdir()
        with pytest.raises(StoreError, match="cannot be used"), own.committing(mine):
            ran = True
    assert not ran


@pytest.mark.parametrize("error", [None, KeyboardInterrupt(), ConnectionResetError()])
def test_committing_by_the_process_that_has_the_lock_file_notes_nothing_however_it_ends(
    lock_file: Path, note: JvmNote, error: BaseException | None
) -> None:
    own = table_lock(lock_file)
    with contextlib.suppress(KeyboardInterrupt, ConnectionResetError), own.changing(lambda: None):
        assert own.is_exclusive
        assert note.read() is None
        if error is not None:
            raise error
    assert note.read() is None


def test_writing_without_a_jvm_waits_for_a_noted_jvm_even_of_its_own_process_and_native_writers_do_not(
    lock_file: Path, note: JvmNote
) -> None:
    own = table_lock(lock_file, FakeProcesses({1: "100"}))
    with pytest.raises(KeyboardInterrupt), own.changing(mine):
        raise KeyboardInterrupt
    with pytest.raises(StoreError, match="process 1 on host may still be committing"):
        own.writing(lambda: NO_JVM).__enter__()
    with own.changing(lambda: None):
        pass
    assert note.read() == MINE


@pytest.mark.parametrize("nth", [0, 3])
def test_writing_when_the_noted_jvm_is_gone_or_ends_meanwhile_goes_on(
    lock_file: Path, note: JvmNote, nth: int
) -> None:
    note.write(OTHER)
    # If it is gone, its process id belongs to another process by now.
    running = FakeProcesses({2: "200" if nth else "300"})
    wall = Waits(running.running.clear, nth)
    began = wall.monotonic()
    with table_lock(lock_file, running, wall).writing(mine):
        assert (wall.monotonic() > began) == bool(nth)
        assert note.read() is None


def test_writing_when_the_noted_jvm_lives_on_refuses_and_says_what_helps(
    lock_file: Path, note: JvmNote
) -> None:
    note.write(OTHER)
    own = table_lock(lock_file, FakeProcesses({2: "200"}))
    for _ in range(2):
        with pytest.raises(StoreError, match=r"process 2 on host .* remove .*work\.committing"):
            own.writing(mine).__enter__()
    assert note.read() == OTHER

    note.path.unlink()
    with own.changing(mine):
        pass


@pytest.mark.parametrize("text", ["{", "[]", '{"pid": 1}', "null", "\x80"])
def test_writing_when_the_note_cannot_be_read_refuses(
    lock_file: Path, note: JvmNote, text: str
) -> None:
    note.path.write_text(text, encoding="latin-1")
    with pytest.raises(StoreError, match="an unknown process"):
        table_lock(lock_file).writing(mine).__enter__()


@pytest.mark.parametrize(
    ("noted", "here", "running", "is_gone"),
    [
        (HERE, HERE, {}, True),
        (HERE, HERE, {2: "200"}, False),
        (HERE, HERE, {2: "201"}, True),
        # Containers of one machine, each with process ids of its own, or with those of the host.
        (HERE, replace(HERE, namespace="pid:[2]"), {}, False),
        (HERE, replace(HERE, name="other"), {}, True),
        (HERE, replace(HERE, name="other"), {2: "200"}, False),
        # Started anew, or another machine.
        (HERE, replace(HERE, boot="later"), {2: "200"}, True),
        (HERE, replace(HERE, boot="later", name="other"), {}, False),
        (HERE, replace(HERE, boot="later", machine="other"), {}, False),
        (replace(HERE, machine=""), replace(HERE, boot="later", machine=""), {}, False),
        # Without /proc.
        (MAC, MAC, {}, True),
        (MAC, MAC, {2: "200"}, False),
        (MAC, MAC, {2: "201"}, True),
        (MAC, Host("renamed"), {}, False),
        (HERE, Host("host", "machine"), {}, False),
        (None, HERE, {}, False),
    ],
)
def test_is_gone_where_it_cannot_be_known_is_false(
    noted: Host | None, here: Host, running: dict[int, str], is_gone: bool
) -> None:
    committer = replace(OTHER, host=noted)
    assert committer.is_gone(FakeProcesses(running, here)) is is_gone


def test_processes_when_one_ends_and_nobody_asks_for_its_exit_code_is_gone() -> None:
    here = SystemProcesses()
    assert here.started(os.getpid()) == here.started(os.getpid()) is not None
    program = "print(flush=True); input()"
    child = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdin is not None
    assert child.stdout is not None
    # Until it runs a program of its own it has no command line.
    child.stdout.readline()
    assert here.started(child.pid) is not None
    child.stdin.close()
    # It is a zombie from when it ends until `wait`.
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert here.started(child.pid) is None
    child.wait()
    child.stdout.close()
    assert here.started(child.pid) is None
