"""Notes for VACUUM in `_tubeq_sessions`: the times of its runs, and requests to delay it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from tubeq_spark.storage.arrow.columns import array
from tubeq_spark.storage.expression import Micros, Type, all_of, at, case, integer, literal, row
from tubeq_spark.storage.query import Select, count, greatest
from tubeq_spark.storage.statement import Clause, Rows, Statement
from tubeq_spark.storage.tables.system_table import SystemTable

if TYPE_CHECKING:
    from tubeq_spark.storage.commit_loop import CommitLoop
    from tubeq_spark.storage.expression import Expression, Row

_ROW, _T, _S = row(), row("t"), row("s")
#: The bucket of these notes. Statements about members do not read it.
_VACUUM_BUCKET = 2_000
#: The notes about runs of VACUUM.
VACUUMED, TRIED = "vacuum", "vacuum_tried"
#: The request of a long statement.
WRITING = "writing"


class VacuumNotes(SystemTable):
    """Reads and writes these notes."""

    def note_vacuum(self, key: int, now_us: int, *, tried: bool = False) -> None:
        """Note that dead files were removed, or that a sweep tries to remove them. One commit, a blind append."""
        row = pa.table(
            {
                "bucket": array([_VACUUM_BUCKET], pa.int32()),
                "kind": array([TRIED if tried else VACUUMED], pa.string()),
                "seq": array([key], pa.int64()),
                "at": array([now_us], pa.timestamp("us", "UTC")),
            }
        )
        self._append("vacuum", row)

    def ask_to_wait(self, member: str, table: str, now_us: int, until_us: int) -> None:
        """Ask for a delay of VACUUM of a table for a long statement. One commit, a blind append."""
        row = pa.table(
            {
                "bucket": array([_VACUUM_BUCKET], pa.int32()),
                "kind": array([WRITING], pa.string()),
                "member": array([member], pa.string()),
                "status": array([table], pa.string()),
                "lease_until": array([until_us], pa.timestamp("us", "UTC")),
                "at": array([now_us], pa.timestamp("us", "UTC")),
            }
        )
        self._append("writing", row)

    def asked_to_wait(self, table: str, now_us: int) -> bool:
        """Whether a live queue object runs a long statement on a table."""
        where = all_of(_asks(_ROW), _ROW.status == table, _ROW.lease_until > at(now_us))
        return bool(self._engine.rows(Select(self._table, {"one": literal(1)}, where, limit=1)))

    def forget_asks(self, at_us: int, loop: CommitLoop) -> int:
        """Remove requests to delay VACUUM that have ended.

        A long statement that goes on has asked again, by a newer row. Then its older rows stay, too.

        Args:
            at_us: The moment, which has passed for every clock.
            loop: A loop that may give up, because this conflicts with new requests. At most one commit.

        Returns:
            The number of removed rows.
        """
        columns = {
            "member": _ROW.member,
            "asks": count(),
            "until": greatest(_ROW.lease_until),
        }
        ended = Select(
            self._table,
            columns,
            _asks(_ROW),
            by=["member"],
            having=_ROW.until <= at(at_us),
        )

        def decide(operation_id: int) -> tuple[int, Statement | None]:
            found = self._engine.rows(ended)
            if not found:
                return 0, None
            statement = Statement(
                self._table,
                all_of(
                    _asks(_T),
                    _T.member == _S.member,
                    _T.lease_until <= at(at_us),
                    _T.seq.is_null() | (_T.seq != operation_id),
                ),
                [Clause(None)],
                operation_id,
                _T.bucket,
                Rows({"member": Type.STRING}, [(each["member"],) for each in found]),
                {"bucket": [_VACUUM_BUCKET]},
            )
            return sum(each["asks"] for each in found), statement

        return self._remove("forget_asks", loop, 1, decide)

    def forget_runs(self, ahead_us: int, least: int, loop: CommitLoop) -> int:
        """Remove replaced notes about runs of VACUUM, and merge the files of the others.

        Args:
            ahead_us: Notes with a later moment come from a wrong clock, and are removed, too.
            least: The fewest removable rows for which it commits.
            loop: A loop that may give up, because this conflicts with new notes. At most one commit.

        Returns:
            The number of removed rows.
        """
        columns = {
            "kind": _ROW.kind,
            "key": _ROW.seq,
            "n": count(),
            "newest": Micros(greatest(noted_until(ahead_us))),
        }
        runs = Select(self._table, columns, _runs(_ROW), by=["kind", "key"])

        def decide(operation_id: int) -> tuple[int, Statement | None]:
            found = self._engine.rows(runs)
            in_the_way = sum(each["n"] - (each["newest"] is not None) for each in found)
            if in_the_way < least:
                return in_the_way, None
            # Notes that are added meanwhile are newer, so they stay.
            is_over = (Micros(_T.at) < _S.newest) | (_T.at > at(ahead_us))
            statement = Statement(
                self._table,
                all_of(
                    _runs(_T),
                    _T.kind == _S.kind,
                    _T.seq == _S.key,
                    _T.seq != operation_id,
                ),
                [Clause(None, is_over), Clause({"kind": _T.kind})],
                operation_id,
                _T.bucket,
                Rows(
                    {"kind": Type.STRING, "key": Type.BIGINT, "newest": Type.BIGINT},
                    [(each["kind"], each["key"], each["newest"]) for each in found],
                ),
                {"bucket": [_VACUUM_BUCKET]},
            )
            return in_the_way, statement

        return self._remove("forget_runs", loop, least, decide)


def noted_until(ahead_us: int) -> Expression:
    """The moment of a note; NULL if it is later than this."""
    return case((_ROW.at <= at(ahead_us), _ROW.at))


def _runs(of: Row) -> Expression:
    """The notes about runs of VACUUM."""
    return (of.bucket == integer(_VACUUM_BUCKET)) & of.kind.is_in([VACUUMED, TRIED])


def _asks(of: Row) -> Expression:
    """The requests to delay VACUUM."""
    return (of.bucket == integer(_VACUUM_BUCKET)) & (of.kind == WRITING)
