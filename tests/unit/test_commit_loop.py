"""The commit loop gives the right outcome for each answer of an engine at each step of a commit.

What the engine raises is told apart in `test_conflicts.py`; what real Delta raises, and that a commit
which landed is found in a real history, is shown by the tests of concurrency.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from delta.connect import exceptions as conflicts
from pyspark.errors import PySparkRuntimeError
from pyspark.errors.exceptions import connect

from tubeq_spark import (
    CommitUnknownError,
    ConflictError,
    NotTakenError,
    QueueConfig,
    StoreError,
    TubeqError,
)
from tubeq_spark.storage.commit_loop import CommitLoop, Plan, Stale
from tubeq_spark.storage.engine import Rivals
from tubeq_spark.storage.expression import STALE
from tubeq_spark.storage.locks.committer import Committer, JvmNote
from tubeq_spark.storage.locks.table_lock import LockFile, TableLock
from tubeq_spark.storage.spark import conflicts as spark_conflicts  # noqa: F401  it must be loaded
from tubeq_spark.storage.statement import Affected, Clause, Commit, Note, Statement
from tubeq_spark.storage.store.local_files import SyncError
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path


OPERATION_ID = 4711
JVM = Committer(1)
MERGE = Statement("t", [Clause(None)], tasks=2)
#: Two rows, as the statement itself or the history tells.
TWO = Affected(updated=2)


class Stop(BaseException):
    """The process ends here."""


def conflict() -> Exception:
    """Another commit came first."""
    error: Exception = conflicts.ConcurrentAppendException("files were added")
    return error


def refused() -> Exception:
    """A guard in the statement found its rows gone."""
    return connect.SparkConnectGrpcException(
        STALE, errorClass="USER_RAISED_EXCEPTION", messageParameters={"errorMessage": STALE}
    )


def half_created() -> Exception:
    """Somebody else is creating the table."""
    return analysis("DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION")


def analysis(condition: str) -> Exception:
    return connect.AnalysisException(condition, errorClass=condition, messageParameters={})


def failed() -> Exception:
    """The engine answers with an error of its own."""
    return PySparkRuntimeError("the executor was killed")


def lost() -> Exception:
    """No answer comes."""
    return ConnectionError("the answer is lost")


class UnreadError(Exception):
    """The history cannot be read."""


@dataclass
class FakeEngine:
    """Answers each statement with the next of `answers`, and the history with the next of `told`."""

    answers: list[Affected | BaseException | None] = field(default_factory=list)
    told: list[Affected | BaseException | None] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    asked: list[tuple[str, int]] = field(default_factory=list)
    while_running: Callable[[], object] = lambda: None
    ahead: list[str] = field(default_factory=list)
    looks: threading.Event = field(default_factory=threading.Event)

    @property
    def tables(self) -> SimpleNamespace:
        return SimpleNamespace(rivals=lambda _: Rivals())

    def look_ahead(self, table: str) -> None:
        self.ahead.append(table)
        self.looks.set()

    def operating(self, _operation: str, _table: str | None) -> AbstractContextManager[None]:
        return nullcontext()

    def committing_jvm(self) -> Committer | None:
        return JVM

    def execute(self, statement: Statement, note: Note) -> Affected | None:
        self.notes.append(note)
        self.while_running()
        return _given(self.answers)

    def commit_of(self, table: str, operation_id: int) -> Commit | None:
        self.asked.append((table, operation_id))
        affected = _given(self.told)
        return affected and Commit(1, 0, "take", None, None, 0, "MERGE", affected)


def _given(answers: list[Affected | BaseException | None]) -> Affected | None:
    answer = answers.pop(0)
    if isinstance(answer, BaseException):
        raise answer
    return answer


class Run:
    """One operation of a loop, with all that happened in it."""

    def __init__(
        self,
        answers: Iterable[Affected | BaseException | None] = (),
        told: Iterable[Affected | BaseException | None] = (),
        *,
        lock_file: Path | None = None,
        at: Callable[[str], object] = lambda _: None,
        **config: Any,
    ) -> None:
        self.engine = FakeEngine(list(answers), list(told))
        self.wall = ManualClock()
        self.steps: list[str] = []
        self._at = at
        settings: dict[str, Any] = {"attempts": 3, "backoff_first": 1.0, "backoff_most": 8.0}
        self.loop = CommitLoop(
            self.engine,  # type: ignore[arg-type]
            QueueConfig(observer=self._observe, **(settings | config)),
            self.wall,
            lambda: 1.0,
        )
        self.table_lock = TableLock(lock_file, ManualClock())
        self.note = None if lock_file is None else JvmNote(lock_file)

    def _observe(self, step: str, operation: str) -> None:
        assert operation == "take"
        self.steps.append(step)
        self._at(step)

    def __call__(
        self,
        statement: Statement | None = MERGE,
        finish: Callable[[Affected], Any] = lambda affected: affected.total,
        attempt: Callable[[], object] = lambda: None,
    ) -> Any:
        def decide() -> Plan[Any]:
            attempt()
            return Plan(statement, finish, operation_id=OPERATION_ID)

        return self.loop.run("take", self.table_lock, decide)

    @property
    def executed(self) -> int:
        """How often a statement was sent."""
        return len(self.engine.notes)

    def is_free(self) -> bool:
        """Whether another thread can get the table lock at once."""
        got: list[bool] = []

        def get() -> None:
            got.append(self.table_lock._threads.acquire(blocking=False))
            if got[0]:
                self.table_lock._threads.release()

        thread = threading.Thread(target=get)
        thread.start()
        thread.join()
        return got[0]


@dataclass(frozen=True)
class Case:
    """What the engine answers, what the history tells, and what must come of it.

    Attributes:
        name: Of the case.
        answer: Makes what the statement returns or raises.
        expect: What the operation returns, or the class that it raises; `None`: it begins anew.
        told: What the history returns or raises; `...`: it is not asked.
        is_known: Whether the statement is known to have ended.
    """

    name: str
    answer: Callable[[], Affected | Exception | None]
    expect: int | type[Exception] | None
    told: Affected | Exception | Any | None = ...
    is_known: bool = True


CASES = (
    Case("it says what it changed", lambda: TWO, 2),
    Case("silent, the history tells", lambda: None, 2, TWO),
    Case("silent, the history has nothing", lambda: None, 0, None),
    Case("silent, the history is unreadable", lambda: None, CommitUnknownError, UnreadError()),
    Case("conflict", conflict, None),
    Case("refused by our guard", refused, None),
    Case("half created", half_created, None),
    Case("failed, but landed", failed, 2, TWO),
    Case("failed, and not landed", failed, StoreError, None),
    Case("failed, unreadable", failed, CommitUnknownError, UnreadError(), is_known=False),
    Case("lost, but landed", lost, 2, TWO),
    Case("lost, and not landed", lost, CommitUnknownError, None, is_known=False),
    Case("lost, unreadable", lost, CommitUnknownError, UnreadError(), is_known=False),
    Case("no such table", lambda: analysis("DELTA_TABLE_NOT_FOUND"), connect.AnalysisException),
    Case("out of reach before it was sent", lambda: StoreError("no way to Spark"), StoreError),
)
ANEW = [case for case in CASES if case.expect is None]


def run_case(run: Run, case: Case) -> None:
    """Run an operation to the end that the case is to have."""
    if isinstance(case.expect, type):
        with pytest.raises(TubeqError if issubclass(case.expect, TubeqError) else case.expect) as e:
            run()
        assert type(e.value) is case.expect
        if isinstance(e.value, CommitUnknownError):
            assert e.value.operation_id == OPERATION_ID
    else:
        # What begins anew is answered plainly the next time.
        assert run() == (2 if case.expect is None else case.expect)


def run_of(case: Case, **options: Any) -> Run:
    """A run in which the case happens."""
    answers = [case.answer(), *([TWO] if case.expect is None else [])]
    return Run(answers, [] if case.told is ... else [case.told], **options)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_commit_when_the_engine_answers_ends_as_its_history_says_and_names_the_jvm_until_it_is_known(
    case: Case, tmp_path: Path
) -> None:
    run = run_of(case, lock_file=tmp_path / "work.lock")
    assert run.note is not None
    noted = []
    run.engine.while_running = lambda: noted.append(run.note and run.note.read())

    run_case(run, case)

    assert run.engine.asked == ([] if case.told is ... else [("t", OPERATION_ID)])
    assert run.executed == (2 if case.expect is None else 1)
    assert run.loop.conflicts() == run.executed - 1
    assert run.is_free()
    assert noted == [JVM] * run.executed
    # A plain answer ends the statement, even when its history cannot be read afterwards.
    assert run.note.read() == (None if case.is_known else JVM)


@pytest.mark.parametrize(
    "found", [TWO, None, UnreadError()], ids=["found", "not found", "unreadable"]
)
def test_commit_when_the_way_breaks_after_it_landed_asks_the_history(
    found: Affected | Exception | None,
) -> None:
    def breaks(step: str) -> None:
        if step == "committed":
            raise lost()

    run = Run([TWO], [found], at=breaks)

    if found is TWO:
        assert run() == 2
    else:
        with pytest.raises(CommitUnknownError) as caught:
            run()
        assert caught.value.operation_id == OPERATION_ID
    assert run.executed == len(run.engine.asked) == 1


# -- each step ------------------------------------------------------------------------------------


def test_plan_without_a_statement_is_finished_without_a_commit() -> None:
    run = Run()

    assert run(None, lambda affected: (affected, "known")) == (Affected(), "known")

    assert run.steps == ["read"]
    assert (run.executed, run.engine.asked) == (0, [])


@pytest.mark.parametrize("stopped_at", ["read", "decided", "running", "committed", "finishing"])
def test_process_when_it_stops_at_a_step_does_nothing_that_follows(
    stopped_at: str, tmp_path: Path
) -> None:
    def stop(step: str) -> None:
        if step == stopped_at:
            raise Stop

    def finish(_: Affected) -> None:
        stop("finishing")

    run = Run([TWO], at=stop, lock_file=tmp_path / "work.lock")
    run.engine.while_running = lambda: stop("running")
    assert run.note is not None

    with pytest.raises(Stop):
        run(finish=finish)

    assert run.executed == (0 if stopped_at in ("read", "decided") else 1)
    assert run.engine.asked == []
    assert run.is_free()
    # Only a statement that had no answer may still be running.
    assert run.note.read() == (JVM if stopped_at == "running" else None)


@pytest.mark.parametrize("error", [NotTakenError("gone"), StoreError("no way"), ValueError("odd")])
def test_reading_when_it_fails_is_told_as_it_is_and_nothing_is_sent(error: Exception) -> None:
    def fail() -> None:
        raise error

    run = Run()

    with pytest.raises(type(error)) as caught:
        run(attempt=fail)

    assert caught.value is error
    assert (run.executed, run.loop.conflicts()) == (0, 0)


def test_reading_when_it_finds_its_memory_stale_begins_anew_before_anything_is_sent() -> None:
    memories = iter([Stale(), None])

    def read() -> None:
        error = next(memories)
        if error is not None:
            raise error

    run = Run([TWO])

    assert run(attempt=read) == 2
    assert (run.executed, run.loop.conflicts()) == (1, 1)
    assert run.steps == ["read", "conflicted", "read", "decided", "committed"]


@pytest.mark.parametrize(
    ("step", "error", "expected"),
    [
        ("finish", NotTakenError("never held"), NotTakenError),
        ("finish", StoreError("what was taken cannot be read back"), CommitUnknownError),
        ("finish", ConnectionError("nor this"), CommitUnknownError),
        ("sync", SyncError("the disk fails"), CommitUnknownError),
        ("sync", RuntimeError("can't start new thread"), CommitUnknownError),
    ],
)
def test_step_after_the_commit_when_it_fails_says_that_it_landed(
    step: str, error: Exception, expected: type[TubeqError], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    run = Run([TWO])
    if step == "sync":
        monkeypatch.setattr(run.table_lock, "sync_commit", fail)

    with pytest.raises(expected, match=str(error)) as caught:
        run(finish=fail)

    assert type(caught.value) is expected
    assert run.executed == 1
    if isinstance(caught.value, CommitUnknownError):
        assert "committed" in str(caught.value)
        assert caught.value.operation_id == OPERATION_ID
        assert caught.value.__cause__ is error


# -- the budget -----------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ANEW, ids=lambda case: case.name)
def test_commit_when_others_always_come_first_gives_up_after_its_attempts(case: Case) -> None:
    error = case.answer()
    run = Run([error] * 3)

    with pytest.raises(ConflictError, match=r"take: .* nothing was written") as caught:
        run()

    assert caught.value.__cause__ is error
    assert run.executed == run.loop.conflicts() == 3
    # Two waits between three attempts, each at most twice the one before.
    assert run.wall.monotonic() == 1.0 + 2.0
    assert run.is_free()


def test_commit_without_retries_gives_up_at_the_first_conflict_and_is_counted_with_the_rest() -> (
    None
):
    run = Run([conflict()])

    with pytest.raises(ConflictError):
        run.loop.run("take", run.table_lock, lambda: Plan(MERGE, lambda a: a), retries=False)

    assert run.executed == 1
    assert run.loop.conflicts() == run.loop.conflicts(run.table_lock) == 1


def test_commit_when_its_time_is_up_begins_no_further_attempt() -> None:
    run = Run([conflict()] * 3, attempts=9, retry_seconds=2.5)

    with pytest.raises(ConflictError):
        run()

    assert run.executed == 3


def test_commit_when_another_process_holds_the_table_looks_ahead_while_it_is_next(
    tmp_path: Path,
) -> None:
    lock_file = tmp_path / "work.lock"
    run = Run([TWO, TWO], lock_file=lock_file)
    assert run() == 2
    assert not run.engine.ahead
    with ThreadPoolExecutor(1) as pool:
        with LockFile(lock_file).holding():
            waiting = pool.submit(run)
            assert run.engine.looks.wait(30.0)
            assert run.executed == 1
        assert waiting.result(30.0) == 2
    assert run.engine.ahead == [MERGE.table]


def test_commit_when_it_begins_anew_lets_others_of_the_process_in_between() -> None:
    free: list[bool] = []

    def look(step: str) -> None:
        free.append(run.is_free())

    run = Run([conflict(), TWO], at=look)

    run()

    assert dict(zip(run.steps, free, strict=True)) == {
        "read": False,
        "decided": False,
        "conflicted": True,
        "committed": False,
    }
