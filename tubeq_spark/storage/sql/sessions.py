"""Sessions, their leases and counters: `_tubeq_sessions`.

A heartbeat is a blind append, so a hundred of them never conflict; of one member's rows the one
with the highest `seq` counts. What must be exclusive (a dead mark) is a MERGE over the
literal bucket that all its rivals read.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tubeq_spark.rules.membership import Member, SessionView, Survey
from tubeq_spark.storage.arrow_arrays import array, counts
from tubeq_spark.storage.commit_loop import CommitLoop, Plan
from tubeq_spark.storage.sql.noted import noted
from tubeq_spark.storage.sql.quoting import bigint, integer, moment, string
from tubeq_spark.storage.sql.system_table import SystemTable
from tubeq_spark.storage.statement import Append, Clause, Statement

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tubeq_spark.storage.engine import Extent

__all__ = ["Sessions"]

_BUCKETS = 64
_VACUUM_BUCKET = 2_000
#: What is noted of the removal of dead files.
_VACUUMED, _TRIED = "vacuum", "vacuum_tried"
#: What a long statement asks of it.
_WRITING = "writing"
_TOTAL_BUCKET = 2_001
#: Where members and dead marks are; slots, of which there may be a thousand, are not.
_MEMBERS = f"bucket < {integer(_BUCKETS)}"
#: The counters of all members that have been forgotten.
_IS_TOTAL = f"bucket = {integer(_TOTAL_BUCKET)} AND kind = 'total'"
#: More rows and bytes than any file of the table has.
_ANY = 1 << 40
_LIVE, _LEFT = "live", "left"
#: Of the rows of one member, or of one session's dead marks.
_NEWEST = (
    "max(epoch) AS epoch, max(seq) AS seq, "
    "max_by(struct(status, unix_micros(lease_until) AS until, epoch), seq) AS last"
)


def bucket_of(session: str) -> int:
    """The bucket of a session."""
    return zlib.crc32(session.encode()) % _BUCKETS


class Sessions(SystemTable):
    """Reads and writes `_tubeq_sessions`."""

    # -- reads --------------------------------------------------------------------------------

    def views(self, session: str | None = None) -> dict[str, SessionView]:
        """What is written about one session, or about all, but for the counters."""
        where = _MEMBERS
        if session is not None:
            where = f"bucket = {integer(bucket_of(session))} AND session = {string(session)}"
        return _views(
            self._engine.rows(
                f"SELECT kind, session, member, {_NEWEST} FROM {self._table} "
                f"WHERE {where} AND kind IN ('member', 'dead') GROUP BY kind, session, member"
            )
        )

    def survey(self) -> Survey:
        """Everything that a sweep asks of this table, in one read."""
        rows = self._engine.rows(
            f"SELECT kind, bucket, session, member, slot, key, {_NEWEST}, count(*) AS n, "
            "unix_micros(max(at)) AS at, unix_micros(max(lease_until)) AS until FROM ("
            "SELECT * EXCEPT (member), IF(kind = 'slot', NULL, member) AS member, "
            f"IF(kind IN ('{_VACUUMED}', '{_TRIED}'), seq, NULL) AS key FROM {self._table}) "
            "GROUP BY kind, bucket, session, member, slot, key"
        )
        kinds: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in rows:
            kinds[row["kind"]].append(row)
        left: dict[str, bool] = defaultdict(lambda: True)
        for row in kinds["member"]:
            left[row["session"]] &= row["last"]["status"] == _LEFT
        return Survey(
            _views([*kinds["member"], *kinds["dead"]]),
            sum(row["n"] - (not left[row["session"]]) for row in kinds["member"]),
            sum(row["n"] - 1 for row in kinds["slot"]),
            {row["key"]: row["at"] for row in kinds[_VACUUMED]},
            {row["key"]: row["at"] for row in kinds[_TRIED]},
            {row["member"]: (row["until"], row["n"]) for row in kinds[_WRITING]},
        )

    def calls(self, but: str) -> list[Mapping[str, int]]:
        """The newest counters of all members, those that were forgotten included.

        Args:
            but: A member that is left out.
        """
        rows = self._engine.rows(
            f"SELECT max_by(calls, seq) AS calls FROM {self._table} "
            f"WHERE ({_MEMBERS} AND kind = 'member' OR {_IS_TOTAL}) AND member <> {string(but)} "
            "GROUP BY bucket, member"
        )
        return [row["calls"] or {} for row in rows]

    def last_written(self, limit: int) -> dict[str, int]:
        """The sessions that wrote last, and when by their own clocks."""
        rows = self._engine.rows(
            f"SELECT session, unix_micros(max(at)) AS last FROM {self._table} "
            f"WHERE {_MEMBERS} AND kind = 'member' GROUP BY session ORDER BY last DESC LIMIT {limit}"
        )
        return {row["session"]: row["last"] for row in rows}

    def version(self) -> int | None:
        """The newest version of the table, where a look at it is cheap; else `None`."""
        return self._engine.tables.version(self._table)

    def files(self) -> int:
        """How many data files the table has, where they are counted cheaply; else 0."""
        return self._engine.tables.small_files(self._table, _ANY, _ANY, every=1)

    def extent(self) -> Extent:
        """How large the table is."""
        return self._engine.tables.extent(self._table)

    def last_commit(self) -> int:
        """When the newest commit was made, by the storage's clock."""
        return self._engine.tables.last_commit(self._table)[1]

    # -- heartbeats ---------------------------------------------------------------------------

    def beat(self, member: Member, now_us: int) -> None:
        """Write a member's newest row. One commit, a blind append: it conflicts with nothing."""
        row = pa.table(
            {
                "bucket": array([bucket_of(member.session)], pa.int32()),
                "kind": array(["member"], pa.string()),
                "session": array([member.session], pa.string()),
                "member": array([member.member], pa.string()),
                "epoch": array([member.epoch], pa.int64()),
                "seq": array([member.seq], pa.int64()),
                "status": array([_LIVE if member.live else _LEFT], pa.string()),
                "lease_until": array([member.lease_until], pa.timestamp("us", "UTC")),
                "calls": counts([member.calls]),
                "at": array([now_us], pa.timestamp("us", "UTC")),
            }
        )

        self._append("heartbeat", row)

    def _append(self, operation: str, row: pa.Table) -> None:
        def attempt() -> Plan[None]:
            append = Append(self._table, row, self._operation_id())
            return Plan(append, lambda _: None)

        self._loop.run(operation, self._table_lock, attempt)

    def renew(self, member: Member, now_us: int) -> bool:
        """Write a member's row after its lease has ended, unless somebody found that out first.

        Returns:
            False when its epoch bears the dead mark. One commit, over the session's bucket.
        """
        row = {
            "kind": "'member'",
            "member": string(member.member),
            "seq": bigint(member.seq),
            "status": f"'{_LIVE}'",
            "lease_until": moment(member.lease_until),
            "calls": _map(member.calls),
            "at": moment(now_us),
        }
        return self._insert_unless_dead("renew", member.session, member.epoch, row)

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
        source = f"(SELECT 1 AS one FROM ({newest}) HAVING count_if({alive}) = 0)"
        mark = {"kind": "'dead'", "seq": "0L", "at": moment(now_us)}
        marked = self._insert_unless_dead("mark_dead", session, epoch, mark, source)
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
        row: dict[str, str],
        source: str = "(SELECT 1 AS one)",
    ) -> bool:
        bucket = bucket_of(session)
        named = {
            "bucket": integer(bucket),
            "session": string(session),
            "epoch": bigint(epoch),
        }

        def attempt() -> Plan[bool]:
            operation_id = self._operation_id()
            statement = Statement(
                self._table,
                f"{noted('t.bucket')} AND t.bucket = {named['bucket']} AND t.kind = 'dead' "
                f"AND t.session = {named['session']} AND t.epoch = {named['epoch']} "
                f"AND t.seq <> {bigint(operation_id)}",
                [Clause(named | row, inserts=True)],
                operation_id,
                source,
                {"bucket": [bucket]},
            )
            return Plan(statement, lambda affected: affected.inserted == 1)

        return self._loop.run(operation, self._table_lock, attempt)

    # -- maintenance --------------------------------------------------------------------------

    def note_vacuum(self, key: int, now_us: int, *, tried: bool = False) -> None:
        """Remember that dead files were removed, or that somebody tries. One commit, a blind append."""
        row = pa.table(
            {
                "bucket": array([_VACUUM_BUCKET], pa.int32()),
                "kind": array([_TRIED if tried else _VACUUMED], pa.string()),
                "seq": array([key], pa.int64()),
                "at": array([now_us], pa.timestamp("us", "UTC")),
            }
        )
        self._append("vacuum", row)

    def ask_to_wait(self, member: str, table: str, now_us: int, until_us: int) -> None:
        """Ask VACUUM of a table to wait for a long statement. One commit, a blind append."""
        row = pa.table(
            {
                "bucket": array([_VACUUM_BUCKET], pa.int32()),
                "kind": array([_WRITING], pa.string()),
                "member": array([member], pa.string()),
                "status": array([table], pa.string()),
                "lease_until": array([until_us], pa.timestamp("us", "UTC")),
                "at": array([now_us], pa.timestamp("us", "UTC")),
            }
        )
        self._append("writing", row)

    def asked_to_wait(self, table: str, now_us: int) -> bool:
        """Whether a living queue object runs a long statement on a table."""
        rows = self._engine.rows(
            f"SELECT 1 FROM {self._table} WHERE bucket = {integer(_VACUUM_BUCKET)} "
            f"AND kind = '{_WRITING}' AND status = {string(table)} "
            f"AND lease_until > {moment(now_us)} LIMIT 1"
        )
        return bool(rows)

    def forget_asks(self, at_us: int, loop: CommitLoop) -> int:
        """Remove what queue objects have asked of VACUUM that asked for no longer than a moment.

        One that may live has asked for longer, by a row that is newer: then the older ones stay, too.

        Args:
            at_us: The moment, past for every clock.
            loop: May give up: this meets whoever asks now. At most one commit.

        Returns:
            How many rows went.
        """
        rows = f"bucket = {integer(_VACUUM_BUCKET)} AND kind = '{_WRITING}'"
        ended = (
            f"SELECT member, count(*) AS asks FROM {self._table} WHERE {rows} GROUP BY member "
            f"HAVING max(lease_until) <= {moment(at_us)}"
        )

        def removal(operation_id: int) -> Statement:
            return Statement(
                self._table,
                f"{noted('t.bucket')} "
                f"AND t.bucket = {integer(_VACUUM_BUCKET)} AND t.kind = '{_WRITING}' "
                f"AND t.member = s.member AND t.lease_until <= {moment(at_us)} "
                f"AND coalesce(t.seq, 0L) <> {bigint(operation_id)}",
                [Clause(None)],
                operation_id,
                f"({ended})",
                {"bucket": [_VACUUM_BUCKET]},
            )

        count = f"SELECT sum(asks) AS n FROM ({ended})"
        return self._remove("forget_asks", loop, count, 1, removal)

    def compact(self, least: int, loop: CommitLoop) -> int:
        """Remove heartbeats that newer ones have replaced and sessions that all members have left.

        The newest row of every other member stays: it may go on. The counters of those that never
        will are added up in one row, in the same commit.

        Args:
            least: So many rows must be in the way.
            loop: May give up: this meets every heartbeat. At most one commit.

        Returns:
            How many rows went.
        """
        members = (
            "SELECT bucket, session, member, max(seq) AS newest, "
            "max_by(struct(status, calls), seq) AS last, count(*) AS beats "
            f"FROM {self._table} WHERE {_MEMBERS} AND kind = 'member' "
            "GROUP BY bucket, session, member"
        )
        members = (
            f"SELECT *, every(last.status = '{_LEFT}') OVER (PARTITION BY bucket, session) AS gone "
            f"FROM ({members})"
        )

        def removal(operation_id: int) -> Statement:
            counters = (
                f"SELECT explode(map_entries(last.calls)) AS entry FROM ({members}) WHERE gone "
                f"UNION ALL SELECT explode(map_entries(calls)) FROM {self._table} WHERE {_IS_TOTAL}"
            )
            totals = (
                "SELECT map_from_arrays(collect_list(name), collect_list(count)) FROM "
                f"(SELECT entry.key AS name, sum(entry.value) AS count FROM ({counters}) "
                "WHERE entry.key IS NOT NULL GROUP BY entry.key)"
            )
            source = (
                "SELECT bucket, 'member' AS kind, member, IF(gone, newest + 1, newest) AS below, "
                f"CAST(NULL AS MAP<STRING, BIGINT>) AS calls FROM ({members}) UNION ALL "
                f"SELECT {integer(_TOTAL_BUCKET)}, 'total', 'total', 1L, ({totals})"
            )
            total = {"bucket": "s.bucket", "kind": "s.kind", "member": "s.member", "seq": "0L"}
            return Statement(
                self._table,
                f"{noted('t.bucket')} "
                f"AND (t.bucket < {integer(_BUCKETS)} OR t.bucket = {integer(_TOTAL_BUCKET)}) "
                "AND t.kind IN ('member', 'total') AND t.bucket = s.bucket AND t.kind = s.kind "
                f"AND t.member = s.member AND t.seq < s.below AND t.seq <> {bigint(operation_id)}",
                [
                    Clause(None, "t.kind = 'member'"),
                    Clause({"calls": "s.calls"}),
                    Clause(total | {"calls": "s.calls"}, "s.kind = 'total'", inserts=True),
                ],
                operation_id,
                f"({source})",
                {"bucket": [*range(_BUCKETS), _TOTAL_BUCKET]},
            )

        replaced = f"SELECT sum(IF(gone, beats, beats - 1)) AS n FROM ({members})"
        return self._remove("fold_sessions", loop, replaced, least, removal)


def _views(rows: Iterable[Mapping[str, Any]]) -> dict[str, SessionView]:
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
            )
        )
    return {name: SessionView(name, tuple(members[name]), dead[name]) for name in {*members, *dead}}


def _map(calls: Mapping[str, int]) -> str:
    if not calls:
        return "CAST(map() AS MAP<STRING, BIGINT>)"
    pairs = ", ".join(f"{string(name)}, {bigint(count)}" for name, count in calls.items())
    return f"map({pairs})"
