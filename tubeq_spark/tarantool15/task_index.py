"""Finds the tubes of the 1.5 dialect by name, and the tubes of tasks by id.

Ids are unique in a location and never used twice. So a remembered tube of an id stays correct until
the tube is dropped, and the task with it. For other ids it searches the tubes one by one: a query
for their names, and two small queries for each tube, of which the second reads only the files that
can contain the id.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from tubeq_spark.admin.tubes import context_of, perform_in
from tubeq_spark.errors import InvalidOptionError, TubeNotFoundError
from tubeq_spark.model.tube_types import BUILT_IN
from tubeq_spark.tarantool15.tasks import USUAL_PRI, stored_pri

if TYPE_CHECKING:
    from collections.abc import Callable

    from tubeq_spark.queue import Queue
    from tubeq_spark.tube import Tube

T = TypeVar("T")

#: Default ttl and ttr in seconds of tubes that the dialect creates.
_TTL, _TTR = 25 * 86_400.0, 60.0
#: The most ids whose tubes are remembered.
_MOST_HOMES = 100_000


class TaskIndex:
    """The supported tubes of a queue, and the tubes of the tasks that were returned."""

    def __init__(self, queue: Queue) -> None:
        """Search in `queue`."""
        self._queue = queue
        self._tubes: dict[str, Tube] = {}
        self._homes: dict[int, Tube] = {}
        self._lock = threading.Lock()

    def in_tube(self, name: Any, verb: Callable[[Tube], T]) -> T:
        """Run a verb on a tube, which is created if it does not exist.

        A remembered tube is not looked up again, because that would cost a query. If it was dropped
        meanwhile, the tube that now has its name is used.

        Args:
            name: The name of the tube.
            verb: The verb. On a dropped tube it raises `TubeNotFoundError` and writes nothing.

        Raises:
            InvalidOptionError: The name is not valid, or the tube has no priorities.
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
        """Return the tube that has this name now.

        Raises:
            TubeNotFoundError: No tube has this name.
            InvalidOptionError: The tube has no priorities.
        """
        tube = self._queue.tube(name)
        if not _fits(tube):
            msg = (
                f"tube {name!r} is a {tube.type}: the 1.5 dialect needs a type with priorities, "
                "delays and lives, such as fifottl, without aging"
            )
            raise InvalidOptionError(msg)
        with self._lock:
            self._tubes[name] = tube
        return tube

    def tubes(self) -> list[Tube]:
        """Return all tubes that the dialect supports."""
        found = []
        for name in self._queue.tubes():
            # Skip tubes that it does not support, that have unknown types, or that were dropped.
            with contextlib.suppress(InvalidOptionError, TubeNotFoundError):
                found.append(self.tube(name))
        return found

    def remember(self, task_id: int, tube: Tube) -> None:
        """Remember the tube of a task."""
        with self._lock:
            self._homes.pop(task_id, None)
            self._homes[task_id] = tube
            if len(self._homes) > _MOST_HOMES:
                del self._homes[next(iter(self._homes))]

    def home(self, task_id: int) -> Tube | None:
        """Return the tube of a task; `None` if it is in no supported tube."""
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
    driver, order = context_of(tube).tube_type, context_of(tube).table.order
    has_options = driver.put_options >= BUILT_IN["fifottl"].put_options
    return driver.timed and order[0] == "pri" and has_options


def _has(tube: Tube, task_id: int) -> bool:
    try:
        return perform_in(tube, lambda ctx: bool(ctx.reader.by_ids([task_id])))
    except TubeNotFoundError:
        return False
