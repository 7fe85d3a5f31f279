"""Decides whether the owner of tasks, or of a temporary tube, is dead, which needs a dead mark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tubeq_spark.rules.microseconds import us_from_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tubeq_spark.config import QueueConfig
    from tubeq_spark.rules.membership import SessionTable, SessionView
    from tubeq_spark.runtime.session import Session

__all__ = ["DeadSessionJudge"]


class _Judge(Protocol):
    """The parts of a queue object that it needs."""

    @property
    def config(self) -> QueueConfig: ...

    @property
    def session(self) -> Session: ...

    @property
    def sessions(self) -> SessionTable: ...


class DeadSessionJudge:
    """Judges owners at one moment; the sessions are read once, when the first is judged."""

    def __init__(
        self, queue: _Judge, now_us: int, views: Mapping[str, SessionView] | None = None
    ) -> None:
        """Judge for a queue object.

        Args:
            queue: The queue object; its own session is alive.
            now_us: The moment.
            views: What is written about the sessions, if it was read already.
        """
        self._queue = queue
        self._now_us = now_us
        self._views = views
        self._dead: set[str] = set()

    def is_dead(self, owner: str) -> bool:
        """Whether an owner (session and epoch) has the dead mark, or gets it now.

        What was read may be old, and not know a session that has just begun. It only ever spares a
        commit: who is not seen alive gets the mark by a statement that reads its session's rows in
        its own transaction, or is alive. At most one commit.
        """
        queue = self._queue
        if owner == queue.session.owner:
            return False
        if owner not in self._dead and self._is_marked(owner):
            self._dead.add(owner)
        return owner in self._dead

    def _is_marked(self, owner: str) -> bool:
        queue = self._queue
        if self._views is None:
            self._views = queue.sessions.views()
        name, _, epoch_text = owner.partition("/")
        epoch, view = int(epoch_text), self._views.get(name)
        skew = us_from_seconds(queue.config.skew) or 0
        if view is not None:
            if epoch <= view.dead_epoch:
                return True
            if view.alive(self._now_us, skew, epoch):
                return False
        return queue.sessions.mark_dead(name, epoch, self._now_us, skew)
