"""The tube types, each a declaration of its own."""

from __future__ import annotations

from tubeq_spark.drivers.base import Driver
from tubeq_spark.drivers.fifo import FIFO
from tubeq_spark.drivers.fifottl import FIFOTTL
from tubeq_spark.drivers.limfifottl import LIMFIFOTTL
from tubeq_spark.drivers.utube import UTUBE
from tubeq_spark.drivers.utubettl import UTUBETTL

__all__ = ["BUILT_IN", "Driver"]

#: The types that every queue knows.
BUILT_IN = {driver.name: driver for driver in (FIFO, FIFOTTL, LIMFIFOTTL, UTUBE, UTUBETTL)}
