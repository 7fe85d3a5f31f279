"""Tasks, options of puts and metadata in the form of Tarantool 1.5."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from tubeq_spark.rules import validation
from tubeq_spark.rules.microseconds import from_us, seconds_from_us
from tubeq_spark.tarantool15.order import USUAL_PRI, priority_of, rank_of, stored_pri
from tubeq_spark.task import Task, TaskState

if TYPE_CHECKING:
    from tubeq_spark.rules.stored_task import StoredTask
    from tubeq_spark.tube import Tube

__all__ = ["Task15", "meta", "put_options", "task15"]


@dataclass(frozen=True, slots=True)
class Task15(Task):
    """A task of the 1.5 dialect: `pri` is 0 to 255, higher first; `data` is the list of its fields.

    Attributes:
        tube: The name of its tube.
    """

    tube: str

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
    priority = USUAL_PRI if pri is None else validation.old_pri("pri", pri)
    # In 1.5, 0 means the default, and its clients send 0 for options that are not given.
    return {
        "delay": delay,
        "ttl": None if ttl is None else validation.seconds("ttl", ttl) or None,
        "ttr": None if ttr is None else validation.seconds("ttr", ttr) or None,
        "pri": stored_pri(priority),
    }


def meta(tube: Tube, row: StoredTask, now_us: int) -> dict[str, Any]:
    """Return the metadata of a task by its names in 1.5."""
    holder = row.owner if row.state is TaskState.TAKEN else None
    return {
        "task_id": row.task_id,
        "tube": tube.name,
        "status": row.state.name.lower(),
        "event": from_us(row.next_event),
        "ipri": USUAL_PRI + rank_of(row.pri),
        "pri": priority_of(row.pri),
        "cid": None if holder is None else holder.partition("/")[0],
        "created": from_us(row.created),
        "ttl": seconds_from_us(row.ttl),
        "ttr": seconds_from_us(row.ttr),
        "cbury": None,
        "ctaken": row.attempts,
        "now": from_us(now_us),
    }
