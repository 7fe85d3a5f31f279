"""One sweep of the tubes in memory: writes down what time has changed, drops what dead sessions left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubeq_spark.errors import InvalidOptionError
from tubeq_spark.rules.reports import SweepReport, TubeSweep

if TYPE_CHECKING:
    from tubeq_spark.memory.context import MemoryContext
    from tubeq_spark.memory.known_tubes import KnownTubes

__all__ = ["sweep_tubes"]


def sweep_tubes(own: MemoryContext, tubes: KnownTubes, now_us: int) -> SweepReport:
    """Sweep each tube, with the place's lock held; one of an unknown type is reported."""
    report = SweepReport()
    # By the clock, where `now_us` lies ahead: a tube that is dropped is gone.
    ended = own.dead_owners(min(now_us, own.now_us()))
    for stored in own.place.tubes():
        known = stored.type in own.drivers
        if known and stored.owner is not None and ended.is_dead(stored.owner):
            tubes.end_temporary(stored)
            report.dropped.append(stored.name)
    dead = own.dead_owners(now_us)
    for stored in own.place.tubes():
        try:
            verbs = tubes.verbs(stored)
        except InvalidOptionError as error:
            report.tubes[stored.name] = TubeSweep(error=f"{type(error).__name__}: {error}")
        else:
            report.tubes[stored.name] = verbs.sweep(now_us, dead)
    return report
