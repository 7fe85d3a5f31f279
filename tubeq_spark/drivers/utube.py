"""utube: fifo in sub-queues, of each of which one consumer at a time has tasks."""

from __future__ import annotations

from dataclasses import replace

from tubeq_spark.drivers.fifo import FIFO

__all__ = ["UTUBE"]

UTUBE = replace(
    FIFO,
    name="utube",
    tube_options=FIFO.tube_options | {"storage_mode"},
    put_options=FIFO.put_options | {"utube"},
    subqueues=True,
)
