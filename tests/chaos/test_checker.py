"""The checker finds in journals what must not be, and nothing in those of a pause."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chaos.checker import findings
from tests.chaos.history import History
from tests.chaos.journal import Life, Op
from tests.chaos.plan import SESSION_TTR, TUBES

ROW = ["t", None, 0, 0.0]
UTUBE_ROWS = [["t", "u", 0, 0.0], ["s", "u", 0, 0.0]]
HOSTS = next(tube for tube in TUBES if tube.rate is not None)


def called(verb: str, begin: float, end: float | None, life: str = "a", **entry: Any) -> Op:
    """A verb, by what the journal says of it: its arguments and what it answered."""
    told = ("ids", "items", "key", "count") if verb != "put" else ("items", "key")
    told = (*told, "how", "since", "attempt")
    arguments = {name: entry.pop(name) for name in told if name in entry}
    tube, error = entry.pop("tube", "work"), entry.pop("error", None)
    result = {name.removeprefix("its_"): value for name, value in entry.items()}
    return Op(life, verb, tube, begin, arguments, end, result, error)


def found(*ops: Op, left: set[int] = frozenset()) -> list[str]:  # type: ignore[assignment]
    """What is wrong with these verbs, after which these tasks are left of the first one's tube."""
    lives = [Life(name, [op for op in ops if op.life == name], []) for name in "abc"]
    drained = {tube.name: set(left) if tube.name == ops[0].tube else set() for tube in TUBES}
    return findings(History(lives), drained)


PUT = called("put", 0, 1, items=[ROW], its_ids=[1])
PUT_ARROW = called("put", 0, 1, items=[ROW], key="k", its_count=1, its_ends=[1, 1])
PUT_KILLED = called("put", 0, None, items=[ROW], key="k")
TAKEN = {"its_tasks": [[1, "t", None, 0, 1]]}
TAKEN_AGAIN = {"its_tasks": [[1, "t", None, 0, 2]]}
ACK_REFUSED = called("ack", 16, 17, ids=[1], error="NotTakenError")
LONG = 2 * SESSION_TTR


def loop(end: float, **counts: int) -> Op:
    """A round of a loop of work, by what it counts."""
    counted = {f"its_{name}": counts.get(name, 0) for name in ("done", "failed", "buried")}
    return called("work", 1.5, end, **counted)


def begun(begin: float, end: float, since: float | None = None, **tasks: Any) -> Op:
    """A call of a loop's handler; `since`: what had ended when it looked whether the task is held."""
    return called("take", begin, end, how="work", since=end if since is None else since, **tasks)


def hosts(seconds: float, count: int) -> list[Op]:
    """Takes of one task each from a sub-queue with limits, one every few seconds; all are acked at the end."""
    rows = [[f"t{number}", "u", 0, 0.0] for number in range(count)]
    ids = [*range(1, count + 1)]
    takes = [
        called(
            "take",
            2 + seconds * number,
            2 + seconds * (number + 0.5),
            tube=HOSTS.name,
            its_tasks=[[ids[number], f"t{number}", "u", 0, 1]],
        )
        for number in range(count)
    ]
    put = called("put", 0, 1, tube=HOSTS.name, items=rows, its_ids=ids)
    return [put, *takes, called("ack", 50, 51, tube=HOSTS.name, ids=ids)]


def ended(verb: str, begin: float, end: float, attempt: int = 1, **entry: Any) -> Op:
    """What the loop is to make of the task then."""
    return called(verb, begin, end, how="work", ids=[1], attempt=attempt, **entry)


@pytest.mark.parametrize(
    ("ops", "left"),
    [
        (
            # As many at a time as may be.
            hosts(1.0, HOSTS.parallel),
            set(),
        ),
        (
            # Stopped after it took, for longer than its lease: somebody else has it by then.
            [
                PUT,
                called("take", 2, 3 + LONG, **TAKEN),
                called("take", 8, 9, "b", **TAKEN_AGAIN),
                called("ack", 10, 11, "b", ids=[1]),
                ACK_REFUSED,
            ],
            set(),
        ),
        (
            # Stopped before it took: somebody else has had it and given it back meanwhile.
            [
                PUT,
                called("take", 2, 3 + LONG, **TAKEN_AGAIN),
                called("take", 3, 4, "b", **TAKEN),
                called("release", 5, 6, "b", ids=[1]),
                called("ack", 12, 13, ids=[1]),
            ],
            set(),
        ),
        (
            # Stopped between the take and the look at the batch.
            [PUT, called("take", 2, 3 + LONG, count=1, its_tasks=[], its_count=1)],
            {1},
        ),
        (
            [
                PUT_ARROW,
                called("put again", 2, 3, items=[ROW], key="k", its_count=0),
                called("take", 4, 5, **TAKEN),
            ],
            {1},
        ),
        ([PUT_KILLED], set()),
        (
            [
                PUT_KILLED,
                called("put again", 2, 3, "b", items=[ROW], key="k", its_count=1, its_ends=[1, 1]),
                called("take", 4, 5, **TAKEN),
            ],
            {1},
        ),
        (
            # Both were answered after the last look at the log before a power cut, and may be there.
            [
                PUT_ARROW,
                called("take", 2, None, **TAKEN),
                called("ack", 4, None, ids=[1]),
            ],
            set(),
        ),
        (
            [
                PUT,
                loop(9, done=1, failed=1),
                begun(2, 3, **TAKEN),
                ended("release", 4, 9),
                begun(5, 6, **TAKEN_AGAIN),
                ended("ack", 7, 9, attempt=2),
            ],
            set(),
        ),
        (
            # Stopped while a call was at it, it has taken the task anew when that call ends.
            [
                PUT,
                loop(23, done=1),
                begun(2, 3, **TAKEN),
                begun(14, 15, **TAKEN_AGAIN),
                ended("ack", 16, 23, its_unsure=True),
                ended("ack", 22, 23, attempt=2, its_unsure=True),
            ],
            set(),
        ),
        (
            # Stopped after it had looked whether the task is held.
            [
                PUT,
                loop(17),
                begun(2, 3, since=7, **TAKEN),
                called("take", 8, 9, "b", **TAKEN_AGAIN),
                called("ack", 10, 11, "b", ids=[1]),
                ended("ack", 15, 17, its_unsure=True),
            ],
            set(),
        ),
        (
            # Somebody else has buried it meanwhile, and a third one has kicked it.
            [
                PUT,
                called("take", 1.2, 1.4, "b", **TAKEN),
                loop(17),
                begun(8, 9, since=13, **TAKEN_AGAIN),
                called("bury", 10, 10.5, "b", ids=[1]),
                called("take", 11, 12, "c", its_tasks=[[1, "t", None, 0, 3]]),
                called("ack", 12, 13, "c", ids=[1]),
                ended("ack", 15, 17, attempt=2, its_unsure=True),
            ],
            set(),
        ),
    ],
    ids=[
        "parallel",
        "stopped holder",
        "stopped taker",
        "stopped look",
        "again",
        "killed",
        "killed again",
        "ended unseen",
        "loop",
        "loop has it anew",
        "loop stopped",
        "loop robbed",
    ],
)
def test_findings_of_what_may_be_are_none(ops: list[Op], left: set[int]) -> None:
    assert found(*ops, left=left) == []


@pytest.mark.parametrize(
    ("ops", "left", "says"),
    [
        (
            # Each holds it at the end of both takes, and is not refused.
            [
                PUT,
                called("take", 2, 3 + LONG, **TAKEN),
                called("take", 8, 9, "b", **TAKEN_AGAIN),
                called("ack", 12, 13, ids=[1]),
                called("release", 13, 14, "b", ids=[1]),
            ],
            set(),
            "HELD TWICE: task t",
        ),
        (
            [
                called("put", 0, 1, tube="sites", items=UTUBE_ROWS, its_ids=[1, 2]),
                called("take", 2, 13, tube="sites", its_tasks=[[1, "t", "u", 0, 1]]),
                called("take", 8, 9, "b", tube="sites", its_tasks=[[2, "s", "u", 0, 1]]),
                called("ack", 14, 15, tube="sites", ids=[1]),
                called("ack", 15, 16, "b", tube="sites", ids=[2]),
            ],
            set(),
            "HELD TWICE: utube u",
        ),
        (
            hosts(1.0, HOSTS.parallel + 1),
            set(),
            f"HELD TWICE: {HOSTS.parallel + 1} tasks of utube u",
        ),
        (
            hosts(0.1, HOSTS.rate.tasks + 1),  # type: ignore[union-attr]
            set(),
            "TOO SOON: 5 tasks of utube u",
        ),
        (
            [PUT, called("take", 2, 3, count=1, its_tasks=[], its_count=1)],
            {1},
            "1 tasks of a batch are not in its table",
        ),
        (
            [
                PUT,
                called("take", 2, 3, **TAKEN),
                called("ack", 4, 5, ids=[1], its_settled=0),
            ],
            set(),
            "0 of 1 tasks were settled",
        ),
        (
            [PUT_ARROW, called("put again", 2, 3, items=[ROW], key="k", its_count=1)],
            {1},
            "DOUBLE: t was put by",
        ),
        (
            [PUT_KILLED, called("put again", 2, 3, "b", items=[ROW], key="k", its_count=0)],
            set(),
            "LOST: t was put",
        ),
        (
            # A take alone ends no task.
            [PUT_ARROW, called("take", 2, None, **TAKEN)],
            set(),
            "LOST: t was put",
        ),
        (
            [PUT_ARROW, called("take", 2, 3, its_tasks=[[7, "t", None, 0, 1]])],
            {7},
            "not in the order of rows",
        ),
        (
            [
                PUT,
                loop(17),
                begun(2, 3, since=9, **TAKEN),
                called("take", 8, 9, "b", **TAKEN_AGAIN),
                called("ack", 10, 11, "b", ids=[1]),
                ended("ack", 15, 17, its_unsure=True),
            ],
            set(),
            "BEGUN LATE: t",
        ),
        (
            [
                PUT,
                loop(17, done=1),
                begun(2, 3, **TAKEN),
                ended("ack", 4, 17, its_unsure=True),
                called("take", 18, 19, "b", **TAKEN_AGAIN),
            ],
            {1},
            "COUNTED: 1 done, not 0 to 0",
        ),
        (
            [PUT, loop(5), begun(2, 3, **TAKEN), ended("ack", 4, 5)],
            set(),
            "COUNTED: 0 done, not 1 to 1",
        ),
        (
            [PUT, loop(5, failed=1), begun(2, 3, **TAKEN), ended("bury", 4, 5)],
            {1},
            "COUNTED: 0 buried, not 1 to 1",
        ),
        (
            [PUT, loop(5, failed=1), begun(2, 3, **TAKEN), ended("release", 4, 5)],
            set(),
            "LOST: t was never acked",
        ),
        (
            [
                PUT,
                loop(17, done=1),
                begun(2, 3, **TAKEN),
                ended("ack", 9, 17),
                called("take", 5, 6, "b", **TAKEN_AGAIN),
            ],
            set(),
            "HELD TWICE: task t",
        ),
        (
            [PUT, called("work", 2, 3, error="NotTakenError")],
            {1},
            "(NotTakenError)",
        ),
    ],
    ids=[
        "task",
        "utube",
        "parallel",
        "rate",
        "batch",
        "settled",
        "doubled",
        "lost",
        "taken",
        "rows",
        "begun late",
        "lost and counted",
        "done and not counted",
        "buried and not counted",
        "failed and acked",
        "loop held twice",
        "loop's error",
    ],
)
def test_findings_of_what_must_not_be_say_so(ops: list[Op], left: set[int], says: str) -> None:
    assert [text for text in found(*ops, left=left) if says in text]
