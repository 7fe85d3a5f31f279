"""The queue of Tarantool 1.5, for programs that were written for it: `Queue15` over a `Queue`.

| 1.5 (`queue.` …) | `Queue15` | implementation |
|---|---|---|
| `put(space, tube, delay, ttl, ttr, pri, …)` | `put(tube, …, delay=, ttl=, ttr=, pri=)` | `Tube.put` |
| `urgent(space, tube, …)` | `urgent(tube, …)` | a put before all existing tasks |
| `take(space, tube, timeout)` | `take(tube, timeout)` | `Tube.take` |
| `ack(space, id)` | `ack(id)` | `Tube.ack` |
| `release(space, id, delay, ttl)` | `release(id, delay, ttl)` | `Tube.release`, or with a new ttl |
| `requeue(space, id)` | `requeue(id)` | a release behind all existing tasks |
| `bury(space, id)` | `bury(id)` | `Tube.bury`: in any state, by any session |
| `done(space, id, …)` | `done(id, …)` | a task that stays, in state done |
| `dig(space, id)`, `unbury` | `dig(id)`, `unbury(id)` | `Tube.kick` of one task |
| `kick(space, tube, count)` | `kick(tube, count)` | `Tube.kick` |
| `delete(space, id)` | `delete(id)` | `Tube.delete` |
| `peek(space, id)`, `meta(space, id)` | `peek(id)`, `meta(id)` | `Tube.peek`, and the stored row |
| `statistics()` | `statistics()`, `statistics(tube)` | `Queue.statistics` in the old names |
| `truncate(space, tube)` | `truncate(tube)` | `Tube.truncate` |

A task's data is the list of its fields. `Queue15` has no `touch` and no `put_unique`; use
`Tube.touch`.

**Order.** As in 1.5 tasks come by rank, then priority (0 to 255, higher first), then put order. The
rank of a normal task is 0. `urgent` gives a task the rank before the first existing task, so the
newest urgent task is first. `requeue` releases a task with the rank behind the last existing task,
whatever their priorities; the task keeps its id and priority. Tasks that are put later have rank 0
and come before requeued tasks, as in 1.5. The other verbs show rank and priority as one number,
`rank * 256 + 255 - priority`, so the `Task.pri` of an urgent task is below 0.

**Differences.** Spaces do not exist. The errors are those of this package: `NotTakenError` if this
session does not hold the task, `TaskNotFoundError` if no task has the id. A `release` with a delay
adds the delay to the ttl, as `Tube.release` does. The queue does not count how often a task was
buried.

**Tubes.** `put`, `urgent` and `take` create a missing tube: `fifottl` with a ttl of 25 days and a
ttr of 60 seconds, as in 1.5. All types with priorities and ttls are supported. Tubes of other types,
and those with `aging`, are refused with `InvalidOptionError`, and their tasks are not found by id.

**Ids** are unique in a location, so verbs need no tube. A `Queue15` object remembers the tubes of
the tasks that it has returned. For any other id it searches the tubes one by one, with two small
queries each.
"""

from __future__ import annotations

from tubeq_spark.tarantool15.dialect import Queue15
from tubeq_spark.tarantool15.tasks import Task15

__all__ = ["Queue15", "Task15"]
