"""The checker of a chaos finds what it is to find, in journals that tell of it."""

from __future__ import annotations

import pytest

from tests.chaos.checker import findings
from tests.chaos.history import History
from tests.chaos.journal import Life, Op


class Story:
    """Journals that are made up, of takers a, b and so on."""

    def __init__(self, tube: str) -> None:
        self.tube = tube
        self.lives: dict[str, Life] = {}
        self.there: set[int] = set()

    def op(
        self,
        who: str,
        verb: str,
        begin: float,
        end: float | None,
        arguments: dict[str, object],
        result: dict[str, object] | None = None,
        error: str | None = None,
    ) -> Story:
        life = self.lives.setdefault(who, Life(who, [], []))
        known = {} if result is None or end is None or error else result
        life.ops.append(Op(who, verb, self.tube, begin, arguments, end, known, error))
        return self

    def put(
        self,
        begin: float,
        end: float | None,
        *ids: int,
        utube: str | None = None,
        error: str | None = None,
    ) -> Story:
        items = [[f"t{task_id}", utube, 0, 0.0] for task_id in ids]
        return self.op("p", "put", begin, end, {"items": items}, {"ids": [*ids]}, error)

    def take(
        self,
        who: str,
        begin: float,
        end: float | None,
        *ids: int,
        utube: str | None = None,
        nth: int = 1,
    ) -> Story:
        tasks = [[task_id, f"t{task_id}", utube, 0, nth] for task_id in ids]
        return self.op(who, "take", begin, end, {"count": len(ids)}, {"tasks": tasks})

    def settle(
        self,
        who: str,
        verb: str,
        begin: float,
        end: float | None,
        *ids: int,
        error: str | None = None,
    ) -> Story:
        return self.op(who, verb, begin, end, {"ids": [*ids], "delay": 0.0}, {}, error)

    def left(self, *ids: int) -> Story:
        self.there = {*ids}
        return self

    def findings(self) -> list[str]:
        history = History(self.lives.values())
        drained: dict[str, set[int]] = {tube: set() for tube in history.items}
        return findings(history, drained | {self.tube: self.there})


def work() -> Story:
    return Story("work")


def sites() -> Story:
    return Story("sites")


FINE = {
    "acked": work().put(0, 1, 1).take("a", 2, 3, 1).settle("a", "ack", 4, 5, 1),
    "left": work().put(0, 1, 1).take("z", 9, 10, 1).left(1),
    "unknown put, not done": work().put(0, None, 1, 2),
    "unknown put, done": work().put(0, None, 1, 2).take("z", 8, 9, 1, 2).left(1, 2),
    "refused put": work().put(0, 1, 1, error="ConflictError"),
    "unknown ack, done": work().put(0, 1, 1).take("a", 2, 3, 1).settle("a", "ack", 4, None, 1),
    "unknown ack, not done": work()
    .put(0, 1, 1)
    .take("a", 2, 3, 1)
    .settle("a", "ack", 4, None, 1)
    .take("z", 9, 10, 1, nth=2)
    .left(1),
    "released": work()
    .put(0, 1, 1)
    .take("a", 2, 3, 1)
    .settle("a", "release", 4, 5, 1)
    .take("b", 4.5, 6, 1, nth=2)
    .settle("b", "ack", 7, 8, 1),
    "lease over": work()
    .put(0, 1, 1)
    .take("a", 2, 3, 1)
    .take("b", 9, 10, 1, nth=2)
    .settle("a", "ack", 11, 12, 1, error="NotTakenError")
    .settle("b", "ack", 13, 14, 1),
    "buried by who held it before": work()
    .put(0, 1, 1)
    .take("a", 2, 3, 1)
    .take("b", 9, 10, 1, nth=2)
    .settle("a", "bury", 11, 12, 1)
    .left(1),
    "buried in a sub-queue by who held it before": sites()
    .put(0, 1, 1, 2, utube="u")
    .take("a", 2, 3, 1, utube="u")
    .take("b", 9, 10, 1, utube="u", nth=2)
    .settle("b", "release", 11, 12, 1)
    .settle("a", "bury", 13, 14, 1)
    .take("c", 15, 16, 2, utube="u")
    .settle("c", "ack", 17, 18, 2)
    .left(1),
    "utube in order": sites()
    .put(0, 1, 1, 2, utube="u")
    .take("a", 2, 3, 1, utube="u")
    .settle("a", "ack", 4, 5, 1)
    .take("b", 4.5, 6, 2, utube="u")
    .settle("b", "ack", 7, 8, 2),
    "single, after a killed take": Story("single")
    .put(0, 1, 1, 2)
    .op("a", "take", 2, None, {"count": 1})
    .take("b", 4, 5, 2)
    .left(1, 2)
    .take("z", 19, 20, 1),
}

WRONG = {
    "lost after its put": (work().put(0, 1, 1), "LOST"),
    "lost after a take": (work().put(0, 1, 1).take("a", 2, 3, 1), "LOST"),
    "lost after a refused ack": (
        work().put(0, 1, 1).take("a", 2, 3, 1).settle("a", "ack", 4, 5, 1, error="NotTakenError"),
        "LOST",
    ),
    "put in part": (work().put(0, None, 1, 2).take("z", 8, 9, 1).left(1), "1 of 2"),
    "put though refused": (
        work().put(0, 1, 1, error="ConflictError").take("z", 8, 9, 1).left(1),
        "refused",
    ),
    "put twice": (
        work()
        .put(0, 1, 1)
        .op("z", "take", 8, 9, {}, {"tasks": [[1, "t1", None, 0, 1], [5, "t1", None, 0, 1]]})
        .left(1, 5),
        "was put as",
    ),
    "acked twice": (
        work()
        .put(0, 1, 1)
        .take("a", 2, 3, 1)
        .settle("a", "ack", 6, 8, 1)
        .take("b", 2.5, 5, 1, nth=2)
        .settle("b", "ack", 6, 7, 1),
        "DOUBLE",
    ),
    "back after its ack": (
        work().put(0, 1, 1).take("a", 2, 3, 1).settle("a", "ack", 4, 5, 1).left(1),
        "DOUBLE",
    ),
    "held twice": (
        work()
        .put(0, 1, 1)
        .take("a", 2, 3, 1)
        .take("b", 4, 5, 1, nth=2)
        .settle("a", "ack", 6, 7, 1)
        .settle("b", "ack", 8, 9, 1, error="NotTakenError"),
        "HELD TWICE",
    ),
    "held twice within the shortest lease": (
        work().put(0, 1, 1).take("a", 2, 2.1, 1).take("b", 3, 3.5, 1, nth=2).left(1),
        "HELD TWICE",
    ),
    "taken as if for the first time": (
        work().put(0, 1, 1).take("a", 2, 3, 1).take("b", 19, 20, 1).left(1),
        "for the 1th time",
    ),
    "utube held twice": (
        sites()
        .put(0, 1, 1, 2, utube="u")
        .take("a", 2, 3, 1, utube="u")
        .take("b", 4, 5, 2, utube="u")
        .settle("a", "ack", 6, 7, 1)
        .settle("b", "ack", 8, 9, 2),
        "HELD TWICE: utube u",
    ),
    "utube out of order": (
        sites()
        .put(0, 1, 1, 2, utube="u")
        .take("a", 2, 3, 2, utube="u")
        .settle("a", "ack", 4, 5, 2)
        .take("z", 9, 10, 1, utube="u")
        .left(1),
        "t2 before t1",
    ),
    "utube out of order after a release": (
        sites()
        .put(0, 1, 1, 2, utube="u")
        .take("a", 2, 3, 1, utube="u")
        .settle("a", "release", 4, 5, 1)
        .take("b", 6, 7, 2, utube="u")
        .settle("b", "ack", 8, 9, 2)
        .take("z", 19, 20, 1, utube="u", nth=2)
        .left(1),
        "t2 before t1",
    ),
    "single out of order": (
        Story("single").put(0, 1, 1, 2).take("a", 2, 3, 2).take("z", 9, 10, 1).left(1, 2),
        "1 tasks out of order",
    ),
    "single out of order by more than a killed take": (
        Story("single")
        .put(0, 1, 1, 2, 3)
        .op("a", "take", 2, None, {"count": 1})
        .take("b", 4, 5, 3)
        .take("z", 19, 20, 1, 2)
        .left(1, 2, 3),
        "2 tasks out of order, 1 excused",
    ),
    "more than the capacity": (
        Story("small").op("a", "look", 0, 1, {}, {"counts": {"total": 41}}),
        "41 tasks in a tube of 40",
    ),
    "unexpected error": (
        work().settle("a", "touch", 0, 1, error="TypeError"),
        "TypeError",
    ),
    "taken though never put": (work().take("a", 0, 1, 1), "was never put"),
    "not as it was put": (
        work().put(0, 1, 1).take("z", 2, 3, 1, utube="x").left(1),
        "as it was put",
    ),
}


@pytest.mark.parametrize("name", FINE)
def test_findings_when_all_is_as_it_should_be_are_none(name: str) -> None:
    assert FINE[name].findings() == []


@pytest.mark.parametrize("name", WRONG)
def test_findings_when_something_is_wrong_say_what(name: str) -> None:
    story, said = WRONG[name]
    assert any(said in text for text in story.findings()), story.findings()
