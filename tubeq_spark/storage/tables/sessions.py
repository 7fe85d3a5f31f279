"""Sessions, their leases and counters: `_tubeq_sessions`.

A heartbeat is an append that reads nothing, so heartbeats never conflict. Of the rows of one member the one with
the highest `seq` counts. A change that must be exclusive (a dead mark) is a MERGE over the literal bucket, which
all competing commits read.
"""

from __future__ import annotations

import zlib
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tubeq_spark.model.membership import Member, SessionView, Survey
from tubeq_spark.storage.arrow.columns import array, counts
from tubeq_spark.storage.commit_loop import CommitLoop, Plan
from tubeq_spark.storage.expression import (
    FAIL,
    Literal,
    Micros,
    Type,
    all_of,
    any_of,
    at,
    case,
    integer,
    literal,
    null,
    row,
)
from tubeq_spark.storage.query import Select, Struct, count, greatest, last_by, named
from tubeq_spark.storage.statement import ONE_ROW, Clause, Rows, Statement
from tubeq_spark.storage.tables.system_table import SystemTable
from tubeq_spark.storage.tables.vacuum_notes import TRIED, VACUUMED, WRITING, noted_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tubeq_spark.storage.engine import Extent
    from tubeq_spark.storage.expression import Expression

_BUCKETS = 64
_TOTAL_BUCKET = 2_001
_ROW, _T, _S = row(), row("t"), row("s")
#: The buckets of members and dead marks. Slots, of which there may be a thousand, have other buckets.
_MEMBERS = _ROW.bucket < integer(_BUCKETS)
#: The row with the counters of all removed members.
_IS_TOTAL = (_ROW.bucket == integer(_TOTAL_BUCKET)) & (_ROW.kind == "total")
_LIVE, _LEFT = "live", "left"
#: The `seq` of the total if it has no row.
_NO_TOTAL = -1
#: Aggregates over the rows of one member, or over the dead marks of one session.
_NEWEST = {
    "epoch": greatest(_ROW.epoch),
    "seq": greatest(_ROW.seq),
    "last": last_by(
        Struct({"status": _ROW.status, "until": Micros(_ROW.lease_until), "epoch": _ROW.epoch}),
        _ROW.seq,
    ),
}


def bucket_of(session: str) -> int:
    """The bucket of a session."""
    return zlib.crc32(session.encode()) % _BUCKETS


class Sessions(SystemTable):
    """Reads and writes `_tubeq_sessions`."""

    # -- reads --------------------------------------------------------------------------------

    def views(self, session: str | None = None) -> dict[str, SessionView]:
        """The stored rows of one session, or of all, without the counters."""
        where: Expression = _MEMBERS
        if session is not None:
            where = (_ROW.bucket == integer(bucket_of(session))) & (_ROW.session == session)
        by = ["kind", "session", "member"]
        kinds = _ROW.kind.is_in(["member", "dead"])
        return _views(
            self._engine.rows(Select(self._table, named(*by) | _NEWEST, where & kinds, by))
        )

    def survey(self, ahead_us: int) -> Survey:
        """All data that a sweep needs of this table, in one read.

        Args:
            ahead_us: Notes of VACUUM runs with a later moment come from a wrong clock, and do not count.
        """
        keys = {
            **named("kind", "bucket", "session"),
            "member": case((_ROW.kind == "slot", null(Type.STRING)), other=_ROW.member),
            "slot": _ROW.slot,
            "key": case((_ROW.kind.is_in([VACUUMED, TRIED]), _ROW.seq)),
        }
        found = {
            **_NEWEST,
            "n": count(),
            "at": Micros(greatest(noted_until(ahead_us))),
            "until": Micros(greatest(_ROW.lease_until)),
        }
        rows = self._engine.rows(Select(self._table, keys | found, by=[*keys]))
        kinds: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for each in rows:
            kinds[each["kind"]].append(each)
        left: dict[str, bool] = defaultdict(lambda: True)
        for each in kinds["member"]:
            left[each["session"]] &= each["last"]["status"] == _LEFT
        return Survey(
            _views([*kinds["member"], *kinds["dead"]]),
            sum(each["n"] - (not left[each["session"]]) for each in kinds["member"]),
            sum(each["n"] - 1 for each in kinds["slot"]),
            _noted(kinds[VACUUMED]),
            _noted(kinds[TRIED]),
            sum(each["n"] - (each["at"] is not None) for each in kinds[VACUUMED] + kinds[TRIED]),
            {each["member"]: (each["until"], each["n"]) for each in kinds[WRITING]},
        )

    def calls(self, but: str) -> list[Mapping[str, int]]:
        """The newest counters of all members, including removed ones.

        Args:
            but: The member to leave out.
        """
        members = (_MEMBERS & (_ROW.kind == "member")) | _IS_TOTAL
        rows = self._engine.rows(
            Select(
                self._table,
                {"calls": last_by(_ROW.calls, _ROW.seq)},
                members & (_ROW.member != but),
                by=["bucket", "member"],
            )
        )
        return [each["calls"] or {} for each in rows]

    def last_written(self, limit: int) -> dict[str, int]:
        """The sessions that wrote last, with the moments by their own clocks."""
        rows = self._engine.rows(
            Select(
                self._table,
                {"session": _ROW.session, "last": Micros(greatest(_ROW.at))},
                _MEMBERS & (_ROW.kind == "member"),
                by=["session"],
                order=["last"],
                descending=True,
                limit=limit,
            )
        )
        return {each["session"]: each["last"] for each in rows}

    def version(self) -> int | None:
        """The newest version of the table, if it is cheap to get; else `None`."""
        return self._engine.tables.version(self._table)

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

    def begin_with(self, calls: Iterable[Mapping[str, int]]) -> None:
        """Write counters of calls that were made elsewhere. One commit, a blind append."""
        total = sum(map(Counter, calls), Counter[str]())
        row = {
            "bucket": array([_TOTAL_BUCKET], pa.int32()),
            "kind": array(["total"], pa.string()),
            "member": array(["total"], pa.string()),
            # The `seq` grows with the counters, so the row that is written last counts.
            "seq": array([total.total()], pa.int64()),
            "calls": counts([total]),
        }
        self._append("begin", pa.table(row))

    def renew(self, member: Member, now_us: int) -> bool:
        """Write a member's row after its lease has ended, unless its epoch has a dead mark.

        Returns:
            False if its epoch has a dead mark. One commit, over the session's bucket.
        """
        row: dict[str, Expression] = {
            "kind": literal("member"),
            "member": literal(member.member),
            "seq": literal(member.seq),
            "status": literal(_LIVE),
            "lease_until": at(member.lease_until),
            "calls": Literal(member.calls, Type.COUNTS),
            "at": at(now_us),
        }
        statement = self._unless_dead(member.session, member.epoch, row)

        def attempt() -> Plan[bool]:
            return Plan(statement(self._operation_id()), lambda affected: affected.inserted == 1)

        return self._loop.run("renew", self._table_lock, attempt)

    def mark_dead(self, session: str, epoch: int, now_us: int, skew_us: int) -> bool:
        """Write the dead mark of a session's epoch if none of its members is alive.

        If a renewal commits first, the statement finds its new row, and inserts nothing. A later renewal finds the
        mark.

        Returns:
            Whether the epoch has the mark now. At most one commit.
        """
        mark = {"kind": literal("dead"), "seq": literal(0), "at": at(now_us)}

        def attempt() -> Plan[bool]:
            view = self.views(session).get(session)
            members = () if view is None else view.members
            if view is not None and view.dead_epoch >= epoch:
                return Plan(None, lambda _: True)
            if any(m.epoch == epoch and m.alive(now_us, skew_us) for m in members):
                return Plan(None, lambda _: False)
            seen = [(_T.member == member.member) & (_T.seq <= member.seq) for member in members]
            unseen = _T.kind == "member"
            statement = self._unless_dead(
                session, epoch, mark, unseen & ~any_of(*seen) if seen else unseen
            )
            return Plan(statement(self._operation_id()), self._one_inserted)

        return self._loop.run("mark_dead", self._table_lock, attempt)

    def _unless_dead(
        self,
        session: str,
        epoch: int,
        row: Mapping[str, Expression],
        nor: Expression | None = None,
    ) -> Callable[[int], Statement]:
        """The statement that writes a row of a session's epoch unless it has a dead mark.

        Args:
            session: The session.
            epoch: The epoch.
            row: The columns of the row, besides bucket, session and epoch.
            nor: The condition for rows of the session that also prevent the write.

        Returns:
            A function that makes the statement from its operation id.
        """
        bucket = bucket_of(session)
        where = (_T.kind == "dead") & (_T.epoch == epoch)
        named = {"bucket": integer(bucket), "session": literal(session), "epoch": literal(epoch)}
        return lambda operation_id: Statement(
            self._table,
            all_of(
                _T.bucket == integer(bucket),
                _T.session == session,
                where if nor is None else where | nor,
                _T.seq != operation_id,
            ),
            [Clause({**named, **row}, inserts=True)],
            operation_id,
            _T.bucket,
            ONE_ROW,
            {"bucket": [bucket]},
        )

    def compact(self, least: int, loop: CommitLoop) -> int:
        """Remove replaced heartbeats, and sessions that all members have left.

        The newest row of every other member stays, because the member may go on. The same commit adds the counters
        of removed members to one row.

        Args:
            least: The fewest removable rows for which it commits.
            loop: A loop that may give up, because this conflicts with every heartbeat. At most one commit.

        Returns:
            The number of removed rows.
        """

        def decide(operation_id: int) -> tuple[int, Statement | None]:
            members = self._engine.rows(self._members_to_compact)
            left: dict[str, bool] = defaultdict(lambda: True)
            for each in members:
                left[each["session"]] &= each["last"]["status"] == _LEFT
            gone = [each for each in members if left[each["session"]]]
            rows: list[tuple[Any, ...]] = [
                (
                    each["bucket"],
                    "member",
                    each["member"],
                    each["newest"] + left[each["session"]],
                    None,
                    None,
                )
                for each in members
            ]
            replaced = sum(each["beats"] - 1 for each in members) + len(gone)
            if replaced < least:
                return replaced, None
            seen, total = self._total()
            for each in gone:
                total += Counter(each["last"]["calls"] or {})
            rows.append((_TOTAL_BUCKET, "total", "total", seen + 2, seen, dict(total)))
            return replaced, self._compaction(rows, operation_id)

        return self._remove("fold_sessions", loop, least, decide)

    def merge_files(self, loop: CommitLoop) -> None:
        """Rewrite the rows of members and dead marks unchanged, into one file for each bucket.

        Args:
            loop: A loop that may give up, as for `compact`. One commit.
        """

        def attempt() -> Plan[None]:
            operation_id = self._operation_id()
            statement = Statement(
                self._table,
                (_T.bucket < integer(_BUCKETS)) & (_T.seq != operation_id),
                [Clause({"seq": _T.seq})],
                operation_id,
                _T.bucket,
                partitions={"bucket": range(_BUCKETS)},
            )
            return Plan(statement, lambda _: None)

        loop.run("merge_sessions", self._table_lock, attempt)

    @property
    def _members_to_compact(self) -> Select:
        """A query for the newest row of each member, and the number of its rows."""
        by = ["bucket", "session", "member"]
        columns = {
            **named(*by),
            "newest": greatest(_ROW.seq),
            "last": last_by(Struct(named("status", "calls")), _ROW.seq),
            "beats": count(),
        }
        return Select(self._table, columns, _MEMBERS & (_ROW.kind == "member"), by)

    def _total(self) -> tuple[int, Counter[str]]:
        """The counters of all removed members, and the `seq` of their row."""
        columns = {"seq": greatest(_ROW.seq), "calls": last_by(_ROW.calls, _ROW.seq)}
        found = self._engine.rows(Select(self._table, columns, _IS_TOTAL))[0]
        seen = _NO_TOTAL if found["seq"] is None else found["seq"]
        return seen, Counter(found["calls"] or {})

    def _compaction(self, rows: Sequence[tuple[Any, ...]], operation_id: int) -> Statement:
        """Remove rows of members up to a `seq`, and write the total if it is unchanged."""
        columns = {
            "bucket": Type.INT,
            "kind": Type.STRING,
            "member": Type.STRING,
            "below": Type.BIGINT,
            "seen": Type.BIGINT,
            "calls": Type.COUNTS,
        }
        written = _S.below - 1
        total: dict[str, Expression] = {
            "bucket": _S.bucket,
            "kind": _S.kind,
            "member": _S.member,
            "seq": written,
            "calls": _S.calls,
        }
        return Statement(
            self._table,
            all_of(
                any_of(_T.bucket < integer(_BUCKETS), _T.bucket == integer(_TOTAL_BUCKET)),
                _T.kind.is_in(["member", "total"]),
                _T.bucket == _S.bucket,
                _T.kind == _S.kind,
                _T.member == _S.member,
                any_of(_T.kind == "total", _T.seq < _S.below),
                _T.seq != operation_id,
            ),
            [
                Clause(None, _T.kind == "member"),
                Clause({"seq": written, "calls": _S.calls}, _T.seq == _S.seen),
                Clause({"seq": FAIL}),
                Clause(total, _S.kind == "total", inserts=True),
            ],
            operation_id,
            _T.bucket,
            Rows(columns, rows),
            {"bucket": [*range(_BUCKETS), _TOTAL_BUCKET]},
        )


def _noted(runs: Iterable[Mapping[str, Any]]) -> dict[int, int]:
    """The moments of notes about VACUUM, by the key of their tables."""
    return {each["key"]: each["at"] for each in runs if each["at"] is not None}


def _views(rows: Iterable[Mapping[str, Any]]) -> dict[str, SessionView]:
    members: dict[str, list[Member]] = defaultdict(list)
    dead: dict[str, int] = defaultdict(int)
    for each in rows:
        last = each["last"]
        if each["kind"] == "dead":
            dead[each["session"]] = max(dead[each["session"]], each["epoch"])
            continue
        members[each["session"]].append(
            Member(
                each["session"],
                each["member"],
                last["epoch"],
                each["seq"],
                last["status"] == _LIVE,
                last["until"],
            )
        )
    return {name: SessionView(name, tuple(members[name]), dead[name]) for name in {*members, *dead}}
