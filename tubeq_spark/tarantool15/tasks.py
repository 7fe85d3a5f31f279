"""Tasks as Tarantool 1.5 had them: fields, order, names of states and calls, and the search for their tubes.

Tarantool 1.5 takes tasks by (ipri, pri): an internal priority that `urgent` and `requeue` set, and
the program's own from 0 to 255, higher first. In this dialect the rank is normally 0, below 0 after
`urgent` and above 0 after `requeue`. The column `pri` contains both, as `rank * 256 + 255 -
priority`. So a task always keeps its id and its priority, and tubes are still in the order (pri,
task_id). Tasks that other verbs put with a `pri` of 0 to 255 are between the urgent and the
requeued tasks.

Ids are unique in a location and never used twice. So a remembered tube of an id stays correct until
the tube is dropped, and the task with it. For other ids it searches the tubes one by one: a query
for their names, and two small queries for each tube, of which the second reads only the files that
can contain the id.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar

from tubeq_spark.admin.tubes import context_of, perform_in
from tubeq_spark.clock import from_us
from tubeq_spark.errors import InvalidOptionError, TubeNotFoundError
from tubeq_spark.model import validation
from tubeq_spark.model.tube_types import BUILT_IN
from tubeq_spark.model.validation import PRI_MAX
from tubeq_spark.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tubeq_spark.queue import Queue
    from tubeq_spark.tube import Tube

#: The priority of a task that was put without one.
USUAL_PRI = 127
_PRIORITIES = 256
#: The first and last stored `pri` of rank 0.
USUAL_FIRST, USUAL_LAST = 0, _PRIORITIES - 1
#: All ranks fit into the INT of the column.
_LAST_RANK = PRI_MAX // _PRIORITIES
_FIRST_RANK = -_LAST_RANK - 1
_OPEN = ("ready", "delayed", "taken", "buried")
#: The counters of `Queue.statistics`; `dig` is `kick` there.
_CALLS = {n: n for n in ("put", "take", "ack", "release", "bury", "delete", "ttl")} | {
    "dig": "kick"
}


def stored_pri(priority: int, rank: int = 0) -> int:
    """The `pri` of a task with a priority from 0 to 255 (the highest) at a rank."""
    return rank * _PRIORITIES + USUAL_LAST - priority


def priority_of(stored: int) -> int:
    """The priority in a stored `pri`."""
    return USUAL_LAST - stored % _PRIORITIES


def rank_of(stored: int) -> int:
    """The rank in a stored `pri`."""
    return stored // _PRIORITIES


def rank_before(first: int | None) -> int:
    """The rank of an urgent task: before the first stored `pri` (`None` if none is below those of rank 0).

    If no lower rank is left, it shares the first one.
    """
    rank = 0 if first is None else min(0, rank_of(first))
    return max(_FIRST_RANK, rank - 1)


def rank_behind(last: int | None) -> int:
    """The rank of a requeued task: behind the last stored `pri` (`None` if none is above those of rank 0).

    If no higher rank is left, it shares the last one.
    """
    rank = 0 if last is None else max(0, rank_of(last))
    return min(_LAST_RANK, rank + 1)


@dataclass(frozen=True, slots=True)
class Task15(Task):
    """A task of the 1.5 dialect: `pri` is 0 to 255, higher first; `data` is the list of its fields.

    Attributes:
        tube: The name of its tube.
    """

    tube: str = ""

    @property
    def status(self) -> str:
        """Its state as a word: ready, taken, done, buried or delayed."""
        return self.state.name.lower()

    def as_tuple15(self) -> tuple[Any, ...]:
        """Return `(task_id, tube, status, field, ...)`, the task of Tarantool 1.5."""
        data = self.data if isinstance(self.data, list) else [self.data]
        return (self.task_id, self.tube, self.status, *data)


def task15(task: Task, tube: Tube) -> Task15:
    """Convert a task of a tube."""
    seen = {f.name: getattr(task, f.name) for f in fields(Task)}
    return Task15(**seen | {"pri": priority_of(task.pri), "tube": tube.name})


def old_pri(value: Any) -> int:
    """Check a priority of the 1.5 dialect."""
    allowed = "a whole number from 0 to 255 (the highest)"
    return validation.count("pri", value, 0, 255, allowed)


def put_options(
    delay: float | None, ttl: float | None, ttr: float | None, pri: int | None
) -> dict[str, Any]:
    """Check the options of a put, and convert them to those of `Tube.put`."""
    priority = USUAL_PRI if pri is None else old_pri(pri)
    # In 1.5, 0 means the default, and its clients send 0 for options that are not given.
    return {
        "delay": delay,
        "ttl": None if ttl is None else validation.seconds("ttl", ttl) or None,
        "ttr": None if ttr is None else validation.seconds("ttr", ttr) or None,
        "pri": stored_pri(priority),
    }


def meta(task: Task, tube: Tube) -> dict[str, Any]:
    """Return the metadata of a task by its names in 1.5."""
    return {
        "task_id": task.task_id,
        "tube": tube.name,
        "status": task.state.name.lower(),
        "event": task.next_event,
        "ipri": USUAL_PRI + rank_of(task.pri),
        "pri": priority_of(task.pri),
        "cid": task.owner,
        "created": task.created,
        "ttl": task.ttl,
        "ttr": task.ttr,
        "cbury": None,
        "ctaken": task.attempts,
        "now": from_us(context_of(tube).queue.now_us()),
    }


def statistics15(found: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """Convert the statistics of a tube to the names of 1.5."""
    tasks = {name: found["tasks"][name] for name in (*_OPEN, "total")}
    # The other stored tasks are those that the verb `done` keeps.
    tasks["done"] = tasks["total"] - sum(tasks[name] for name in _OPEN)
    return {"tasks": tasks, "calls": {name: found["calls"][of] for name, of in _CALLS.items()}}


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
        known = self._tubes.get(name) if isinstance(name, str) else None
        if known is not None:
            try:
                return verb(known)
            except TubeNotFoundError:
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
        tube = self._homes.get(task_id)
        if tube is None:
            tube = next((other for other in self.tubes() if _has(other, task_id)), None)
            if tube is not None:
                self.remember(task_id, tube)
        return tube


def _fits(tube: Tube) -> bool:
    driver, order = context_of(tube).tube_type, context_of(tube).table.order
    has_options = driver.put_options >= BUILT_IN["fifottl"].put_options
    return driver.timed and order[0] == "pri" and has_options


def _has(tube: Tube, task_id: int) -> bool:
    try:
        return perform_in(tube, lambda ctx: bool(ctx.reader.by_ids([task_id])))
    except TubeNotFoundError:
        return False
