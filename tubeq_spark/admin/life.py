"""The life of a queue object: creates the objects that it shares with its tubes, and closes it.

To close it releases the tasks of its session, as far as possible if Spark is lost. If nobody refers to a queue object any more, the thread of its heart closes it in the same way. So the
objects of this module refer to no queue object, tube or batch: they have records of tubes, and open the
tubes from these.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tubeq_spark.admin import tubes
from tubeq_spark.admin.sweeper import compact_rows_at_times
from tubeq_spark.errors import CommitUnknownError, StoreError, TubeNotFoundError
from tubeq_spark.model.states import QueueState
from tubeq_spark.runtime.context import QueueContext
from tubeq_spark.storage.outcome import is_missing_table
from tubeq_spark.verbs import expire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tubeq_spark.admin.choose_engine import Engines
    from tubeq_spark.clock import Clock
    from tubeq_spark.config import QueueConfig
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.storage.engine import Engine
    from tubeq_spark.storage.opened_location import OpenedLocation
    from tubeq_spark.storage.tables.registry import TubeRecord

log = logging.getLogger(__name__)


def make_context(
    engines: Engines, opened: OpenedLocation, clock: Clock, config: QueueConfig
) -> QueueContext:
    """Create the shared objects of a queue object, with a new session that has no lease yet."""
    queue = QueueContext(
        engines.rows,
        engines.spark,
        engines.put_files,
        engines.close,
        opened,
        clock,
        config,
    )
    queue.session.after_beat = functools.partial(_look_after, queue.for_its_heart())
    # This runs at the start, because a session may be too short for a beat, and end without a close.
    queue.session.helper.begin = functools.partial(compact_rows_at_times, queue.for_its_heart())
    return queue


def _look_after(queue: QueueContext) -> None:
    """Do the regular work of the heart's helper."""
    queue.unknown_takes.look()
    compact_rows_at_times(queue)


def drop(queue: QueueContext, record: TubeRecord, *, with_taken: bool = False) -> None:
    """Drop a tube of a queue object; with `with_taken` also its taken tasks.

    Raises:
        TubeBusyError: Tasks are taken; the tube stays as it is.
        TubeNotFoundError: It was dropped before.
    """
    with queue.used.lock:
        tubes.drop(queue, record, with_taken=with_taken)
        queue.used.forget(record)
        if not queue.used.temporary:
            queue.session.keep_no_longer()


def leave_for_good(engine: Engine, steps: Sequence[tuple[str, Callable[[], object]]]) -> None:
    """Run the steps of closing; log those that fail because Spark is unreachable.

    Args:
        engine: The engine.
        steps: What stays behind if a step is not done, for the log, or "" if that is not worth a log line; and what
            runs the step, and returns False if it was not done.
    """
    left: list[str] = []
    for leaves, step in steps:
        # If Spark has not answered one step, the others do not wait for it again.
        is_gone = bool(left) and engine.unreachable
        if is_gone or not _is_done(engine, step):
            left.append(leaves)
    if any(left):
        log.warning("left behind until the session's lease ends: %s", "; ".join(filter(None, left)))


def _is_done(engine: Engine, step: Callable[[], object]) -> bool:
    """Run a step of closing, and repeat it once if it fails; not if Spark is unreachable."""
    for is_last in (False, True):
        if not engine.answers():
            return False
        try:
            if step() is not False:
                return True
        except (CommitUnknownError, StoreError):
            if is_last and not engine.unreachable:
                raise
        except Exception as error:
            if not is_missing_table(error):
                raise
            # The location was removed.
            return False
    return False


@dataclass(slots=True)
class Closing:
    """The end of a queue object.

    Attributes:
        queue: The context that its tubes share.
        context_of: Makes the context of a tube from its record.
    """

    queue: QueueContext
    context_of: Callable[[TubeRecord], TubeContext]
    #: Whether it has left its tasks to others that share the session.
    _leaves_tasks: bool = field(default=False, init=False)

    def close(self) -> None:
        """Release the session's tasks, drop temporary tubes, and leave. A second call does nothing."""
        queue = self.queue
        with queue.used.lock:
            if queue.life.state is not QueueState.RUNNING:
                return
            queue.life.state = QueueState.ENDING
            try:
                queue.session.stop()
                leave_for_good(queue.engine, self._steps())
            finally:
                end(queue)

    def _steps(self) -> list[tuple[str, Callable[[], object]]]:
        """The commits of a close, each with the message if Spark is unreachable."""
        session, used = self.queue.session, self.queue.used
        steps: list[tuple[str, Callable[[], object]]] = []
        if session.registered:
            taken_from = ", ".join(sorted(used.opened)) or "tubes of others"
            steps.append((f"what was taken from {taken_from}", self.give_back))
        for record in used.temporary:
            end = functools.partial(self._drop_temporary, record)
            steps.append((f"temporary tube {record.name}", end))
        tidy = functools.partial(compact_rows_at_times, self.queue)
        return [*steps, ("", self.leave), ("", tidy)]

    def _drop_temporary(self, record: TubeRecord) -> None:
        with contextlib.suppress(TubeNotFoundError):  # somebody dropped it before
            # If taken tasks were released first, waiting consumers would take them again at once.
            drop(self.queue, record, with_taken=True)

    def give_back(self) -> bool:
        """Release the session's tasks, unless a live queue object shares the session.

        Returns:
            Whether nothing is left. Commits: a release for each tube with held tasks.
        """
        queue, session = self.queue, self.queue.session
        if not session.registered:
            return True
        if session.others_alive():
            # The others go on with this queue object's tasks, but they do not know those of unknown takes.
            queue.unknown_takes.look()
            self._leaves_tasks = True
            return True
        return self._release(self._may_hold())

    def leave(self) -> None:
        """Leave the session; release what was left to others if they have left it, too.

        Commits: 1 to the sessions; as `give_back` and 1 more if they have.
        """
        session = self.queue.session
        session.leave()
        # If several leave at the same moment, each may have found the others alive.
        if self._leaves_tasks and not session.others_alive():
            self._release(known_tubes(self.queue))
            session.leave()

    def _release(self, records: Iterable[TubeRecord]) -> bool:
        queue, session = self.queue, self.queue.session
        is_all = True
        for record in records:
            try:
                ctx = self.context_of(record)
                # Another queue object may join the session meanwhile, and take tasks for it.
                expire.release_taken(ctx, session.owner, unless=session.others_alive)
                ctx.events.notify()
            except Exception:
                # Close the other tubes first; tasks that stay taken are ready when the lease ends.
                log.exception("tasks of tube %s were not released", record.name)
                is_all = False
                if queue.engine.unreachable:
                    break
        queue.held_tasks.clear()
        if is_all:
            # Queue objects that have joined meanwhile go on with the rest.
            queue.unknown_takes.look()
        return is_all

    def _may_hold(self) -> Iterable[TubeRecord]:
        """The tubes in which the session may hold tasks."""
        if not self.queue.session.announced:
            return list(self.queue.used.opened.values())
        return known_tubes(self.queue)


def end(queue: QueueContext) -> None:
    """Set the state to closed, and close the engines."""
    queue.life.state = QueueState.WAITING
    queue.close_engines()
    queue.readers.leave()


def known_tubes(queue: QueueContext) -> list[TubeRecord]:
    """All live tubes of known types, sorted by name."""
    known = [r for r in queue.registry.records() if r.type in queue.drivers]
    return sorted(known, key=lambda record: record.name)


def close_when_forgotten(queue: QueueContext) -> None:
    """Let the thread of its heart close a queue object when nobody refers to it any more.

    Without a beating heart no tasks are held. At the end of the process nothing is closed: held tasks come
    back when the session's lease ends.
    """
    heart, of_heart = queue.session.heart, queue.for_its_heart()
    heart.leave = Closing(of_heart, functools.partial(tubes.make_context, of_heart)).close
    weakref.finalize(queue.life, heart.forget).atexit = False
