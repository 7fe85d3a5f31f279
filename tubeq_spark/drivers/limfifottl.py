"""limfifottl: fifottl that holds only so many tasks, in whatever state."""

from __future__ import annotations

from dataclasses import replace

from tubeq_spark.drivers.fifottl import FIFOTTL

__all__ = ["LIMFIFOTTL"]

LIMFIFOTTL = replace(
    FIFOTTL,
    name="limfifottl",
    tube_options=FIFOTTL.tube_options | {"capacity"},
    limited=True,
)
