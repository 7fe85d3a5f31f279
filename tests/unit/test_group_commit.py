"""Requests that wait during one commit share the next one, and an interrupted thread hands its turn on."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tubeq_spark.errors import CommitUnknownError
from tubeq_spark.runtime import current_tube
from tubeq_spark.runtime.current_tube import GroupCommit

WAIT = 30.0


class Commits:
    """Runs groups; the first one waits until it is let go."""

    def __init__(self, failure: BaseException | None = None) -> None:
        self.groups: list[list[int]] = []
        self.begun = threading.Event()
        self.may_end = threading.Event()
        self._failure = failure

    def __call__(self, requests: list[int]) -> list[str | Exception]:
        self.groups.append(requests)
        self.begun.set()
        assert self.may_end.wait(WAIT)
        if self._failure is not None and len(self.groups) == 2:
            raise self._failure
        return [ValueError(str(n)) if n < 0 else str(n) for n in requests]


def submit_behind_one(commits: Commits, numbers: list[int]) -> list[str | BaseException]:
    """Submit one request, and while it runs the others."""
    group = GroupCommit[int, str](commits)
    entered = threading.Barrier(len(numbers) + 1)

    def submit(number: int) -> str:
        entered.wait(WAIT)
        return group.submit(number)

    with ThreadPoolExecutor(len(numbers) + 1) as pool:
        first = pool.submit(group.submit, 0)
        assert commits.begun.wait(WAIT)
        rest = [pool.submit(submit, number) for number in numbers]
        entered.wait(WAIT)
        while len(group._waiting) < len(numbers):
            threading.Event().wait(0.001)
        commits.may_end.set()
        assert first.result(WAIT) == "0"
        return [future.exception(WAIT) or future.result() for future in rest]


@pytest.mark.parametrize(
    ("failure", "raised"),
    [
        (RuntimeError("x"), {RuntimeError}),
        (KeyboardInterrupt(), {KeyboardInterrupt, CommitUnknownError}),
    ],
)
def test_submit_when_the_commit_fails_or_is_interrupted_raises_for_all_of_the_group(
    failure: BaseException, raised: set[type[BaseException]]
) -> None:
    results = submit_behind_one(Commits(failure), [1, 2])

    assert {type(error) for error in results} == raised


def test_submit_when_threads_of_the_last_group_ask_again_gathers_them() -> None:
    groups: list[int] = []
    threads, rounds = 8, 20

    def run(requests: list[int]) -> list[int]:
        groups.append(len(requests))
        threading.Event().wait(0.02)
        return requests

    group = GroupCommit[int, int](run)

    def ask() -> None:
        for n in range(rounds):
            assert group.submit(n) == n

    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(ask) for _ in range(threads)]:
            done.result(WAIT)

    assert sum(groups) == threads * rounds
    # By turns of one and the rest it would be twice as many as rounds.
    assert len(groups) < 1.5 * rounds


def test_submit_when_a_waiting_thread_is_interrupted_hands_its_turn_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commits = Commits()
    group = GroupCommit[int, str](commits)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(group.submit, 0)
        assert commits.begun.wait(WAIT)
        with monkeypatch.context() as patched:
            patched.setattr(current_tube.threading, "Event", Interrupted)
            with pytest.raises(KeyboardInterrupt):
                group.submit(1)
        last = pool.submit(group.submit, 2)
        while len(group._waiting) < 1:
            threading.Event().wait(0.001)
        commits.may_end.set()

        assert [first.result(WAIT), last.result(WAIT)] == ["0", "2"]
    assert commits.groups == [[0], [2]]


def test_submit_when_the_first_thread_is_interrupted_while_others_gather_hands_its_turn_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = GroupCommit[int, int](lambda requests: [request * 2 for request in requests])

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(group._gathered, "wait_for", interrupted)
        with pytest.raises(KeyboardInterrupt):
            group.submit(1)

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(group.submit, 2).result(WAIT) == 4


class Interrupted(threading.Event):
    """An event whose wait is interrupted."""

    def wait(self, timeout: float | None = None) -> bool:
        """Be interrupted."""
        raise KeyboardInterrupt(timeout)
