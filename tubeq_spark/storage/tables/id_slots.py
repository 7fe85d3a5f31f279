"""Leases id slots in `_tubeq_sessions`. Producers with different slots never make the same id.

A lease, and each raise of its bound, is a row of its own; of the rows of a slot the one with the highest bound
counts. A MERGE inserts it, unless the slot has a row with a higher bound. The MERGE is over the literal bucket
that all other leases of the slot read. Heartbeats use other buckets.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from tubeq_spark.errors import CommitUnknownError
from tubeq_spark.model import ids
from tubeq_spark.model.membership import SlotLease
from tubeq_spark.storage.arrow.columns import array
from tubeq_spark.storage.commit_loop import Plan, Stale
from tubeq_spark.storage.expression import Literal, Type, all_of, integer, literal, row
from tubeq_spark.storage.query import Select, count, greatest, last_by, named
from tubeq_spark.storage.statement import ONE_ROW, Affected, Clause, Rows, Statement
from tubeq_spark.storage.tables.system_table import SystemTable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tubeq_spark.storage.commit_loop import CommitLoop
    from tubeq_spark.storage.expression import Expression, Row

T = TypeVar("T")
_FIRST_BUCKET = 1_000
_BUCKETS = 64
#: The number of slots to try at random before reading any: a failed guess costs less than a read.
_GUESSES = 2


_ROW, _T, _S = row(), row("t"), row("s")


def _slots(of: Row = _ROW, bucket: int | None = None) -> Expression:
    """The condition for rows of slots, in all buckets or in one."""
    is_slot = of.kind == "slot"
    if bucket is not None:
        return (of.bucket == integer(bucket)) & is_slot
    first, end = integer(_FIRST_BUCKET), integer(_FIRST_BUCKET + _BUCKETS)
    return all_of(of.bucket >= first, of.bucket < end, is_slot)


def _bucket_of(slot: int) -> int:
    return _FIRST_BUCKET + slot % _BUCKETS


class Slots(SystemTable):
    """Leases slots, and raises their bounds."""

    def lease(self, holder: str, now_us: int, horizon: int) -> SlotLease:
        """Lease a free slot.

        One commit and no read if one of two random slots is free, as it is unless hundreds of producers are at work.
        Otherwise it reads the slots, first those of one bucket, and makes one more commit. If the answer to a commit
        is lost, it leaves that slot alone and leases another one.

        Returns:
            The slot, with the bound of its former holder: the new holder's numbers begin there.
        """
        for attempt in (*[self._lease_any] * _GUESSES, self._lease_near, self._lease_free):
            with suppress(CommitUnknownError):
                lease = attempt(holder, now_us, horizon)
                if lease is not None:
                    return lease
        return self._lease_free(holder, now_us, horizon)

    def extend(self, lease: SlotLease, bound: int) -> SlotLease | None:
        """Raise the bound of a slot that the caller still holds.

        Returns:
            The new lease; `None` if the slot has another holder, or if the answer to the commit was lost. One commit.
        """

        def attempt() -> Plan[SlotLease | None]:
            seen = self._leased().get(lease.slot)
            if seen is None or seen.holder != lease.holder:
                return Plan(None, lambda _: None)
            after = SlotLease(seen.slot, seen.holder, bound)
            return self._move(seen, after, after)

        with suppress(CommitUnknownError):
            return self._loop.run("extend_slot", self._table_lock, attempt)
        return None

    def bounds(self) -> dict[int, int]:
        """The bounds of all slots that were ever leased. No commit."""
        return {slot: lease.bound for slot, lease in self._leased().items()}

    def raise_to(self, bounds: Mapping[int, int]) -> None:
        """Raise the bounds of slots that nobody holds. One commit, a blind append."""
        slots = list(bounds)
        rows = {
            "bucket": array([_bucket_of(slot) for slot in slots], pa.int32()),
            "kind": array(["slot"] * len(slots), pa.string()),
            "slot": array(slots, pa.int32()),
            "bound": array(list(bounds.values()), pa.int64()),
            "seq": array([0] * len(slots), pa.int64()),
        }
        self._append("raise_slots", pa.table(rows))

    def compact(self, least: int, loop: CommitLoop) -> int:
        """Remove replaced rows of slots; the row with the highest bound is never removed.

        The remaining rows are rewritten into one file for each bucket, because each lease makes a
        file of one row.

        Args:
            least: The fewest replaced rows for which it commits; 0 also merges files without replaced rows.
            loop: A loop that may give up, because this conflicts with every lease. At most one commit.

        Returns:
            The number of removed rows.
        """
        columns = {**named("bucket", "slot"), "bound": greatest(_ROW.bound), "leases": count()}
        highest = Select(self._table, columns, _slots(), by=["bucket", "slot"])
        types = {"bucket": Type.INT, "slot": Type.INT, "bound": Type.BIGINT}

        def decide(operation_id: int) -> tuple[int, Statement | None]:
            found = self._engine.rows(highest)
            if not found:
                return 0, None
            # A row that was added meanwhile has a higher bound, so it stays.
            statement = Statement(
                self._table,
                all_of(
                    _slots(_T),
                    _T.bucket == _S.bucket,
                    _T.slot == _S.slot,
                    _T.seq != operation_id,
                ),
                [Clause(None, _T.bound < _S.bound), Clause({"bound": _T.bound})],
                operation_id,
                _T.bucket,
                Rows(types, [tuple(each[name] for name in types) for each in found]),
                {"bucket": range(_FIRST_BUCKET, _FIRST_BUCKET + _BUCKETS)},
            )
            return sum(each["leases"] - 1 for each in found), statement

        return self._remove("fold_slots", loop, least, decide)

    def _lease_any(self, holder: str, now_us: int, horizon: int) -> SlotLease | None:
        """Lease a slot without reading it; `None` if it is used."""
        tick = ids.tick_at(now_us)
        # The statement inserts nothing if the slot's bound is above `tick`.
        found = SlotLease(self._random.randrange(ids.SLOTS), None, tick)
        after = SlotLease(found.slot, holder, tick + horizon)

        def attempt() -> Plan[SlotLease | None]:
            return self._write(found, after, lambda affected: found if affected.total else None)

        return self._loop.run("lease_slot", self._table_lock, attempt)

    def _lease_near(self, holder: str, now_us: int, horizon: int) -> SlotLease | None:
        """Lease a slot of one bucket, a small part of the table; `None` if all are used."""
        bucket = _bucket_of(self._random.randrange(ids.SLOTS))
        slots = [slot for slot in range(ids.SLOTS) if _bucket_of(slot) == bucket]

        def attempt() -> Plan[SlotLease | None]:
            tick = ids.tick_at(now_us)
            seen = self._unused(self._leased(bucket), slots, tick)
            if seen is None:
                return Plan(None, lambda _: None)
            after = SlotLease(seen.slot, holder, max(seen.bound, tick) + horizon)
            return self._move(seen, after, seen)

        return self._loop.run("lease_slot", self._table_lock, attempt)

    def _lease_free(self, holder: str, now_us: int, horizon: int) -> SlotLease:
        def attempt() -> Plan[SlotLease]:
            tick = ids.tick_at(now_us)
            seen = self._choose(self._leased(), tick)
            after = SlotLease(seen.slot, holder, max(seen.bound, tick) + horizon)
            return self._move(seen, after, seen)

        return self._loop.run("lease_slot", self._table_lock, attempt)

    def _leased(self, bucket: int | None = None) -> dict[int, SlotLease]:
        """All slots that were ever leased, or those of one bucket."""
        columns = {
            "slot": _ROW.slot,
            "member": last_by(_ROW.member, _ROW.bound),
            "bound": greatest(_ROW.bound),
        }
        rows = self._engine.rows(Select(self._table, columns, _slots(bucket=bucket), by=["slot"]))
        return {r["slot"]: SlotLease(r["slot"], r["member"], r["bound"]) for r in rows}

    def _choose(self, leased: Mapping[int, SlotLease], tick: int) -> SlotLease:
        # If all slots are in use, one can be taken over safely, because its holder must commit before it uses
        # numbers above its bound. The lowest bound keeps ids closest to the clock.
        return self._unused(leased, range(ids.SLOTS), tick) or min(
            leased.values(), key=lambda lease: lease.bound
        )

    def _unused(
        self, leased: Mapping[int, SlotLease], slots: Sequence[int], tick: int
    ) -> SlotLease | None:
        """A free slot among these; `None` if none is free."""
        free = [lease for lease in leased.values() if lease.bound <= tick]
        if free:
            return self._random.choice(free)
        unused = [slot for slot in slots if slot not in leased]
        return SlotLease(self._random.choice(unused), None, 0) if unused else None

    def _move(self, seen: SlotLease, after: SlotLease, result: T) -> Plan[T]:
        """Lease a slot if it has not changed since it was read. Every change raises its bound."""

        def finish(affected: Affected) -> T:
            if affected.total != 1:
                raise Stale
            return result

        return self._write(seen, after, finish)

    def _write(self, seen: SlotLease, after: SlotLease, finish: Callable[[Affected], T]) -> Plan[T]:
        """Insert a lease, unless the slot has a higher bound than the read or assumed one."""
        operation_id = self._operation_id()
        bucket = _bucket_of(after.slot)
        row = {
            "bucket": integer(bucket),
            "kind": literal("slot"),
            "slot": integer(after.slot),
            "member": Literal(after.holder, Type.STRING),
            "bound": literal(after.bound),
            "seq": literal(0),
        }
        statement = Statement(
            self._table,
            all_of(
                _slots(_T, bucket),
                _T.slot == integer(after.slot),
                _T.bound > seen.bound,
                _T.seq != operation_id,
            ),
            [Clause(row, inserts=True)],
            operation_id,
            _T.bucket,
            ONE_ROW,
            {"bucket": [bucket]},
        )
        return Plan(statement, finish)
