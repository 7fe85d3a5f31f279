"""A task as Tarantool 1.5 had it: its fields, the options it is put with, and what is known of it."""

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
    """A task as the 1.5 dialect has it: `pri` is 0 to 255, higher first; `data` are its fields.

    Attributes:
        tube: The name of its tube.
    """

    tube: str

    @property
    def status(self) -> str:
        """Its state in a word: ready, taken, done, buried or delayed."""
        return self.state.name.lower()

    def as_tuple15(self) -> tuple[Any, ...]:
        """Return `(task_id, tube, status, field, ...)`, the task of Tarantool 1.5."""
        data = self.data if isinstance(self.data, list) else [self.data]
        return (self.task_id, self.tube, self.status, *data)


def task15(task: Task, tube: Tube) -> Task15:
    """A task of today's verbs as the dialect has it."""
    seen = {f.name: getattr(task, f.name) for f in fields(Task)}
    return Task15(**seen | {"pri": priority_of(task.pri), "tube": tube.name})


def put_options(
    delay: float | None, ttl: float | None, ttr: float | None, pri: int | None
) -> dict[str, Any]:
    """Check the options of a put, and give them the names and values of `Tube.put`."""
    priority = USUAL_PRI if pri is None else validation.old_pri("pri", pri)
    # 1.5 took its defaults for 0, and its clients send 0 for what is not given.
    return {
        "delay": delay,
        "ttl": None if ttl is None else validation.seconds("ttl", ttl) or None,
        "ttr": None if ttr is None else validation.seconds("ttr", ttr) or None,
        "pri": stored_pri(priority),
    }


def meta(tube: Tube, row: StoredTask, now_us: int) -> dict[str, Any]:
    """What is known of a task, by the names that 1.5 had for it."""
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
