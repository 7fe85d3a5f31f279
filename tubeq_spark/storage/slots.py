"""The leases of number slots, in `_tubeq_sessions`: what keeps two producers' numbers apart.

A lease is a MERGE over the literal bucket that all rivals for its slot read; heartbeats never come
near these buckets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from tubeq_spark import ids
from tubeq_spark.storage.commit import Plan, Stale
from tubeq_spark.storage.engine import Affected, Merge
from tubeq_spark.storage.notes import noted
from tubeq_spark.storage.quoting import bigint, integer, string
from tubeq_spark.storage.system_table import SystemTable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


__all__ = ["SlotLease", "Slots"]

T = TypeVar("T")
_FIRST_BUCKET = 1_000
_BUCKETS = 64


@dataclass(frozen=True, slots=True)
class SlotLease:
    """A slot as it stands: who has it, and the first tick that was never promised to anybody."""

    slot: int
    holder: str | None
    bound: int


class Slots(SystemTable):
    """Leases slots, and raises their bounds."""

    def lease(self, holder: str, now_us: int, horizon: int) -> SlotLease:
        """Lease a slot that nobody uses.

        One commit and no read where any slot at all turns out to be free, which it is unless
        hundreds of producers are at work; else the slots are looked at, and it is one more.

        Returns:
            The slot, with the bound as the former holder left it: numbers begin there.
        """
        return self._lease_any(holder, now_us, horizon) or self._lease_free(holder, now_us, horizon)

    def extend(self, lease: SlotLease, bound: int) -> SlotLease | None:
        """Raise the bound of a slot that one still holds.

        Returns:
            The lease as it is now; `None` when the slot has another holder. One commit.
        """

        def attempt() -> Plan[SlotLease | None]:
            seen = self._leased().get(lease.slot)
            if seen is None or seen.holder != lease.holder:
                return Plan(None, lambda _: None)
            after = SlotLease(seen.slot, seen.holder, bound)
            return self._move(seen, after, after)

        return self._loop.run("extend_slot", self._lane, attempt)

    def _lease_any(self, holder: str, now_us: int, horizon: int) -> SlotLease | None:
        """Lease a slot without having looked at it; `None` when somebody uses it."""
        tick = ids.tick_at(now_us)
        # Whatever bound its former holder left, it is not above.
        found = SlotLease(self._random.randrange(ids.SLOTS), None, tick)
        after = SlotLease(found.slot, holder, tick + horizon)

        def attempt() -> Plan[SlotLease | None]:
            unused = f"t.bound <= {bigint(tick)}"
            return self._write(after, unused, lambda affected: found if affected.total else None)

        return self._loop.run("lease_slot", self._lane, attempt)

    def _lease_free(self, holder: str, now_us: int, horizon: int) -> SlotLease:
        def attempt() -> Plan[SlotLease]:
            tick = ids.tick_at(now_us)
            seen = self._choose(self._leased(), tick)
            after = SlotLease(seen.slot, holder, max(seen.bound, tick) + horizon)
            return self._move(seen, after, seen)

        return self._loop.run("lease_slot", self._lane, attempt)

    def _leased(self) -> dict[int, SlotLease]:
        """All slots that were ever leased."""
        rows = self._engine.rows(
            f"SELECT slot, member, bound FROM {self._table} WHERE kind = 'slot' AND "
            f"bucket >= {integer(_FIRST_BUCKET)}"
        )
        return {r["slot"]: SlotLease(r["slot"], r["member"], r["bound"]) for r in rows}

    def _choose(self, leased: Mapping[int, SlotLease], tick: int) -> SlotLease:
        unused = [slot for slot in range(ids.SLOTS) if slot not in leased]
        free = [lease for lease in leased.values() if lease.bound <= tick]
        if free:
            return self._random.choice(free)
        if unused:
            return SlotLease(self._random.choice(unused), None, 0)
        # All are in use: taking one over is safe, since its holder must ask before passing its
        # bound; the lowest bound keeps ids closest to the clock.
        return min(leased.values(), key=lambda lease: lease.bound)

    def _move(self, seen: SlotLease, after: SlotLease, result: T) -> Plan[T]:
        """Write a lease where it still is as it was seen."""

        def finish(affected: Affected) -> T:
            if affected.total != 1:
                raise Stale
            return result

        same = f"t.member <=> {string(seen.holder)} AND t.bound = {bigint(seen.bound)}"
        return self._write(after, same, finish, new=seen.bound == 0)

    def _write(
        self, after: SlotLease, condition: str, finish: Callable[[Affected], T], *, new: bool = True
    ) -> Plan[T]:
        marker = self._marker()
        bucket = integer(_FIRST_BUCKET + after.slot % _BUCKETS)
        slot, holder, bound = integer(after.slot), string(after.holder), bigint(after.bound)
        sql = (
            f"MERGE INTO {self._table} t USING (SELECT 1 AS one) s "
            f"ON {noted('t.bucket')} AND t.bucket = {bucket} AND t.kind = 'slot' "
            f"AND t.slot = {slot} AND t.seq <> {bigint(marker)} "
            f"WHEN MATCHED AND {condition} THEN UPDATE SET member = {holder}, bound = {bound}"
        )
        if new:
            sql += (
                " WHEN NOT MATCHED THEN INSERT (bucket, kind, slot, member, bound, seq) "
                f"VALUES ({bucket}, 'slot', {slot}, {holder}, {bound}, 0L)"
            )
        return Plan(Merge(self._table, sql, marker), finish)
