"""Sessions, their leases and counters: `_tubeq_sessions`.

A heartbeat is an append that reads nothing, so heartbeats never conflict. A row that must be exclusive (a dead mark) is
inserted by a MERGE over the bucket of its session.
"""

from __future__ import annotations

import zlib
from collections import Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tubeq_spark.model.membership import Member, SessionView, Survey
from tubeq_spark.model.stored_task import FAILING, WORKING
from tubeq_spark.storage.arrow.columns import ARROW_TYPES, table_of
from tubeq_spark.storage.commit_loop import Plan
from tubeq_spark.storage.expression import FAIL, TRUE, Type, all_of, any_of, integer, micros, row
from tubeq_spark.storage.query import Select, greatest
from tubeq_spark.storage.statement import Clause, Statement
from tubeq_spark.storage.tables.system_table import TYPES, KeyedTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tubeq_spark.storage.engine import Extent
    from tubeq_spark.storage.expression import Expression

_BUCKETS = 64
#: The buckets of the notes of VACUUM, and of the total. Statements about members read neither.
_NOTES_BUCKET, _TOTAL_BUCKET = 2_000, 2_001
_ROW, _T, _S = row(), row("t"), row("s")
_LIVE, _LEFT = "live", "left"
_MEMBER, _DEAD, _TOTAL = "member", "dead", "total"
#: The notes about runs of VACUUM. Their key is the id of the tube, their `seq` is the moment.
VACUUMED, TRIED = "vacuum", "vacuum_tried"
#: The buckets of members and dead marks. Slots, of which there may be a thousand, have other buckets.
_IS_MEMBER = all_of(_ROW.bucket < integer(_BUCKETS), _ROW.kind == _MEMBER)
#: The row with the counters of all removed members.
_IS_TOTAL = all_of(_ROW.bucket == integer(_TOTAL_BUCKET), _ROW.kind == _TOTAL)
#: The columns of members and dead marks.
_STATE = {"status": _ROW.status, "until": micros(_ROW.lease_until), "epoch": _ROW.epoch}


def bucket_of(session: str) -> int:
    """The bucket of a session."""
    return zlib.crc32(session.encode()) % _BUCKETS


class Sessions(KeyedTable):
    """Reads and writes `_tubeq_sessions`."""

    # -- reads --------------------------------------------------------------------------------

    def views(self, session: str | None = None) -> dict[str, SessionView]:
        """The stored rows of one session, or of all, without the counters."""
        where: Expression = _ROW.bucket < integer(_BUCKETS)
        if session is not None:
            where = (_ROW.bucket == integer(bucket_of(session))) & (_ROW.session == session)
        return _views(self._newest(where & _ROW.kind.is_in([_MEMBER, _DEAD]), **_STATE))

    def survey(self, ahead_us: int) -> Survey:
        """All data that a sweep needs of this table, in one read.

        Args:
            ahead_us: Notes of VACUUM runs with a later moment come from a wrong clock, and do not count.
        """
        counts = ~_ROW.kind.is_in([VACUUMED, TRIED]) | (_ROW.seq <= ahead_us)
        rows = _marked(self._newest(counts, **_STATE))
        kinds: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for each in rows:
            kinds[each["kind"]].append(each)
        return Survey(
            _views([*kinds[_MEMBER], *kinds[_DEAD]]),
            sum(each["n"] - 1 + each["gone"] for each in rows if each["kind"] != _TOTAL),
            {int(each["key"]): each["seq"] for each in kinds[VACUUMED]},
            {int(each["key"]): each["seq"] for each in kinds[TRIED]},
        )

    def calls(self, but: str, now_us: int) -> list[Mapping[str, int]]:
        """The newest counters of all members, including removed ones.

        Args:
            but: The member to leave out.
            now_us: The moment. Of members whose lease has ended before, no loop waits any more.
        """
        columns = {"calls": _ROW.calls, **_STATE}
        rows = self._newest((_IS_MEMBER | _IS_TOTAL) & (_ROW.key != but), **columns)
        return [_counters(each, now_us) for each in rows]

    def last_written(self, limit: int) -> dict[str, int]:
        """The sessions that wrote last, with the moments by their own clocks."""
        columns = {"session": _ROW.session, "last": greatest(micros(_ROW.at))}
        by_session = Select(self._table, columns, _IS_MEMBER, ["session"])
        rows = self._engine.rows(replace(by_session, order=["last"], descending=True, limit=limit))
        return {each["session"]: each["last"] for each in rows}

    def files(self) -> int:
        """The number of data files of the table, if counting is cheap; else 0."""
        return self._engine.tables.data_files(self._table)

    def extent(self) -> Extent:
        """The size of the table."""
        return self._engine.tables.extent(self._table)

    def last_commit(self) -> int:
        """The time of the newest commit, by the storage's clock."""
        return self._engine.tables.last_commit(self._table)[1]

    # -- heartbeats ---------------------------------------------------------------------------

    def beat(self, member: Member, now_us: int) -> None:
        """Write the last row of a member. One commit, a blind append: it conflicts with nothing."""
        self._append("heartbeat", _row(member, now_us))

    def renew(self, member: Member, now_us: int) -> bool:
        """Write a member's newest row, unless its epoch has a dead mark.

        Returns:
            False if its epoch has a dead mark. One commit, over the session's bucket.
        """
        unless = (_T.session == member.session) & _is_dead(member.epoch)

        def attempt() -> Plan[bool]:
            statement = self._insert(_row(member, now_us), unless)
            return Plan(statement, lambda affected: affected.inserted == 1)

        return self._loop.run("heartbeat", self._table_lock, attempt)

    def mark_dead(self, session: str, epoch: int, now_us: int, skew_us: int) -> bool:
        """Write the dead mark of a session's epoch if none of its members is alive.

        If a renewal commits first, the statement finds its new row, and inserts nothing. A later renewal finds the
        mark.

        Returns:
            Whether the epoch has the mark now. At most one commit.
        """
        mark = {
            "bucket": bucket_of(session),
            "kind": _DEAD,
            "session": session,
            "key": f"{session}/{epoch}",
            "epoch": epoch,
            "seq": 0,
            "at": now_us,
        }

        def attempt() -> Plan[bool]:
            view = self.views(session).get(session)
            members = () if view is None else view.members
            if view is not None and view.dead_epoch >= epoch:
                return Plan(None, lambda _: True)
            if any(m.epoch == epoch and m.alive(now_us, skew_us) for m in members):
                return Plan(None, lambda _: False)
            unseen: Expression = _T.kind == _MEMBER
            if members:
                unseen &= ~any_of(
                    *((_T.key == member.member) & (_T.seq <= member.seq) for member in members)
                )
            unless = (_T.session == session) & (_is_dead(epoch) | unseen)
            return Plan(self._insert(mark, unless), self._one_inserted)

        return self._loop.run("mark_dead", self._table_lock, attempt)

    def note_vacuum(self, key: int, now_us: int, *, tried: bool = False) -> None:
        """Note that dead files were removed, or that a sweep tries to remove them. One commit, a blind append."""
        kind = TRIED if tried else VACUUMED
        note = {"bucket": _NOTES_BUCKET, "kind": kind, "key": str(key), "seq": now_us}
        self._append("vacuum", note)

    # -- compaction ---------------------------------------------------------------------------

    def compact(self, least: int, *, whole: bool = False) -> int:
        """Remove replaced rows of all kinds, and sessions that all members have left.

        The newest row of every other member stays, because the member may go on. The same commit adds the counters
        of removed members to one row, and rewrites each changed bucket into one file. It gives up if a heartbeat or a
        lease conflicts with it. At most one commit.

        Args:
            least: The fewest removable rows for which it commits.
            whole: Whether all buckets are rewritten, even if no row is removed.

        Returns:
            The number of removed rows.
        """

        def attempt() -> Plan[int]:
            rows = _marked(self._newest(TRUE, status=_ROW.status, calls=_ROW.calls))
            others = [each for each in rows if each["kind"] != _TOTAL]
            removable = Counter[int]()
            for each in others:
                removable[each["bucket"]] += each["n"] - 1 + each["gone"]
            if removable.total() < least and not whole:
                return Plan(None, lambda _: 0)
            changed = [each for each in others if whole or removable[each["bucket"]]]
            source = [*map(_place, changed), *_totals(rows)]
            return Plan(self._compaction(source), lambda affected: affected.deleted)

        return self._loop.run("fold_sessions", self._table_lock, attempt, retries=False)

    def _compaction(self, rows: list[tuple[Any, ...]]) -> Statement:
        """Remove rows of keys below a `seq`, and write the total if it is unchanged."""
        names = ("bucket", "kind", "key", "below", "seen", "calls")
        kinds = {name: ARROW_TYPES[TYPES.get(name, Type.BIGINT)] for name in names}
        is_total, written = _S.kind == _TOTAL, _S.below - 1
        total: dict[str, Expression] = {
            "bucket": _S.bucket,
            "kind": _S.kind,
            "key": _S.key,
            "seq": written,
            "calls": _S.calls,
        }
        return Statement(
            self._table,
            [
                Clause({"seq": written, "calls": _S.calls}, is_total & (_T.seq == _S.seen)),
                Clause({"seq": FAIL}, is_total),
                Clause(None, _T.seq < _S.below),
                Clause({"seq": _T.seq}),
            ],
            [Clause(total, is_total)],
            on=[_T.bucket == _S.bucket, _T.kind == _S.kind, _T.key == _S.key],
            named=table_of(rows, kinds),
            by="bucket",
            reads=sorted({bucket for bucket, *_ in rows}),
        )


def _row(member: Member, now_us: int) -> dict[str, Any]:
    return {
        "bucket": bucket_of(member.session),
        "kind": _MEMBER,
        "session": member.session,
        "key": member.member,
        "epoch": member.epoch,
        "seq": member.seq,
        "status": _LIVE if member.live else _LEFT,
        "lease_until": member.lease_until,
        "calls": member.calls,
        "at": now_us,
    }


def _counters(row: Mapping[str, Any], now_us: int) -> Mapping[str, int]:
    """The counters of a member; without those of its loops, if its lease has ended."""
    calls: Mapping[str, int] = row["calls"] or {}
    if row["status"] == _LIVE and (row["until"] is None or row["until"] > now_us):
        return calls
    return {name: count for name, count in calls.items() if not name.endswith((FAILING, WORKING))}


def _is_dead(epoch: int) -> Expression:
    return (_T.kind == _DEAD) & (_T.epoch == epoch)


def _marked(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows, with a mark at members of sessions that all members have left."""
    members = [each for each in rows if each["kind"] == _MEMBER]
    there = {each["session"] for each in members if each["status"] != _LEFT}
    for each in rows:
        each["gone"] = each["kind"] == _MEMBER and each["session"] not in there
    return rows


def _place(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """The row of a compaction for a key: its rows below a `seq` are removed."""
    return row["bucket"], row["kind"], row["key"], row["seq"] + row["gone"], None, None


def _totals(rows: Iterable[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """The row of a compaction for the total, if counters of removed members are added to it."""
    gone = [each["calls"] or {} for each in rows if each["gone"]]
    before = [each for each in rows if each["kind"] == _TOTAL]
    if not gone:
        return []
    calls = sum(map(Counter, [*gone, *(each["calls"] for each in before)]), Counter[str]())
    seen = max((each["seq"] for each in before), default=-1)
    return [(_TOTAL_BUCKET, _TOTAL, _TOTAL, seen + 2, seen, dict(calls))]


def _views(rows: Iterable[Mapping[str, Any]]) -> dict[str, SessionView]:
    members: dict[str, list[Member]] = defaultdict(list)
    dead: dict[str, int] = defaultdict(int)
    for each in rows:
        name = each["session"]
        if each["kind"] == _DEAD:
            dead[name] = max(dead[name], each["epoch"])
        else:
            is_live = each["status"] == _LIVE
            state = each["epoch"], each["seq"], is_live, each["until"]
            members[name].append(Member(name, each["key"], *state))
    return {name: SessionView(name, tuple(members[name]), dead[name]) for name in {*members, *dead}}
