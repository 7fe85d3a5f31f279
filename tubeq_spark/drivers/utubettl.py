"""utubettl: fifottl in sub-queues, of each of which one consumer at a time has tasks."""

from __future__ import annotations

from dataclasses import replace

from tubeq_spark.drivers.fifottl import FIFOTTL

__all__ = ["UTUBETTL"]

UTUBETTL = replace(
    FIFOTTL,
    name="utubettl",
    tube_options=FIFOTTL.tube_options | {"storage_mode"},
    put_options=FIFOTTL.put_options | {"utube"},
    subqueues=True,
)
