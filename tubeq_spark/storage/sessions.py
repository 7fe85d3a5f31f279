"""Sessions, their leases and counters, and the leases of number slots: `_tubeq_sessions`.

A heartbeat is a blind append, so a hundred of them never conflict; of one member's rows the one
with the highest `seq` counts. What must be exclusive (a dead mark, a slot) is a MERGE over the
literal bucket that all its rivals read.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from tubeq_spark import ids
from tubeq_spark.lifecycle import due
from tubeq_spark.storage.commit import CommitLoop, Plan, Stale
from tubeq_spark.storage.engine import Affected, Append, Engine, Merge
from tubeq_spark.storage.measures import last_commit
from tubeq_spark.storage.notes import noted
from tubeq_spark.storage.quoting import bigint, integer, moment, string

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

    from tubeq_spark.storage.locking import Lane

__all__ = ["Member", "SessionView", "Sessions", "SlotLease"]

T = TypeVar("T")

_BUCKETS = 64
#: Slots are leased in buckets of their own, so that heartbeats never disturb them.
_FIRST_SLOT_BUCKET = 1_000
_SLOT_BUCKETS = 64
_VACUUM_BUCKET = 2_000
_LIVE, _LEFT = "live", "left"


@dataclass(frozen=True, slots=True)
class Member:
    """One queue object's newest heartbeat."""

    session: str
    member: str
    epoch: int
    seq: int
    live: bool
    lease_until: int | None
    calls: Mapping[str, int] = field(default_factory=dict)

    def alive(self, now_us: int, skew_us: int = 0) -> bool:
        """Whether it may still come back with its tasks."""
        until = None if self.lease_until is None else self.lease_until + skew_us
        return self.live and not due(until, now_us)


@dataclass(frozen=True, slots=True)
class SessionView:
    """Everything written about one session."""

    session: str
    members: tuple[Member, ...]
    dead_epoch: int

    @property
    def epoch(self) -> int:
        """The epoch of its newest members."""
        return max((m.epoch for m in self.members), default=0)

    def alive(self, now_us: int, skew_us: int = 0, epoch: int | None = None) -> bool:
        """Whether any member of the epoch (the newest by default) is alive."""
        epoch = self.epoch if epoch is None else epoch
        return epoch > self.dead_epoch and any(
            m.epoch == epoch and m.alive(now_us, skew_us) for m in self.members
        )


@dataclass(frozen=True, slots=True)
class SlotLease:
    """A slot as it stands: who has it, and the first tick that was never promised to anybody."""

    slot: int
    holder: str | None
    bound: int


def bucket_of(session: str) -> int:
    """The bucket of a session."""
    return zlib.crc32(session.encode()) % _BUCKETS


class Sessions:
    """Reads and writes `_tubeq_sessions`."""

    def __init__(
        self, engine: Engine, table: str, loop: CommitLoop, lane: Lane, random_source: random.Random
    ) -> None:
        """Use the sessions in `table` (a SQL name)."""
        self._engine = engine
        self._table = table
        self._loop = loop
        self._lane = lane
        self._random = random_source

    # -- reads --------------------------------------------------------------------------------

    def views(self, session: str | None = None) -> dict[str, SessionView]:
        """What is written about one session, or about all."""
        where = "kind IN ('member', 'dead')"
        if session is not None:
            where += f" AND bucket = {integer(bucket_of(session))} AND session = {string(session)}"
        rows = self._engine.rows(
            "SELECT kind, session, member, max(epoch) AS epoch, max(seq) AS seq, "
            "max_by(struct(status, unix_micros(lease_until) AS until, calls, epoch), seq) AS last "
            f"FROM {self._table} WHERE {where} GROUP BY kind, session, member"
        )
        members: dict[str, list[Member]] = defaultdict(list)
        dead: dict[str, int] = defaultdict(int)
        for row in rows:
            last = row["last"]
            if row["kind"] == "dead":
                dead[row["session"]] = max(dead[row["session"]], row["epoch"])
                continue
            members[row["session"]].append(
                Member(
                    row["session"],
                    row["member"],
                    last["epoch"],
                    row["seq"],
                    last["status"] == _LIVE,
                    last["until"],
                    last["calls"] or {},
                )
            )
        return {
            name: SessionView(name, tuple(members[name]), dead[name]) for name in {*members, *dead}
        }

    def last_written(self, limit: int) -> dict[str, int]:
        """The sessions that wrote last, and when by their own clocks."""
        rows = self._engine.rows(
            f"SELECT session, unix_micros(max(at)) AS last FROM {self._table} "
            f"WHERE kind = 'member' GROUP BY session ORDER BY last DESC LIMIT {limit}"
        )
        return {row["session"]: row["last"] for row in rows}

    def last_commit(self) -> int:
        """When the newest commit was made, by the storage's clock."""
        return last_commit(self._engine, self._table)[1]

    def slots(self) -> dict[int, SlotLease]:
        """All slots that were ever leased."""
        rows = self._engine.rows(
            f"SELECT slot, member, bound FROM {self._table} WHERE kind = 'slot' AND "
            f"bucket >= {integer(_FIRST_SLOT_BUCKET)}"
        )
        return {r["slot"]: SlotLease(r["slot"], r["member"], r["bound"]) for r in rows}

    # -- heartbeats ---------------------------------------------------------------------------

    def beat(self, member: Member, now_us: int) -> None:
        """Write a member's newest row. One commit, a blind append: it conflicts with nothing."""
        row = pa.table(
            {
                "bucket": pa.array([bucket_of(member.session)], pa.int32()),
                "kind": ["member"],
                "session": [member.session],
                "member": [member.member],
                "epoch": pa.array([member.epoch], pa.int64()),
                "seq": pa.array([member.seq], pa.int64()),
                "status": [_LIVE if member.live else _LEFT],
                "lease_until": pa.array([member.lease_until], pa.timestamp("us", "UTC")),
                "calls": pa.array([list(member.calls.items())], pa.map_(pa.string(), pa.int64())),
                "at": pa.array([now_us], pa.timestamp("us", "UTC")),
            }
        )

        self._append("heartbeat", row)

    def _append(self, operation: str, row: pa.Table) -> None:
        def attempt() -> Plan[None]:
            append = Append(self._table, self._engine.source(row), self._marker())
            return Plan(append, lambda _: None)

        self._loop.run(operation, self._lane, attempt)

    def renew(self, member: Member, now_us: int) -> bool:
        """Write a member's row after its lease has ended, unless somebody found that out first.

        Returns:
            False when its epoch bears the dead mark. One commit, over the session's bucket.
        """
        values = (
            f"{integer(bucket_of(member.session))}, 'member', {string(member.session)}, "
            f"{string(member.member)}, {bigint(member.epoch)}, {bigint(member.seq)}, '{_LIVE}', "
            f"{moment(member.lease_until)}, {_map(member.calls)}, {moment(now_us)}"
        )
        columns = "bucket, kind, session, member, epoch, seq, status, lease_until, calls, at"
        return self._insert_unless_dead("renew", member.session, member.epoch, columns, values)

    def mark_dead(self, session: str, epoch: int, now_us: int, skew_us: int) -> bool:
        """Write the final mark of a session's epoch if none of its members is alive.

        A renewal that commits first is seen (the rows are read in the same transaction); one that
        comes later finds the mark.

        Returns:
            Whether the epoch bears the mark now. One commit.
        """
        bucket, name = bucket_of(session), string(session)
        newest = (
            "SELECT member, max_by(struct(status, lease_until, epoch), seq) AS last "
            f"FROM {self._table} WHERE bucket = {integer(bucket)} AND kind = 'member' "
            f"AND session = {name} GROUP BY member"
        )
        alive = (
            f"last.epoch = {bigint(epoch)} AND last.status = '{_LIVE}' AND "
            f"(last.lease_until IS NULL OR last.lease_until > {moment(now_us - skew_us)})"
        )
        source = f"SELECT 1 AS one FROM ({newest}) HAVING count_if({alive}) = 0"
        marked = self._insert_unless_dead(
            "mark_dead",
            session,
            epoch,
            "bucket, kind, session, epoch, seq, at",
            f"{integer(bucket)}, 'dead', {name}, {bigint(epoch)}, 0L, {moment(now_us)}",
            source,
        )
        if marked:
            return True
        # Alive after all, or somebody else was faster.
        view = self.views(session).get(session)
        return view is not None and view.dead_epoch >= epoch

    def _insert_unless_dead(
        self,
        operation: str,
        session: str,
        epoch: int,
        columns: str,
        values: str,
        source: str = "SELECT 1 AS one",
    ) -> bool:
        def attempt() -> Plan[bool]:
            marker = self._marker()
            sql = (
                f"MERGE INTO {self._table} t USING ({source}) s "
                f"ON {noted('t.bucket')} AND t.bucket = {integer(bucket_of(session))} "
                f"AND t.kind = 'dead' "
                f"AND t.session = {string(session)} AND t.epoch = {bigint(epoch)} "
                f"AND t.seq <> {bigint(marker)} "
                f"WHEN NOT MATCHED THEN INSERT ({columns}) VALUES ({values})"
            )
            return Plan(Merge(self._table, sql, marker), lambda affected: affected.inserted == 1)

        return self._loop.run(operation, self._lane, attempt)

    # -- maintenance --------------------------------------------------------------------------

    def last_vacuum(self, key: int) -> int | None:
        """When dead files of a tube (its id) or of the system tables (0) were last removed."""
        rows = self._engine.rows(
            f"SELECT max(unix_micros(at)) AS last FROM {self._table} "
            f"WHERE kind = 'vacuum' AND seq = {bigint(key)}"
        )
        last: int | None = rows[0]["last"]
        return last

    def note_vacuum(self, key: int, now_us: int) -> None:
        """Remember that dead files are being removed. One commit, a blind append."""
        row = pa.table(
            {
                "bucket": pa.array([_VACUUM_BUCKET], pa.int32()),
                "kind": ["vacuum"],
                "seq": pa.array([key], pa.int64()),
                "at": pa.array([now_us], pa.timestamp("us", "UTC")),
            }
        )
        self._append("vacuum", row)

    def fold(self, least: int, loop: CommitLoop) -> int:
        """Remove heartbeats that newer ones have replaced, if there are `least` of them.

        The newest row of every member stays: its counters are part of the statistics. At most one
        commit, by a loop that may give up: it meets every heartbeat.
        """

        def attempt() -> Plan[int]:
            newest = (
                "SELECT bucket, member, max(seq) AS newest FROM "
                f"{self._table} WHERE kind = 'member' GROUP BY bucket, member HAVING count(*) > 1"
            )
            rows = self._engine.rows(
                f"SELECT count(*) - count(DISTINCT member) AS n FROM {self._table} "
                "WHERE kind = 'member'"
            )
            if rows[0]["n"] < least:
                return Plan(None, lambda _: 0)
            marker = self._marker()
            sql = (
                f"MERGE INTO {self._table} t USING ({newest}) s "
                f"ON {noted('t.bucket')} AND t.kind = 'member' AND t.bucket = s.bucket AND t.member = s.member "
                f"AND t.seq < s.newest AND t.seq <> {bigint(marker)} WHEN MATCHED THEN DELETE"
            )
            return Plan(Merge(self._table, sql, marker), lambda affected: affected.deleted)

        return loop.run("fold_sessions", self._lane, attempt)

    # -- slots --------------------------------------------------------------------------------

    def lease_slot(self, holder: str, now_us: int, horizon: int) -> SlotLease:
        """Lease a slot that nobody uses. One commit.

        Returns:
            The slot, with the bound as the former holder left it: numbers begin there.
        """

        def attempt() -> Plan[SlotLease]:
            seen = self._choose(self.slots(), ids.tick_at(now_us))
            start = max(seen.bound, ids.tick_at(now_us))
            return self._set_bound(seen, holder, start + horizon, seen)

        return self._loop.run("lease_slot", self._lane, attempt)

    def extend_slot(self, lease: SlotLease, bound: int) -> SlotLease | None:
        """Raise the bound of a slot that one still holds.

        Returns:
            The lease as it is now; `None` when the slot has another holder. One commit.
        """

        def attempt() -> Plan[SlotLease | None]:
            seen = self.slots().get(lease.slot)
            if seen is None or seen.holder != lease.holder:
                return Plan(None, lambda _: None)
            after = SlotLease(seen.slot, seen.holder, bound)
            return self._set_bound(seen, str(lease.holder), bound, after)

        return self._loop.run("extend_slot", self._lane, attempt)

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

    def _set_bound(self, seen: SlotLease, holder: str, bound: int, result: T) -> Plan[T]:
        marker = self._marker()
        bucket = integer(_FIRST_SLOT_BUCKET + seen.slot % _SLOT_BUCKETS)
        same = f"t.member <=> {string(seen.holder)} AND t.bound = {bigint(seen.bound)}"
        sql = (
            f"MERGE INTO {self._table} t USING (SELECT 1 AS one) s "
            f"ON {noted('t.bucket')} AND t.bucket = {bucket} AND t.kind = 'slot' AND t.slot = {integer(seen.slot)} AND t.seq <> {bigint(marker)} "
            f"WHEN MATCHED AND {same} THEN UPDATE SET member = {string(holder)}, "
            f"bound = {bigint(bound)} WHEN NOT MATCHED AND {bigint(seen.bound)} = 0L THEN INSERT "
            "(bucket, kind, slot, member, bound, seq) VALUES "
            f"({bucket}, 'slot', {integer(seen.slot)}, {string(holder)}, {bigint(bound)}, 0L)"
        )

        def finish(affected: Affected) -> T:
            if affected.total != 1:
                raise Stale
            return result

        return Plan(Merge(self._table, sql, marker), finish)

    def _marker(self) -> int:
        return -self._random.getrandbits(62) - 1


def _map(calls: Mapping[str, int]) -> str:
    if not calls:
        return "CAST(map() AS MAP<STRING, BIGINT>)"
    pairs = ", ".join(f"{string(name)}, {bigint(count)}" for name, count in calls.items())
    return f"map({pairs})"
