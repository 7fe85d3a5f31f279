"""Leases number slots in `_tubeq_sessions`, which keep the ids of two producers apart.

A lease, and each raise of its bound, is a row of its own; of one slot's rows the one with the highest
bound counts. It is inserted by a MERGE over the literal bucket that all rivals for its slot read, unless
a row with a higher bound is there. Heartbeats never come near these buckets.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from tubeq_spark.errors import CommitUnknownError
from tubeq_spark.rules import ids
from tubeq_spark.rules.membership import SlotLease
from tubeq_spark.storage.commit_loop import Plan, Stale
from tubeq_spark.storage.sql.noted import noted
from tubeq_spark.storage.sql.quoting import bigint, integer, string
from tubeq_spark.storage.sql.system_table import SystemTable
from tubeq_spark.storage.statement import Affected, Clause, Statement

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tubeq_spark.storage.commit_loop import CommitLoop

__all__ = ["Slots"]

T = TypeVar("T")
_FIRST_BUCKET = 1_000
_BUCKETS = 64
#: A guess that fails costs less than a look, which the one after it must pay for as well.
_GUESSES = 2


def _slots(alias: str = "", bucket: int | None = None) -> str:
    """Rows of slots, of all or of those in one bucket."""
    first, end = integer(_FIRST_BUCKET), integer(_FIRST_BUCKET + _BUCKETS)
    where = f"{alias}bucket >= {first} AND {alias}bucket < {end}"
    if bucket is not None:
        where = f"{alias}bucket = {integer(bucket)}"
    return f"{where} AND {alias}kind = 'slot'"


def _bucket_of(slot: int) -> int:
    return _FIRST_BUCKET + slot % _BUCKETS


class Slots(SystemTable):
    """Leases slots, and raises their bounds."""

    def lease(self, holder: str, now_us: int, horizon: int) -> SlotLease:
        """Lease a slot that nobody uses.

        One commit and no read where one of two slots at random turns out to be free, which it is
        unless hundreds of producers are at work; else the slots are looked at, those of one bucket
        first, and it is one more.
        A slot of which nobody can tell whether it was leased is left alone: another one does.

        Returns:
            The slot, with the bound as the former holder left it: numbers begin there.
        """
        for attempt in (*[self._lease_any] * _GUESSES, self._lease_near, self._lease_free):
            with suppress(CommitUnknownError):
                lease = attempt(holder, now_us, horizon)
                if lease is not None:
                    return lease
        return self._lease_free(holder, now_us, horizon)

    def extend(self, lease: SlotLease, bound: int) -> SlotLease | None:
        """Raise the bound of a slot that one still holds.

        Returns:
            The lease as it is now; `None` when the slot has another holder, or nobody can tell whether
            the bound was raised. One commit.
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

    def compact(self, least: int, loop: CommitLoop) -> int:
        """Remove rows that later ones of their slot have replaced; the highest bound stays for ever.

        What stays is written anew, into one file for each bucket: a lease makes a file of one row.

        Args:
            least: So many rows must be in the way; 0: it is about the files.
            loop: May give up: this meets every lease. At most one commit.

        Returns:
            How many rows went.
        """
        highest = (
            "SELECT bucket, slot, max(bound) AS bound, count(*) AS leases "
            f"FROM {self._table} WHERE {_slots()} GROUP BY bucket, slot"
        )

        def removal(operation_id: int) -> Statement:
            return Statement(
                self._table,
                f"{noted('t.bucket')} "
                f"AND {_slots('t.')} AND t.bucket = s.bucket AND t.slot = s.slot "
                f"AND t.seq <> {bigint(operation_id)}",
                [Clause(None, "t.bound < s.bound"), Clause({"bound": "t.bound"})],
                operation_id,
                f"({highest})",
                {"bucket": range(_FIRST_BUCKET, _FIRST_BUCKET + _BUCKETS)},
            )

        replaced = f"SELECT sum(leases - 1) AS n FROM ({highest})"
        return self._remove("fold_slots", loop, replaced, least, removal)

    def _lease_any(self, holder: str, now_us: int, horizon: int) -> SlotLease | None:
        """Lease a slot without having looked at it; `None` when somebody uses it."""
        tick = ids.tick_at(now_us)
        # Whatever bound its former holder left, it is not above.
        found = SlotLease(self._random.randrange(ids.SLOTS), None, tick)
        after = SlotLease(found.slot, holder, tick + horizon)

        def attempt() -> Plan[SlotLease | None]:
            return self._write(found, after, lambda affected: found if affected.total else None)

        return self._loop.run("lease_slot", self._table_lock, attempt)

    def _lease_near(self, holder: str, now_us: int, horizon: int) -> SlotLease | None:
        """Lease a slot of one bucket, which is a small part of the table; `None`: all are in use."""
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
        """All slots that were ever leased, or those of a bucket."""
        rows = self._engine.rows(
            "SELECT slot, max_by(member, bound) AS member, max(bound) AS bound "
            f"FROM {self._table} WHERE {_slots(bucket=bucket)} GROUP BY slot"
        )
        return {r["slot"]: SlotLease(r["slot"], r["member"], r["bound"]) for r in rows}

    def _choose(self, leased: Mapping[int, SlotLease], tick: int) -> SlotLease:
        # Where all are in use, taking one over is safe, since its holder must ask before passing its
        # bound; the lowest bound keeps ids closest to the clock.
        return self._unused(leased, range(ids.SLOTS), tick) or min(
            leased.values(), key=lambda lease: lease.bound
        )

    def _unused(
        self, leased: Mapping[int, SlotLease], slots: Sequence[int], tick: int
    ) -> SlotLease | None:
        """A slot that nobody uses; `None`: there is none among these."""
        free = [lease for lease in leased.values() if lease.bound <= tick]
        if free:
            return self._random.choice(free)
        unused = [slot for slot in slots if slot not in leased]
        return SlotLease(self._random.choice(unused), None, 0) if unused else None

    def _move(self, seen: SlotLease, after: SlotLease, result: T) -> Plan[T]:
        """Write a lease if the slot is still as it was seen: every change raises its bound."""

        def finish(affected: Affected) -> T:
            if affected.total != 1:
                raise Stale
            return result

        return self._write(seen, after, finish)

    def _write(self, seen: SlotLease, after: SlotLease, finish: Callable[[Affected], T]) -> Plan[T]:
        """Insert a lease unless the slot has a higher bound than was seen or supposed."""
        operation_id = self._operation_id()
        bucket = _bucket_of(after.slot)
        slot = integer(after.slot)
        row = {
            "bucket": integer(bucket),
            "kind": "'slot'",
            "slot": slot,
            "member": string(after.holder),
            "bound": bigint(after.bound),
            "seq": "0L",
        }
        statement = Statement(
            self._table,
            f"{noted('t.bucket')} AND t.bucket = {integer(bucket)} AND t.kind = 'slot' "
            f"AND t.slot = {slot} AND t.bound > {bigint(seen.bound)} "
            f"AND t.seq <> {bigint(operation_id)}",
            [Clause(row, inserts=True)],
            operation_id,
            "(SELECT 1 AS one)",
            {"bucket": [bucket]},
        )
        return Plan(statement, finish)
