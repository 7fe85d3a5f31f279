"""fifottl: fifo with priorities, delays, a time to live and a time to run."""

from __future__ import annotations

from tubeq_spark.drivers.base import COMMON_OPTIONS, TIMED_OPTIONS, Driver

__all__ = ["FIFOTTL"]

FIFOTTL = Driver(
    name="fifottl",
    tube_options=COMMON_OPTIONS | TIMED_OPTIONS,
    put_options=TIMED_OPTIONS,
    order=("pri", "task_id"),
    timed=True,
)
