"""Planted violations: the checker of histories finds each of them, and nothing in histories that are right."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.simulation.checker import check
from tests.simulation.history import NEVER, Actor, Call, History

US = 1_000_000
BEGIN = 1_000 * US


class Story:
    """A history that is written by hand: the calls follow each other, a second apart."""

    def __init__(self, kind: str = "fifottl", **options: Any) -> None:
        self.history = History(tubes={"t": {"type": kind, **options}})
        self.history.actors = {name: Actor(name) for name in "abc"}
        self.now, self._number, self._serial = BEGIN, 0, 0

    def call(
        self, actor: str, verb: str, result: Any = None, *, error: str | None = None, lasts: float = 0.0,
        outcome: str | None = None, failures: int = 0, text: str = "", **args: Any,
    ) -> None:  # fmt: skip
        """A call that begins now."""
        self.now += US
        self._number += 2
        calls = self.history.calls
        ended = self.now + round(lasts * US)
        calls.append(
            Call(
                actor,
                verb,
                "t",
                args,
                self.now,
                ended,
                self._number,
                self._number + 1,
                outcome or ("returned" if error is None else "raised"),
                result,
                error,
                text,
                f"s{actor}",
                failures=failures,
            )
        )
        self.now = ended

    def task(self, number: int, state: str = "r", **fields: Any) -> dict[str, Any]:
        """A task in a result: its id and its payload are the same number."""
        plain = {
            "task_id": number, "data": number, "pri": 0, "utube": None, "attempts": 0, "owner": None,
            "error": None, "unique": None, "state": state, "ttl": None, "ttr": None,
            "created": BEGIN + number * US, "next_event": None, "taken_at": None,
        }  # fmt: skip
        return {**plain, **fields}

    def put(self, **item: Any) -> int:
        """Put a task, and return its number."""
        number = (self.now - BEGIN) // US + 1
        delay, ttl = item.get("delay", 0), item.get("ttl")
        ttr = item.get("ttr", ttl)
        state = {"state": "~", "next_event": self.now + US + delay} if delay else {}
        ttl = ttl if ttl is None else ttl + delay
        same = {name: item[name] for name in ("pri", "utube", "unique") if name in item}
        items = [{"data": number, **item}]
        self.call("a", "put", self.task(number, ttl=ttl, ttr=ttr, **same, **state), items=items)
        return number

    def taken(
        self, number: int, actor: str = "a", attempts: int = 1, **fields: Any
    ) -> dict[str, Any]:
        """A taken task in a result of a call that begins next."""
        ttr = fields.get("ttr")
        end = None if ttr is None else self.now + US + ttr
        return self.task(
            number, "t", attempts=attempts, owner=f"s{actor}", next_event=end,
            taken_at=self.now + US, **fields,
        )  # fmt: skip

    def take(self, number: int | None, actor: str = "a", **fields: Any) -> None:
        """Take a task; `None` finds nothing."""
        found = None if number is None else self.taken(number, actor, **fields)
        self.call(actor, "take", found, n=1)

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.now += round(seconds * US)

    @property
    def rules(self) -> set[str]:
        """The rules that are violated."""
        again = History.of_text(self.history.text())
        return {violation.rule for violation in check(again)}


def test_nothing_is_found_in_a_right_history() -> None:
    story = Story(ttr=10 * US)
    first, second = story.put(ttr=10 * US), story.put(ttr=10 * US, delay=5 * US)
    story.take(first, ttr=10 * US)
    story.call("b", "ack", error="NotTakenError", ids=[first])
    story.wait(12)
    story.take(first, "b", attempts=2, ttr=10 * US)
    story.call("a", "ack", error="NotTakenError", ids=[first])
    story.call("b", "ack", story.task(first, "-", attempts=2, ttr=10 * US), ids=[first])
    story.take(second, "c", ttr=10 * US)
    counts = {"ready": 0, "taken": 1, "delayed": 0, "buried": 0, "done": 1, "total": 1}
    story.call("c", "statistics", {"tasks": counts})
    assert story.rules == set()


def test_a_call_of_unknown_outcome_may_have_come_or_not() -> None:
    for comes in (True, False):
        story = Story("fifo")
        number = story.put()
        story.take(number)
        story.call(
            "a", "ack", error="CommitUnknownError", outcome="unknown", failures=2, ids=[number]
        )
        if comes:
            story.call("b", "peek", error="TaskNotFoundError", ids=[number])
        else:
            story.call("b", "peek", story.taken(number), ids=[number])
        assert story.rules == set()


def test_a_put_of_unknown_outcome_may_be_counted_before_anybody_sees_it() -> None:
    for comes in (True, False):
        story = Story()
        items = [{"data": 1, "ttl": 20 * US}]
        story.call(
            "a", "put", error="CommitUnknownError", outcome="unknown", failures=2, items=items
        )
        counts = {"ready": 0, "taken": 0, "delayed": 0, "buried": 0, "done": 0, "total": 0}
        story.call("b", "statistics", {"tasks": {**counts, "ready": int(comes), "total": comes}})
        story.wait(30)
        story.call("b", "sweep")
        story.call("b", "statistics", {"tasks": {**counts, "done": int(comes)}})
        assert story.rules == set()


@pytest.mark.parametrize("verb", ["close", "release_all"])
def test_a_verb_that_changes_nothing_does_not_end_a_delay_for_slower_clocks(verb: str) -> None:
    story = Story()
    story.history.actors["a"] = Actor("a", skew=4 * US)
    story.put(delay=60 * US)
    created = story.history.calls[0].result["created"] + 4 * US
    story.history.calls[0].result.update(created=created, next_event=created + 60 * US)
    story.wait(60)
    story.call("a", verb)
    counts = {"ready": 0, "taken": 0, "delayed": 1, "buried": 0, "done": 0, "total": 1}
    story.call("b", "statistics", {"tasks": counts})
    assert story.rules == set()
    story.wait(10)
    story.call("b", "statistics", {"tasks": counts})
    assert story.rules == {"count"}


def _lost(story: Story) -> None:
    story.put()
    story.take(None)


def _doubled(story: Story) -> None:
    number = story.put()
    story.take(number)
    story.take(number, "b", attempts=2)


def _doubled_within_its_lease(story: Story) -> None:
    number = story.put(ttr=10 * US)
    story.take(number, ttr=10 * US)
    story.wait(5)
    story.take(number, "b", attempts=2, ttr=10 * US)


def _back_after_its_ack(story: Story) -> None:
    number = story.put()
    story.take(number)
    story.call("a", "ack", story.task(number, "-", attempts=1), ids=[number])
    story.take(number, "b", attempts=2)


def _acked_by_another(story: Story) -> None:
    number = story.put()
    story.take(number)
    story.call("b", "ack", story.task(number, "-", attempts=1), ids=[number])


def _refused_within_its_lease(story: Story) -> None:
    number = story.put(ttr=30 * US)
    story.take(number, ttr=30 * US)
    story.call("a", "ack", error="NotTakenError", ids=[number])


def _acked_too_late(story: Story) -> None:
    number = story.put(ttr=3 * US)
    story.take(number, ttr=3 * US)
    story.wait(5)
    story.call("a", "ack", story.task(number, "-", attempts=1, ttr=3 * US), ids=[number])


def _taken_before_its_delay_is_over(story: Story) -> None:
    number = story.put(delay=60 * US)
    story.take(number)


def _out_of_order(story: Story) -> None:
    story.put()
    second = story.put()
    story.take(second)


def _against_its_priority(story: Story) -> None:
    first = story.put(pri=1)
    story.put(pri=0)
    story.take(first, pri=1)


def _wrong_attempts(story: Story) -> None:
    number = story.put()
    story.take(number, attempts=2)


def _wrong_payload_for_an_id(story: Story) -> None:
    number = story.put()
    story.call("a", "peek", {**story.task(number), "data": 77}, ids=[number])


def _missing_in_a_count(story: Story) -> None:
    story.put()
    counts = {"ready": 0, "taken": 0, "delayed": 0, "buried": 0, "done": 0, "total": 0}
    story.call("a", "statistics", {"tasks": counts})


def _done_without_an_end(story: Story) -> None:
    story.put()
    counts = {"ready": 1, "taken": 0, "delayed": 0, "buried": 0, "done": 1, "total": 1}
    story.call("a", "statistics", {"tasks": counts})


def _done_twice(story: Story) -> None:
    number = story.put()
    story.take(number)
    story.call("a", "ack", error="CommitUnknownError", outcome="unknown", failures=2, ids=[number])
    counts = {"ready": 0, "taken": 0, "delayed": 0, "buried": 0, "done": 2, "total": 0}
    story.call("a", "statistics", {"tasks": counts})
    story.history.is_faulty = True


def _counted_twice(story: Story) -> None:
    items = [{"data": 1}]
    story.call("a", "put", error="CommitUnknownError", outcome="unknown", failures=2, items=items)
    counts = {"ready": 2, "taken": 0, "delayed": 0, "buried": 0, "done": 0, "total": 2}
    story.call("b", "statistics", {"tasks": counts})
    story.history.is_faulty = True


def _kept_by_a_closed_session(story: Story) -> None:
    number = story.put(ttr=30 * US)
    story.take(number, ttr=30 * US)
    story.call("a", "close")
    counts = {"ready": 0, "taken": 1, "delayed": 0, "buried": 0, "done": 0, "total": 1}
    story.call("b", "statistics", {"tasks": counts})


def _missing_in_a_listing(story: Story) -> None:
    story.put()
    story.call("a", "tasks_by_state", [], state="r")


def _in_another_listing(story: Story) -> None:
    number = story.put(delay=60 * US)
    found = story.task(number, "~", next_event=BEGIN + number * US + 60 * US)
    story.call("a", "tasks_by_state", [found], state="r")


def _kicked_from_nothing(story: Story) -> None:
    story.put()
    story.call("a", "kick", 1, count=1)


def _dropped_with_taken_tasks(story: Story) -> None:
    number = story.put()
    story.take(number)
    story.call("b", "drop")


def _refused_drop(story: Story) -> None:
    story.put()
    story.call("a", "drop", error="TubeBusyError")


def _taken_from_a_paused_tube(story: Story) -> None:
    number = story.put()
    story.call("a", "pause")
    story.wait(8)
    story.take(number, "b")


def _unknown_error(story: Story) -> None:
    story.call("a", "take", error="KeyError", n=1)


def _not_tried_again(story: Story) -> None:
    story.call("a", "take", error="ConflictError", lasts=20, n=1)


def _refused_a_living_session(story: Story) -> None:
    story.take(story.put(), "b")
    story.call("a", "identify", error="SessionError", other="sb")


def _joined_a_dead_session(story: Story) -> None:
    story.take(story.put(), "b")
    story.history.actors["b"] = Actor("b", silent=((story.now, NEVER),))
    story.wait(300)
    story.call("a", "identify", 1, other="sb")


def _unknown_although_no_request_failed(story: Story) -> None:
    story.call("a", "put", error="CommitUnknownError", outcome="unknown", items=[{"data": 1}])
    story.history.is_faulty = True


def _counts_less_puts(story: Story) -> None:
    story.history.quiet = -1
    story.put()
    story.call("a", "close")
    counts = {"ready": 1, "taken": 0, "delayed": 0, "buried": 0, "done": 0, "total": 1}
    calls = dict.fromkeys(("put", "take", "ack", "touch", "delete", "kick"), 0)
    story.call("b", "statistics", {"tasks": counts, "calls": calls})


def _explains_another_state(story: Story) -> None:
    number = story.put()
    story.call("a", "why", f"Task {number} is delayed without an end.", ids=[number])


def _explains_with_a_wrong_number(story: Story) -> None:
    story.put()
    number = story.put()
    story.call("a", "why", f"Task {number} waits: 2 tasks come before it.", ids=[number])


def _next_although_others_come_before(story: Story) -> None:
    story.put()
    number = story.put()
    story.call("a", "why", f"Task {number} is next: the next take gets it.", ids=[number])


def _put_twice_under_one_key(story: Story) -> None:
    story.call("a", "put_again", 1)


def _refused_a_key_that_is_free(story: Story) -> None:
    number = story.put(unique="k")
    story.take(number, unique="k")
    gone = story.task(number, "-", attempts=1, unique="k")
    story.call("a", "ack", gone, ids=[number])
    story.call("a", "put", {**gone, "data": None}, items=[{"data": 77, "unique": "k"}])


def _refused_to_kick_a_buried_task(story: Story) -> None:
    number = story.put()
    story.call("a", "bury", story.task(number, "!"), ids=[number])
    story.call("a", "kick_many", error="TaskNotFoundError", ids=[number])


def _never_put(story: Story) -> None:
    story.call("a", "take", story.taken(5), n=1)


def _too_many(story: Story) -> None:
    numbers = [story.put(), story.put()]
    story.call("a", "take_many", [story.taken(number) for number in numbers], n=1)


def _longer_lease_than_its_ttr(story: Story) -> None:
    number = story.put(ttr=3 * US)
    found = story.taken(number, ttr=3 * US)
    story.call("a", "take", {**found, "next_event": story.now + 60 * US}, n=1)


_PLANTED = {
    _lost: "not found",
    _doubled: "task",
    _doubled_within_its_lease: "task",
    _back_after_its_ack: "task",
    _acked_by_another: "task",
    _refused_within_its_lease: "refused",
    _acked_too_late: "task",
    _taken_before_its_delay_is_over: "task",
    _out_of_order: "order",
    _against_its_priority: "order",
    _wrong_attempts: "task",
    _wrong_payload_for_an_id: "same task",
    _missing_in_a_count: "count",
    _done_without_an_end: "done",
    _done_twice: "done",
    _counted_twice: "count",
    _kept_by_a_closed_session: "count",
    _missing_in_a_listing: "listing",
    _in_another_listing: "listing",
    _kicked_from_nothing: "kick",
    _dropped_with_taken_tasks: "task",
    _refused_drop: "busy",
    _taken_from_a_paused_tube: "pause",
    _unknown_error: "error",
    _not_tried_again: "error",
    _refused_a_living_session: "session",
    _joined_a_dead_session: "session",
    _unknown_although_no_request_failed: "error",
    _counts_less_puts: "calls",
    _explains_another_state: "why",
    _explains_with_a_wrong_number: "why",
    _next_although_others_come_before: "why",
    _put_twice_under_one_key: "put_again",
    _refused_a_key_that_is_free: "unique",
    _refused_to_kick_a_buried_task: "refused",
    _never_put: "unknown task",
    _too_many: "too many",
    _longer_lease_than_its_ttr: "task",
}


def test_errors_of_sessions_that_may_be_over_and_of_long_conflicts_are_right() -> None:
    story = Story()
    story.call("a", "take", error="ConflictError", lasts=121, n=1)
    story.take(story.put(), "b")
    story.call("b", "close")
    story.call("a", "identify", error="SessionError", other="sb")
    assert not {"error", "session"} & story.rules


@pytest.mark.parametrize(
    ("text", "is_found"), [("the log begins after version 10", False), ("", True)]
)
def test_one_lost_answer_makes_a_commit_unknown_where_its_version_is_removed(
    text: str, is_found: bool
) -> None:
    story = Story()
    error = {"error": "CommitUnknownError", "outcome": "unknown", "failures": 1}
    story.call("a", "put", text=text, items=[{"data": 1}], **error)
    story.history.is_faulty = True
    assert ("error" in story.rules) is is_found


@pytest.mark.parametrize("plant", _PLANTED, ids=lambda plant: plant.__name__.strip("_"))
def test_a_planted_violation_is_found(plant: Any) -> None:
    story = Story()
    plant(story)
    assert _PLANTED[plant] in story.rules


def test_two_tasks_of_a_sub_queue_are_not_taken_at_a_time() -> None:
    story = Story("utube")
    first, second = story.put(utube="x"), story.put(utube="x")
    story.take(first, utube="x")
    story.take(second, "b", utube="x")
    assert story.rules == {"exclusive"}


def test_more_tasks_of_a_sub_queue_than_it_allows() -> None:
    story = Story("utube", parallel=2)
    numbers = [story.put(utube="x") for _ in range(3)]
    for number, actor in zip(numbers, "abc", strict=True):
        story.take(number, actor, utube="x")
    assert story.rules == {"exclusive"}


def test_a_sub_queue_out_of_order() -> None:
    story = Story("utube")
    story.put(utube="x")
    second = story.put(utube="x")
    story.call("b", "take", story.taken(second, "b", utube="x"), n=1)
    assert "order" in story.rules


def test_a_sub_queue_over_its_rate() -> None:
    story = Story("utube", rate=[1, 10 * US])
    for _ in range(2):
        number = story.put(utube="x")
        story.take(number, utube="x")
        story.call("a", "ack", story.task(number, "-", utube="x", attempts=1), ids=[number])
    assert story.rules == {"rate"}


def test_a_rate_ends_by_the_clock_of_the_take_that_used_it() -> None:
    story = Story("utube", rate=[1, 10 * US])
    story.history.actors["b"] = Actor("b", skew=4 * US)
    served, _ = story.put(utube="x"), story.put(utube="x")
    story.take(served, "b", utube="x")
    story.call("b", "ack", story.task(served, "-", utube="x", attempts=1), ids=[served])
    story.now += 11 * US
    story.call("a", "take", None, n=1)
    assert story.rules == set()
    story.now += 4 * US
    story.call("a", "take", None, n=1)
    assert story.rules == {"not found"}


def test_a_rival_with_a_task_that_nobody_has_put() -> None:
    story = Story("utube")
    story.take(story.put(utube="x"), utube="x")
    story.take(99, "b", utube="x")
    *_, first, rival = story.history.calls
    story.history.calls[-2] = replace(first, last=rival.last + 1)
    assert story.rules == {"unknown task"}


def test_more_taken_tasks_than_the_tube_allows() -> None:
    story = Story("fifo", most_taken=1)
    for actor in "ab":
        story.take(story.put(), actor)
    assert story.rules == {"most_taken"}


def test_more_tasks_than_the_capacity() -> None:
    story = Story("limfifottl", capacity=1)
    story.put()
    story.put()
    assert story.rules == {"capacity"}


def test_a_put_that_is_refused_though_there_is_room() -> None:
    story = Story("limfifottl", capacity=1)
    story.call("a", "put", None, items=[{"data": 7}])
    assert story.rules == {"capacity"}


def test_two_tasks_of_one_key() -> None:
    story = Story("fifo")
    story.put(unique="k")
    story.put(unique="k")
    assert story.rules == {"unique"}


def test_a_task_that_is_not_buried_after_its_attempts() -> None:
    story = Story("fifo", max_attempts=1)
    number = story.put()
    story.take(number)
    story.call("a", "release", story.task(number, attempts=1), ids=[number])
    assert "task" in story.rules


def test_a_task_of_a_dead_session_that_is_never_released() -> None:
    story = Story("fifo")
    number = story.put()
    story.take(number)
    story.history.actors["a"] = Actor("a", silent=((story.now, NEVER),))
    story.wait(300)
    story.take(None, "b")
    assert story.rules == {"not found"}


def test_a_clock_that_is_ahead_ends_a_lease_earlier() -> None:
    story = Story()
    story.history.actors["b"] = Actor("b", skew=4 * US)
    number = story.put(ttr=6 * US)
    story.take(number, ttr=6 * US)
    story.wait(1.5)
    found = story.taken(number, "b", attempts=2, ttr=6 * US)
    found["next_event"] += 4 * US
    story.call("b", "take", found, n=1)
    story.call("a", "ack", error="NotTakenError", ids=[number])
    assert story.rules == set()
