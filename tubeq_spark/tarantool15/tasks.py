"""Tasks as Tarantool 1.5 had them: fields, order, names, verbs that `Tube` does not have, and the search for tubes.

Tarantool 1.5 takes tasks by (ipri, pri): an internal priority that `urgent` and `requeue` set, and
the program's own from 0 to 255, higher first. In this dialect the rank is normally 0, below 0 after
`urgent` and above 0 after `requeue`. The column `pri` contains both, as `rank * 256 + 255 -
priority`. So a task always keeps its id and its priority, and tubes are still in the order (pri,
task_id). Tasks that other verbs put with a `pri` of 0 to 255 are between the urgent and the
requeued tasks.

Each verb here (urgent, requeue, release with a ttl, done) makes one statement to the tube, as in
`put` and `settle`. If it is interrupted before the statement, nothing has changed. After the
statement the change is done. If another commit moves the task first, the guard fails, and the verb
reads again. `urgent` only inserts, so it conflicts with nothing. A task that is put ahead of it
between its read and its statement stays ahead.

Ids are unique in a location and never used twice. So a remembered tube of an id stays correct until
the tube is dropped, and the task with it. For other ids it searches the tubes one by one: a query
for their names, and two small queries for each tube, of which the second reads only the files that
can contain the id.
"""

from __future__ import annotations

import contextlib
import threading
from copy import deepcopy
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from tubeq_spark.admin.tubes import context_of, perform_in
from tubeq_spark.clock import from_us, plus
from tubeq_spark.errors import InvalidOptionError, TubeNotFoundError
from tubeq_spark.model import validation
from tubeq_spark.model.changes import Become
from tubeq_spark.model.stored_task import PutCall, StoredTask, after_giving_back
from tubeq_spark.model.tube_types import BUILT_IN
from tubeq_spark.model.validation import PRI_MAX
from tubeq_spark.storage.expression import integer
from tubeq_spark.storage.expression import row as columns
from tubeq_spark.storage.query import greatest, least
from tubeq_spark.task import Task, TaskState
from tubeq_spark.verbs import put
from tubeq_spark.verbs.settle import Verb, fresh, settle

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tubeq_spark.queue import Queue
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.tube import Tube

T = TypeVar("T")

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


def put_options(
    delay: float | None, ttl: float | None, ttr: float | None, pri: int | None
) -> dict[str, Any]:
    """Check the options of a put, and convert them to those of `Tube.put`."""
    allowed = "a whole number from 0 to 255 (the highest)"
    priority = USUAL_PRI if pri is None else validation.count("pri", pri, 0, 255, allowed)
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


# -- the verbs that `Tube` does not have --------------------------------------------------------------

#: Tasks that are not done.
_IS_LEFT = columns().state != TaskState.DONE.value


def urgent(ctx: TubeContext, data: Any, options: dict[str, Any]) -> Task | None:
    """Put a task before all existing tasks, unless it is delayed; `None` if the tube is full."""
    rows = put.prepare(ctx, PutCall([data], options, 0))
    # The rank is read within each attempt, under the table lock, so that it comes before urgent tasks of others.
    (tasks,) = put.put_group(ctx, [rows], name="urgent", changed=lambda row: _ahead(ctx, row))
    return tasks[0] if tasks else None


def _ahead(ctx: TubeContext, row: StoredTask) -> StoredTask:
    if row.state is TaskState.DELAYED:
        return row
    urgent = _IS_LEFT & (columns().pri < integer(USUAL_FIRST))
    rank = rank_before(ctx.reader.one(least(columns().pri), urgent, skips=()))
    return replace(row, pri=stored_pri(priority_of(row.pri), rank))


def requeue(ctx: TubeContext, task_id: int) -> Task:
    """Release a held task behind all existing tasks, or bury it if its attempts are used up."""

    def after(row: StoredTask, _now_us: int) -> StoredTask:
        others = _IS_LEFT & (columns().pri > integer(USUAL_LAST)) & (columns().task_id != task_id)
        rank = rank_behind(ctx.reader.one(greatest(columns().pri), others, skips=()))
        return replace(
            row,
            state=after_giving_back(row.attempts, ctx.table.max_attempts),
            pri=stored_pri(priority_of(row.pri), rank),
            next_event=row.expires_at,
        )

    return _become(ctx, "requeue", task_id, after)


def release(ctx: TubeContext, task_id: int, delay_us: int | None, ttl_us: int | None) -> Task:
    """Release a held task with a new ttl, counted from now; the delay is added to it."""

    def after(row: StoredTask, now_us: int) -> StoredTask:
        state = after_giving_back(row.attempts, ctx.table.max_attempts)
        delayed = delay_us != 0 and state is TaskState.READY
        life = plus(ttl_us, delay_us if delayed else 0)
        ends = plus(now_us, life)
        return replace(
            row,
            state=TaskState.DELAYED if delayed else state,
            ttl=plus(now_us - row.created, life),
            next_event=plus(now_us, delay_us) if delayed else ends,
            expires_at=ends,
        )

    return _become(ctx, "release", task_id, after)


def done(ctx: TubeContext, task_id: int, data: Any) -> Task:
    """Keep a held task in state done, with other data; takes ignore it, and its ttl goes on."""
    encoded = ctx.codec.encode(data)
    put.require_small(ctx, [encoded])

    def after(row: StoredTask, _now_us: int) -> StoredTask:
        return replace(row, state=TaskState.DONE, data=encoded, next_event=row.expires_at)

    task = _become(ctx, "done", task_id, after, data=True)
    # The callback gets a copy, because the caller may change the payload.
    ctx.events.keep("done", [deepcopy(task)])
    return task


def _become(
    ctx: TubeContext,
    name: str,
    task_id: int,
    after: Callable[[StoredTask, int], StoredTask],
    *,
    data: bool = False,
) -> Task:
    """Change a task that this session holds; with `data` its payload, too, and that is no release.

    Raises:
        NotTakenError: This session does not hold it.
    """
    event = "done" if data else "release"

    def change(ctx: TubeContext, now_us: int, rows: Sequence[StoredTask]) -> Become:
        row = replace(after(rows[0], now_us), since=now_us)
        return Become(fresh(ctx), row, data=data, event=event)

    verb = Verb(name, change, "" if data else "release", by_holder=True)
    return settle(ctx, verb, [task_id])[0]


# -- the tubes of tasks -------------------------------------------------------------------------------

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
