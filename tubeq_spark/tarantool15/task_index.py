"""Where the tubes and tasks of the 1.5 dialect are: tubes by name, tasks by nothing but their id.

Ids are unique in a location and never given twice, so what is remembered of one stays true until its
tube is dropped, and then the task is gone with it. What is not remembered is looked for in the tubes
one by one: a query for their names, and two small ones for each, of which the second reads only the
files that can hold the id.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from tubeq_spark.admin.tubes import context_of
from tubeq_spark.errors import InvalidOptionError, TubeNotFoundError
from tubeq_spark.rules.tube_types import TIMED_OPTIONS
from tubeq_spark.runtime.context import perform
from tubeq_spark.tarantool15.order import USUAL_PRI, stored_pri

if TYPE_CHECKING:
    from collections.abc import Callable

    from tubeq_spark.queue import Queue
    from tubeq_spark.tube import Tube

__all__ = ["TaskIndex"]

T = TypeVar("T")

#: Life and time to run of what was put without, in seconds; for tubes that are created here.
_TTL, _TTR = 25 * 86_400.0, 60.0
#: Ids whose tubes are remembered.
_MOST_HOMES = 100_000


class TaskIndex:
    """The tubes of a queue that suit the dialect, and the tubes of tasks that passed through it."""

    def __init__(self, queue: Queue) -> None:
        """Look in `queue`."""
        self._queue = queue
        self._tubes: dict[str, Tube] = {}
        self._homes: dict[int, Tube] = {}
        self._lock = threading.Lock()

    def in_tube(self, name: Any, verb: Callable[[Tube], T]) -> T:
        """Do something in a tube, which is created if there is none.

        A tube that is remembered is not asked for again: it costs a query. When it was dropped
        meanwhile, the one that has its name by now is found.

        Args:
            name: Of the tube.
            verb: What to do; of a tube that was dropped it raises `TubeNotFoundError`, and has
                written nothing.

        Raises:
            InvalidOptionError: The name is none, or the tube has no priorities.
        """
        with self._lock:
            known = self._tubes.get(name) if isinstance(name, str) else None
        if known is not None:
            try:
                return verb(known)
            except TubeNotFoundError:
                with self._lock:
                    self._tubes.pop(name, None)
        try:
            tube = self.tube(name)
        except TubeNotFoundError:
            self._queue.create_tube(
                name, "fifottl", if_not_exists=True, ttl=_TTL, ttr=_TTR, pri=stored_pri(USUAL_PRI)
            )
            tube = self.tube(name)
        return verb(tube)

    def tube(self, name: Any) -> Tube:
        """The tube that has this name now.

        Raises:
            TubeNotFoundError: There is none.
            InvalidOptionError: It has no priorities.
        """
        tube = self._queue.tube(name)
        if not _fits(tube):
            msg = (
                f"tube {name!r} is a {tube.type}: the 1.5 dialect needs a type with priorities, "
                "delays and lives, such as fifottl"
            )
            raise InvalidOptionError(msg)
        with self._lock:
            self._tubes[name] = tube
        return tube

    def tubes(self) -> list[Tube]:
        """All tubes that suit the dialect."""
        found = []
        for name in self._queue.tubes():
            # Others are not for it, of a type that is not known here, or gone by now.
            with contextlib.suppress(InvalidOptionError, TubeNotFoundError):
                found.append(self.tube(name))
        return found

    def remember(self, task_id: int, tube: Tube) -> None:
        """Remember where a task is."""
        with self._lock:
            self._homes.pop(task_id, None)
            self._homes[task_id] = tube
            if len(self._homes) > _MOST_HOMES:
                del self._homes[next(iter(self._homes))]

    def forget(self, task_id: int) -> None:
        """Forget a task that is gone."""
        with self._lock:
            self._homes.pop(task_id, None)

    def home(self, task_id: int) -> Tube | None:
        """The tube of a task; `None`: it is in none that suits the dialect."""
        with self._lock:
            tube = self._homes.get(task_id)
        if tube is not None:
            return tube
        for candidate in self.tubes():
            if _has(candidate, task_id):
                self.remember(task_id, candidate)
                return candidate
        return None


def _fits(tube: Tube) -> bool:
    driver = context_of(tube).driver
    return driver.timed and driver.order[0] == "pri" and driver.put_options >= TIMED_OPTIONS


def _has(tube: Tube, task_id: int) -> bool:
    ctx = context_of(tube)
    try:
        return perform(ctx, lambda: bool(ctx.reader.by_ids([task_id])))
    except TubeNotFoundError:
        return False
