"""Statistics of tubes with the names of states and calls in Tarantool 1.5."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tubeq_spark.admin.tubes import context_of
from tubeq_spark.observe.statistics import statistics_of
from tubeq_spark.runtime.counters import old_calls_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tubeq_spark.observe.statistics import TubeStatistics
    from tubeq_spark.tube import Tube

__all__ = ["statistics15"]

_OPEN = ("ready", "delayed", "taken", "buried")
#: Counters with the same name as those of `Queue.statistics`; `dig` is `kick` there.
_CALLS = {name: name for name in ("take", "ack", "bury", "delete", "ttl")} | {"dig": "kick"}


def statistics15(tubes: Sequence[Tube]) -> dict[str, Any]:
    """Return the statistics of some tubes of a queue, by their names."""
    if not tubes:
        return {}
    contexts = [context_of(tube) for tube in tubes]
    found = statistics_of(contexts[0].queue, contexts)
    return {of.ctx.record.name: _in_old_names(of) for of in found}


def _in_old_names(found: TubeStatistics) -> dict[str, Any]:
    tasks = {name: found.tasks[name] for name in (*_OPEN, "total")}
    # The other stored tasks are those that the verb `done` keeps.
    tasks["done"] = tasks["total"] - sum(tasks[name] for name in _OPEN)
    old = old_calls_of(found.ctx.record.id, found.written)
    calls = {name: found.calls[event] for name, event in _CALLS.items()}
    calls["put"] = found.calls["put"] - old["urgent"]
    calls["release"] = found.calls["release"] - old["requeue"]
    return {"tasks": tasks, "calls": calls | old}
