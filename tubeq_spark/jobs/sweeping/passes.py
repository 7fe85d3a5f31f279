"""Passes of the sweeper, and the lines that it prints of them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tubeq_spark.jobs.program.running import tell
from tubeq_spark.programs import reason_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tubeq_spark import Queue, SweepReport


class Passes:
    """Makes passes, and prints what they changed."""

    def __init__(self, queue: Queue, *, verbose: bool) -> None:
        """Sweep a queue.

        Args:
            queue: The queue.
            verbose: Whether to print a line for passes that changed nothing, too.
        """
        self._queue = queue
        self._verbose = verbose
        self.count = 0

    def make(self) -> bool:
        """Make a pass; returns whether all of it went well."""
        report = self._queue.sweep()
        self.count += 1
        changed = _changed(report)
        if changed or (self._verbose and report.idle):
            tell(changed or _nothing(report))
        for name, tube in report.tubes.items():
            if tube.error is not None:
                tell(f"tube {name} failed: {tube.error}", sys.stderr)
        return all(tube.error is None for tube in report.tubes.values())

    def tick(self, _goes_on: Callable[[], bool]) -> None:
        """Make a pass for a streaming query, which shall outlive one that fails."""
        try:
            self.make()
        except Exception as error:  # noqa: BLE001  storage may be back for the next one
            tell(f"the pass failed: {reason_of(error)}", sys.stderr)


def _changed(report: SweepReport) -> str:
    """What a pass changed, tube by tube."""
    lines = []
    for name, tube in report.tubes.items():
        counts = {
            "readied": tube.readied,
            "expired": tube.expired,
            "released": tube.released,
            "segments folded": tube.folded,
            "kept rows removed": tube.removed,
        }
        changes = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
        if changes:
            lines.append(f"{name}: {changes}")
    lines += [f"{name}: a temporary tube, dropped" for name in report.dropped]
    lines += [f"{name or 'system tables'}: dead files removed" for name in report.vacuumed]
    return "; ".join(lines)


def _nothing(report: SweepReport) -> str:
    """That a pass changed nothing."""
    swept = len(report.tubes)
    return f"nothing to do in {swept:,} tube{'' if swept == 1 else 's'}"
