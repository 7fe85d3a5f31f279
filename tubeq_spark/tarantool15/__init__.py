"""The queue of Tarantool 1.5, for programs that were written for it: `Queue15` over a `Queue`.

| 1.5 (`queue.` …) | here | what it is made of |
|---|---|---|
| `put(space, tube, delay, ttl, ttr, pri, …)` | `put(tube, …, delay=, ttl=, ttr=, pri=)` | `Tube.put` |
| `urgent(space, tube, …)` | `urgent(tube, …)` | a put before all that are there |
| `take(space, tube, timeout)` | `take(tube, timeout)` | `Tube.take` |
| `ack(space, id)` | `ack(id)` | `Tube.ack` |
| `release(space, id, delay, ttl)` | `release(id, delay, ttl)` | `Tube.release`, or a new life |
| `requeue(space, id)` | `requeue(id)` | a release behind all that are there |
| `bury(space, id)` | `bury(id)` | `Tube.bury`: in any state, by anybody |
| `done(space, id, …)` | `done(id, …)` | a task that stays, in state done |
| `dig(space, id)`, `unbury` | `dig(id)`, `unbury(id)` | `Tube.kick` of one task |
| `kick(space, tube, count)` | `kick(tube, count)` | `Tube.kick` |
| `delete(space, id)` | `delete(id)` | `Tube.delete` |
| `peek(space, id)`, `meta(space, id)` | `peek(id)`, `meta(id)` | `Tube.peek`, and what is stored |
| `statistics()` | `statistics()`, `statistics(tube)` | `Queue.statistics` in the old names |
| `truncate(space, tube)` | `truncate(tube)` | `Tube.truncate` |

A task's data are its fields, a list. `touch` and `put_unique` are not there; `Tube.touch` is.

**Order.** As in 1.5 tasks come by rank, then priority (0 to 255, higher first), then put order. The
rank is 0; `urgent` puts a task one before the first that is there, so the last urgent one is first;
`requeue` gives one back one behind the last that is there, whatever their priorities. It keeps its
id and priority. What is put later has rank 0 again, and goes before it, as it did in 1.5. Today's
verbs show both in one number, `rank * 256 + 255 - priority`: an urgent task's `Task.pri` is below 0.

**Differences.** There are no spaces. The errors are this package's: `NotTakenError` of what this
session does not hold, `TaskNotFoundError` of what is not there. A delayed `release` adds the delay
to the life, as `Tube.release` does. How often a task was buried is not counted.

**Tubes.** A tube that `put`, `urgent` or `take` finds missing is created: `fifottl`, a ttl of 25 days
and a ttr of 60 seconds, as they were in 1.5. Any type with priorities and lives will do; tubes of
other types are refused with `InvalidOptionError`, and their tasks are not found by id.

**Ids** are unique in a location, so a verb needs no tube. Where the tasks are that passed through
this object it remembers; of any other id it asks the tubes one by one: two small queries each.
"""

from __future__ import annotations

from tubeq_spark.tarantool15.dialect import Queue15
from tubeq_spark.tarantool15.tasks import Task15

__all__ = ["Queue15", "Task15"]
