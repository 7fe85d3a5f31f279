"""A worker process whose call is overdue waits to be killed by its parent, for as long as it has one."""

from __future__ import annotations

import os
import threading
import uuid
from contextlib import nullcontext, suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tubeq_spark.cli import work
from tubeq_spark.cli.exit_codes import ExitCode
from tubeq_spark.workers import start
from tubeq_spark.workers.handlers import WorkReport

if TYPE_CHECKING:
    import pytest


class ExitedError(Exception):
    """The process has ended at once."""


def test_child_when_a_call_is_overdue_and_its_parent_was_killed_ends_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    codes = exit_codes_of_overdue_child(monkeypatch, parents=[7, 1])

    assert codes == [ExitCode.FAILED]


def test_child_when_a_call_is_overdue_and_nobody_reads_what_it_tells_ends_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Its parent was killed before it could look who that is.
    codes = exit_codes_of_overdue_child(monkeypatch, parents=[1], is_read=False)

    assert codes == [ExitCode.FAILED]


def test_child_when_it_begins_its_first_call_has_said_that_it_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    theirs, pipe = os.pipe()
    os.set_blocking(theirs, False)
    said: list[bytes] = []

    def loop(_tube: Any, _handler: Any, **_: Any) -> WorkReport:
        said.append(os.read(theirs, 100))
        return WorkReport(done=1)

    monkeypatch.setattr(start, "work", loop)
    queue = SimpleNamespace(session_uuid=uuid.uuid4(), tube=lambda _: None)
    call: Any = SimpleNamespace(
        queue=lambda **_: nullcontext(queue), logging=lambda _: nullcontext()
    )
    work._child(call, "t", None, {}, pipe)
    for each in (pipe, theirs):
        os.close(each)

    assert said[0].startswith(b'\n{"session": ')


def exit_codes_of_overdue_child(
    monkeypatch: pytest.MonkeyPatch, *, parents: list[int], is_read: bool = True
) -> list[int]:
    """Run the child's part of `tubeq work` with a loop whose only call is overdue; the last parent stays."""
    codes: list[int] = []

    def leave(code: int) -> None:
        codes.append(code)
        raise ExitedError

    def loop(_tube: Any, _handler: Any, *, ears: Any, **_: Any) -> None:
        ears.overdue([SimpleNamespace(task_id=1)])

    monkeypatch.setattr(os, "getppid", lambda: parents.pop(0) if len(parents) > 1 else parents[0])
    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setattr(start, "work", loop)
    queue = SimpleNamespace(session_uuid=uuid.uuid4(), tube=lambda _: None)
    call: Any = SimpleNamespace(
        queue=lambda **_: nullcontext(queue), logging=lambda _: nullcontext()
    )
    theirs, pipe = os.pipe()
    if not is_read:
        os.close(theirs)

    def run() -> None:
        with suppress(ExitedError):
            work._child(call, "t", None, {"time_limit": 5}, pipe)

    child = threading.Thread(target=run, daemon=True)
    child.start()
    child.join(30)
    for each in [pipe, *([theirs] if is_read else [])]:
        os.close(each)
    return codes
