"""Runs statements and appends: each is one commit or none.

For each row of the partitions that a statement names, Arrow finds the clause that applies and the row after it. The
changed rows replace the partitions that they are in. A large statement reads some files at a time, and writes their new
rows before it reads the next ones: the memory that it needs does not depend on the number of its rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tubeq_spark.model.error_text import reason_of
from tubeq_spark.storage.arrow.statement import Matching, of_kind
from tubeq_spark.storage.engine import EngineError, Outcome
from tubeq_spark.storage.log.next_version import Change
from tubeq_spark.storage.native.handles import OF_ROWS
from tubeq_spark.storage.native.small_files import Listed
from tubeq_spark.storage.statement import Affected, total_of
from tubeq_spark.storage.tables.schema import CHANGE_FEED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tubeq_spark.storage.log.actions import DataFile
    from tubeq_spark.storage.log.log_reader import Base
    from tubeq_spark.storage.log.snapshot import Snapshot
    from tubeq_spark.storage.native.plain_table import PlainTable
    from tubeq_spark.storage.native.small_files import FilesRows, SmallFiles
    from tubeq_spark.storage.statement import Note, Statement


#: An append, or a statement on an object store, is decided this many times after conflicts, before the verb reads again.
DECISIONS = 5


class Writer:
    """Writes to tables: a change that was decided on a version is committed as the next version."""

    def __init__(self, files: SmallFiles) -> None:
        """Decide by the rows of files."""
        self._files = files

    def execute(self, table: PlainTable, statement: Statement, note: Note) -> Affected:
        """Run a statement; an append, and one on an object store, is decided again at once after a conflict."""
        attempts = DECISIONS if statement.is_append or table.is_far else 1
        as_known = table.is_far and _removes_known(table, statement)
        for _ in range(attempts - 1):
            try:
                return self._execute(table, statement, note, as_known=as_known)
            except EngineError as error:
                if error.outcome is not Outcome.CONFLICT:
                    raise
            as_known = False
        return self._execute(table, statement, note, as_known=as_known)

    def _execute(
        self, table: PlainTable, statement: Statement, note: Note, *, as_known: bool
    ) -> Affected:
        with table.deciding(as_known=as_known) as base:
            snapshot, bad = base.snapshot, table.bad_files
            if _is_done(statement, snapshot):
                return Affected()
            read = _read_by(statement, snapshot)
            for file in bad.among(read if bad.of(snapshot) else ()):
                raise bad.refusal(file)
            gone = _removed_unread(snapshot, statement)
            if gone is not None:
                return self._remove(table, base, statement, note, gone)
            target = _Target(table, snapshot, statement, self._files)
            try:
                change = target.change(note)
            except BaseException as error:
                table.discard(target.earlier)
                if isinstance(error, (OSError, *OF_ROWS)):
                    bad.look(read)
                    if bad.among(read):
                        # The next decision leaves the file out, or raises an error that names it.
                        raise EngineError(reason_of(error), Outcome.CONFLICT) from error
                raise
            if change is not None:
                self.commit(table, base, change)
            return target.affected

    def commit(self, table: PlainTable, base: Base, change: Change) -> None:
        """Commit a change that was decided on a version, and cache its new rows: the next statement probably reads them.

        Args:
            table: The table.
            base: The version.
            change: The change.
        """
        # The first piece of a segment is read next. It is cached last, so it stays if not all pieces fit.
        for file, rows in reversed(table.commit(base, change)):
            self._files.keep(table.key(file), rows)

    def _remove(
        self,
        table: PlainTable,
        base: Base,
        statement: Statement,
        note: Note,
        gone: Sequence[DataFile],
    ) -> Affected:
        """Commit the removal of some files, whose numbers of rows are known."""
        if not gone:
            return Affected()
        affected = Affected(deleted=sum(file.rows or 0 for file in gone))
        self.commit(table, base, _change(base.snapshot, statement, note, affected, gone))
        return affected


class _Target:
    """The version on which a statement decides, some files after the others.

    Attributes:
        affected: The numbers of changed rows so far.
        earlier: The new files so far. Only the rows of the last part are written when they are committed.
    """

    def __init__(
        self, table: PlainTable, snapshot: Snapshot, statement: Statement, files: SmallFiles
    ) -> None:
        self._table, self._snapshot, self._statement = table, snapshot, statement
        self._files, self._shape = files, snapshot.shape
        #: The files that are read. The others stay, because none of their rows changes.
        self._listed = Listed(table, _read_by(statement, snapshot), snapshot.shape.schema)
        if len(self._listed.files) > 1:
            self._listed = self._listed.narrowed(statement.where)
        self._matching = Matching(statement, snapshot.shape.by)
        self._is_fed = snapshot.shape.properties.get(CHANGE_FEED) == "true"
        self._gone: list[DataFile] = []
        self.affected = Affected()
        self.earlier: list[DataFile] = []

    def change(self, note: Note) -> Change | None:
        """Decide the statement, and make the change to commit; `None` if it changes nothing.

        Raises:
            RefusedError: A row would get `FAIL`.
            NotByArrowError: Arrow cannot run the statement.
            EngineError: Files cannot be written.
        """
        parts, last = self._files.parts(self._listed), None
        while last is None:
            # No variable holds the rows of a part while the next one is read.
            last = self._decide(next(parts), note)
        if not self.affected.total and not self._statement.is_append:
            return None
        self.affected, written = _with_written(self._statement, self.affected, self._snapshot)
        feed = last.feed
        # If a commit has a change feed, it has all of its changes.
        if written and (feed is not None or (self.earlier and self._is_fed)):
            listed = Listed(self._table, written, self._shape.schema)
            rows = pa.concat_tables([part.rows for part in self._files.parts(listed)])
            added = of_kind(rows, "insert")
            feed = added if feed is None else pa.concat_tables([feed, added])
        new = {"rows": last.rows, "written": written, "earlier": self.earlier, "feed": feed}
        return _change(self._snapshot, self._statement, note, self.affected, self._gone, **new)

    def _decide(self, part: FilesRows, note: Note) -> Change | None:
        """Decide the statement for the rows of some files, and write the new ones unless they are the last.

        Returns:
            The change of the last ones.
        """
        applied = self._matching.applied(part.rows, are_last=part.are_last)
        affected, new = applied.affected, Change(note, order=self._statement.order)
        self.affected += affected
        if affected.total and affected.total == affected.inserted and not self.earlier:
            # No stored row changes: the new rows are added beside them.
            new = replace(new, rows=applied.inserted)
        elif affected.total:
            changed, by = applied.partitions(), self._shape.by
            gone = [f for f in part.files if tuple(f.partition[name] for name in by) in changed]
            feed = applied.feed() if self._is_fed else None
            new = replace(new, rows=applied.rows(changed), gone=gone, feed=feed)
        self._gone += new.gone
        if part.are_last:
            return new
        if new.rows is not None:
            self.earlier += [file for file, _ in self._table.write(self._snapshot, new)]
        return None


def _removes_known(table: PlainTable, statement: Statement) -> bool:
    """Whether a statement removes partitions that the known version has, as an ack does after its take."""
    known = table.known
    return known is not None and bool(_removed_unread(known, statement))


def _removed_unread(snapshot: Snapshot, statement: Statement) -> Sequence[DataFile] | None:
    """The files that a statement removes as a whole; `None` if it must read their rows.

    A statement may name all rows of its partitions. Partitions only lose rows, so the log's number of rows shows that
    none has left them.
    """
    if statement.removes is None and not statement.removes_partitions:
        return None
    files = snapshot.within(statement.partitions)
    counts = [file.rows for file in files]
    known = sum(count for count in counts if count is not None)
    removes_all = statement.removes_partitions or known == statement.removes
    return files if None not in counts and removes_all else None


def _with_written(
    statement: Statement, affected: Affected, snapshot: Snapshot
) -> tuple[Affected, Sequence[DataFile]]:
    """The changed rows, with those that were written before the commit, and the files of the latter.

    Raises:
        EngineError: Since they were written, the table has been created again, or its writers were told to begin
            anew.
    """
    written = statement.written
    if written is None:
        return affected, ()
    if not written.shape.is_like(snapshot.shape):
        msg = f"{statement.table} is not as it was when rows were written for it"
        raise EngineError(msg, Outcome.STALE)
    return replace(affected, inserted=affected.inserted + written.size), written.files


def _change(
    snapshot: Snapshot,
    statement: Statement,
    note: Note,
    affected: Affected,
    gone: Sequence[DataFile],
    **new: Any,
) -> Change:
    """The commit of a statement that was decided on a version; `new` has the new rows, as in `Change`."""

    def on(later: Snapshot) -> Change | None:
        """The same commit for a later version, if the partitions that were read have not changed."""
        is_other = later.shape is not snapshot.shape or _is_done(statement, later)
        if is_other or {file.path for file in _read_by(statement, later)} != read:
            return None
        return replace(change, total=_new_total(statement, affected, later))

    total = _new_total(statement, affected, snapshot)
    read = {file.path for file in _read_by(statement, snapshot)}
    parts = {"once": statement.once, "total": total, "on": on, "order": statement.order, **new}
    change = Change(note.after(affected), gone=gone, **parts)
    return change


def _read_by(statement: Statement, snapshot: Snapshot) -> list[DataFile]:
    """The files that a statement reads. An append reads none, so the changes of other commits do not matter."""
    return [] if statement.is_append else snapshot.within(statement.partitions)


def _is_done(statement: Statement, snapshot: Snapshot) -> bool:
    """Whether a statement with an identity was made before."""
    if statement.once is None:
        return False
    app, version = statement.once
    before = snapshot.version_under(app)
    return before is not None and before >= version


def _new_total(
    statement: Statement, affected: Affected, snapshot: Snapshot
) -> tuple[str, int] | None:
    """The total of ended tasks after a statement on a version; `None` if it does not change."""
    ended = statement.ended
    number = 0 if ended is None else ended.count_of(affected)
    if ended is None or not number:
        return None
    app = total_of(ended.tube)
    return app, (snapshot.version_under(app) or 0) + number
