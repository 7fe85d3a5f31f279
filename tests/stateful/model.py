"""Predicts the results of the state machines by the same sessions and tube as rows in memory (`tests/oracle`).

Each verb is called on both sides, and both must give the same tasks, or refuse with the same words.
Of what time does, the tube in memory writes down what it must (a sweep everything, a verb what was due
to the tasks that it changes), and `pending` is what anybody may have written down beside.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tests.oracle.queue import OracleQueue
from tests.row_oracle import time_events, written
from tubeq_spark import PutItem, TubeqError
from tubeq_spark.clock import to_us
from tubeq_spark.runtime.events import tasks_of

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tests.oracle.tube import OracleTube
    from tubeq_spark import Task
    from tubeq_spark.model.stored_task import StoredTask
    from tubeq_spark.testing import ManualClock

TIME = "time"
"""In place of a session: who ends delays, leases and lives."""
_TIME_EVENTS = frozenset({"delay", "ttr", "ttl"})


def agree(
    real: Callable[[], Sequence[Task | None]], expected: Callable[[], Sequence[Task | None]]
) -> None:
    """Both give the same tasks, or both refuse with the same words."""
    refusal, wanted = None, list[Any]()
    try:
        wanted = _comparable(expected())
    except TubeqError as error:
        refusal = error
    if refusal is None:
        assert _comparable(real()) == wanted
        return
    with pytest.raises(type(refusal)) as caught:
        real()
    assert str(caught.value) == str(refusal)


def _comparable(tasks: Iterable[Task | None]) -> list[Task | None]:
    # The sessions of both sides have names of their own.
    return [task and replace(task, owner=task.owner and "held") for task in tasks]


class Model:
    """A tube in memory, as several sessions use it; it is given the ids of the other side."""

    def __init__(
        self, clock: ManualClock, ttrs: Mapping[str, float], type_name: str, **options: Any
    ) -> None:
        """Open it.

        Args:
            clock: That of the other side.
            ttrs: The sessions by name, with their ttr.
            type_name: Of the tube.
            options: Of the tube.
        """
        self._clock = clock
        self._ids: list[int] = []
        self._max_attempts, self._backoff = options.get("max_attempts"), options.get("backoff")
        #: What happened, in order: (session or TIME, event, task id).
        self.events: list[tuple[str, str, int]] = []
        #: What time had done to tasks that were truncated: written down before, or never.
        self._truncated: list[tuple[str, int]] = []
        self.queues: dict[str, OracleQueue] = {}
        for who, ttr in ttrs.items():
            self._open(who, ttr)
        self.first.create_tube("model", type_name, **options)
        self.tubes: dict[str, OracleTube] = {}
        for who, queue in self.queues.items():
            self.tubes[who] = queue["model"]
            self.tubes[who].on_task_change(self._noting(who))

    def _open(self, who: str, ttr: float) -> None:
        beside = self.first if self.queues else None
        queue = self.queues[who] = OracleQueue(self._clock, beside=beside)
        queue.cfg(ttr=ttr)
        # As many ids as are asked for: those that the other side has given.
        queue.session.task_ids = lambda _count, _after: SimpleNamespace(  # type: ignore[assignment,method-assign,misc,return-value]
            task_id=self._ids.__getitem__
        )

    @property
    def first(self) -> OracleQueue:
        """The queue object that opened the place."""
        return next(iter(self.queues.values()))

    @property
    def now(self) -> dt.datetime:
        """The moment of both sides."""
        return self._clock.now()

    # -- what is there -----------------------------------------------------------------------

    @property
    def rows(self) -> dict[int, StoredTask]:
        """The tasks as they were last written down, by their ids."""
        return self.first.place.find("model").rows

    def effective(self) -> list[Task]:
        """The tasks as they are by now."""
        tube = next(iter(self.tubes.values()))
        return [row.task() for row in tube.verbs.seen()]

    def counts(self) -> dict[str, int]:
        """How many tasks there are by effective state, and all together."""
        tube = next(iter(self.tubes.values()))
        counts = tasks_of(tube.verbs.counts())
        del counts["done"]
        return counts

    def held_by(self, who: str) -> list[StoredTask]:
        """What a session holds, in leases that last."""
        owner, now_us = self.queues[who].session.owner, to_us(self.now)
        return [row for row in self.rows.values() if row.held_by(owner, now_us)]

    # -- what happened -----------------------------------------------------------------------

    def calls(self, sessions: Iterable[str] | None = None) -> Counter[str]:
        """How often each event happened, by some sessions or by all, time included."""
        chosen = None if sessions is None else set(sessions)
        return Counter(event for who, event, _ in self.events if chosen is None or who in chosen)

    def pending(self) -> list[tuple[str, int]]:
        """What time has done that need not be written down: (event, task id)."""
        now_us = to_us(self.now)
        return self._truncated + [
            (event, row.task_id)
            for row in self.rows.values()
            for event, _ in time_events(
                row, written(row, now_us, self._max_attempts, self._backoff)
            )
        ]

    def _noting(self, who: str) -> Callable[[Task, str], None]:
        def note(task: Task, event: str) -> None:
            by = TIME if self._is_by_time(task, event) else who
            self.events.append((by, event, task.task_id))

        return note

    def _is_by_time(self, task: Task, event: str) -> bool:
        if event != "bury":
            return event in _TIME_EVENTS
        worn = self._max_attempts is not None and task.attempts >= self._max_attempts
        return worn and self.events[-1:] == [(TIME, "ttr", task.task_id)]

    # -- verbs that need more than the tube's ------------------------------------------------

    def put(self, who: str, ids: Iterable[int], items: Iterable[PutItem]) -> list[Task]:
        """Put tasks under the ids that they have on the other side."""
        self._ids = list(ids)
        return self.tubes[who].put_many(items)

    def truncate(self, who: str) -> None:
        """Remove everything."""
        self._truncated = self.pending()
        self.tubes[who].truncate()
