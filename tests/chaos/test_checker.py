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


def called(verb: str, begin: float, end: float | None, life: str = "a", **entry: Any) -> Op:
    """A verb, by what the journal says of it: its arguments and what it answered."""
    told = ("ids", "items", "key", "count") if verb != "put" else ("items", "key")
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


@pytest.mark.parametrize(
    ("ops", "left"),
    [
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
    ],
    ids=[
        "stopped holder",
        "stopped taker",
        "stopped look",
        "again",
        "killed",
        "killed again",
        "ended unseen",
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
    ],
    ids=["task", "utube", "batch", "settled", "doubled", "lost", "taken", "rows"],
)
def test_findings_of_what_must_not_be_say_so(ops: list[Op], left: set[int], says: str) -> None:
    assert [text for text in found(*ops, left=left) if says in text]
