"""Leases id slots in `_tubeq_sessions`. Producers with different slots never make the same id.

A lease, and each raise of its bound, is a row of its own, with the bound as its `seq`. It is inserted, unless the slot
has a row with a higher bound. Heartbeats use other buckets.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from tubeq_spark.errors import CommitUnknownError
from tubeq_spark.model import ids
from tubeq_spark.model.membership import SlotLease
from tubeq_spark.storage.commit_loop import Plan
from tubeq_spark.storage.expression import all_of, integer, row
from tubeq_spark.storage.tables.system_table import KeyedTable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tubeq_spark.storage.statement import Affected

T = TypeVar("T")
_FIRST_BUCKET = 1_000
_BUCKETS = 64
_SLOT = "slot"
_ROW, _T = row(), row("t")


def _bucket_of(slot: int) -> int:
    return _FIRST_BUCKET + slot % _BUCKETS


class Slots(KeyedTable):
    """Leases slots, and raises their bounds."""

    def lease(self, holder: str, now_us: int, horizon: int) -> SlotLease:
        """Lease a free slot, of one random bucket if that has any. If there is none, take one over.

        One commit. If the answer to it is lost, one more.

        Returns:
            The slot, with the bound of its former holder: the new holder's numbers begin there.
        """

        def attempt() -> Plan[SlotLease]:
            tick = ids.tick_at(now_us)
            bucket = _bucket_of(self._random.randrange(ids.SLOTS))
            slots = [slot for slot in range(ids.SLOTS) if _bucket_of(slot) == bucket]
            seen = self._free(self._leased(bucket), slots, tick)
            if seen is None:
                leased = self._leased()
                # A slot in use can be taken over safely, because its holder must commit before it uses numbers above
                # its bound. The lowest bound keeps ids closest to the clock.
                seen = self._free(leased, range(ids.SLOTS), tick) or min(
                    leased.values(), key=lambda lease: lease.bound
                )
            after = SlotLease(seen.slot, holder, max(seen.bound, tick) + horizon)
            return self._move(seen, after, seen)

        with suppress(CommitUnknownError):
            return self._loop.run("lease_slot", self._table_lock, attempt)
        return self._loop.run("lease_slot", self._table_lock, attempt)

    def extend(self, lease: SlotLease, bound: int) -> SlotLease | None:
        """Raise the bound of a slot that the caller still holds.

        Returns:
            The new lease; `None` if the slot has another holder, or if the answer to the commit was lost. One commit.
        """

        def attempt() -> Plan[SlotLease | None]:
            seen = self._leased(_bucket_of(lease.slot)).get(lease.slot)
            if seen is None or seen.holder != lease.holder:
                return Plan(None, lambda _: None)
            after = SlotLease(seen.slot, seen.holder, bound)
            return self._move(seen, after, after)

        with suppress(CommitUnknownError):
            return self._loop.run("extend_slot", self._table_lock, attempt)
        return None

    def _leased(self, bucket: int | None = None) -> dict[int, SlotLease]:
        """All slots that were ever leased, or those of one bucket."""
        is_there = (
            (_ROW.bucket >= integer(_FIRST_BUCKET))
            & (_ROW.bucket < integer(_FIRST_BUCKET + _BUCKETS))
            if bucket is None
            else _ROW.bucket == integer(bucket)
        )
        rows = self._newest(is_there & (_ROW.kind == _SLOT), holder=_ROW.status)
        return {int(r["key"]): SlotLease(int(r["key"]), r["holder"], r["seq"]) for r in rows}

    def _free(
        self, leased: Mapping[int, SlotLease], slots: Sequence[int], tick: int
    ) -> SlotLease | None:
        """A free slot among these; `None` if none is free."""
        free = [lease for lease in leased.values() if lease.bound <= tick]
        free = free or [SlotLease(slot, None, 0) for slot in slots if slot not in leased]
        return self._random.choice(free) if free else None

    def _move(self, seen: SlotLease, after: SlotLease, result: T) -> Plan[T]:
        """Lease a slot if it has not changed since it was read. Every change raises its bound."""
        values = _row(after)
        unless = all_of(_T.kind == _SLOT, _T.key == values["key"], _T.seq > seen.bound)

        def finish(affected: Affected) -> T:
            self._one_inserted(affected)
            return result

        return Plan(self._insert(values, unless), finish)


def _row(lease: SlotLease) -> dict[str, Any]:
    return {
        "bucket": _bucket_of(lease.slot),
        "kind": _SLOT,
        "key": str(lease.slot),
        "seq": lease.bound,
        "status": lease.holder,
    }
