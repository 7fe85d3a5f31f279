"""Asks VACUUM to wait for the long statements of a queue object, because it would make them begin anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubeq_spark.model.times import US

if TYPE_CHECKING:
    from tubeq_spark.model.membership import LongStatements, VacuumTable

#: Seconds that a statement runs before VACUUM is asked to wait for it.
_LONG = 300.0
#: For how long VACUUM is asked to wait, in microseconds.
_ASKED_US = 1_200 * US


class VacuumRequests:
    """The requests of one queue object to delay VACUUM."""

    def __init__(self, notes: VacuumTable, running: LongStatements) -> None:
        """Write requests to `notes` for the long statements of `running`."""
        self._notes = notes
        self._running = running
        #: By table, when the last request was written.
        self._asked: dict[str, int] = {}

    def renew(self, member: str, now_us: int) -> None:
        """Repeat requests after half of their time. One commit for each table with a long statement."""
        for table in self._running.longer_than(_LONG):
            last = self._asked.get(table)
            if last is None or now_us >= last + _ASKED_US // 2:
                self._notes.ask_to_wait(member, table, now_us, now_us + _ASKED_US)
                self._asked[table] = now_us
