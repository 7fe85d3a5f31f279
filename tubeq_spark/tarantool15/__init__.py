"""The queue of Tarantool 1.5, for programs that were written for it: `Queue15` over a `Queue`.

`dialect.py` has a table of its verbs, and what differs.
"""

from __future__ import annotations

from tubeq_spark.tarantool15.dialect import Queue15, Task15

__all__ = ["Queue15", "Task15"]
