"""fifo: tasks come out in the order they were put, and nothing else."""

from __future__ import annotations

from tubeq_spark.drivers.base import COMMON_OPTIONS, Driver

__all__ = ["FIFO"]

FIFO = Driver(
    name="fifo",
    tube_options=COMMON_OPTIONS,
    put_options=frozenset(),
    order=("task_id",),
    timed=False,
)
