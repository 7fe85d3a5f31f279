"""Data files of a table that are not as they were written: what reads leave out while they are so.

They are found where a read fails. A file can be missing for a moment, so each read looks again at those that
are known.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from tubeq_spark.storage.durability.commit_file import damaged, fault_of_length
from tubeq_spark.storage.expression import FALSE, all_of, any_of, row
from tubeq_spark.storage.rows import BadFile
from tubeq_spark.storage.tables.schema import PARTITION
from tubeq_spark.storage.tables.tube_table import OWN_SEGMENTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from tubeq_spark.storage.durability.commit_file import DamagedFileError
    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.native.delta_log.actions import DataFile
    from tubeq_spark.storage.native.delta_log.snapshot import Snapshot

log = logging.getLogger(__name__)
_ROW = row()


class BadFiles:
    """The data files of one table that are missing, cut or no Parquet. For threads.

    One that the system refuses to read for another reason is none of them.
    """

    def __init__(self, directory: Path) -> None:
        """Know none of the table at a directory."""
        self._directory = directory
        #: What is wrong with them, by their paths.
        self._faults: dict[str, str] = {}
        self._lock = threading.Lock()

    def of(self, version: Snapshot) -> list[DataFile]:
        """Those of a version that are known and not back yet."""
        if not self._faults:
            return []
        with self._lock:
            # What a later version has removed is no file of the table any more.
            known = [path for path in self._faults if path in version.files]
            self._faults = {path: self._faults[path] for path in known}
        files = [version.files[path] for path in known]
        self.look(files)
        return [file for file in files if file.path in self._faults]

    def look(self, files: Iterable[DataFile], *, at_content: bool = True) -> None:
        """Look at some files.

        Args:
            files: The files.
            at_content: Whether to look for the end of a Parquet file, too; else at lengths only.
        """
        for file in files:
            place, is_known = self._directory / file.path, file.path in self._faults
            fault = _fault_of(place, file.size, at_content=at_content or is_known)
            if fault and not is_known:
                log.warning("%s %s: reads leave its segment out", place, fault)
            elif is_known and not fault:
                log.warning("%s is as it was written again", place)
            with self._lock:
                if fault:
                    self._faults[file.path] = fault
                else:
                    self._faults.pop(file.path, None)

    def among(self, files: Iterable[DataFile]) -> list[DataFile]:
        """Those of some files that are known."""
        return [file for file in files if file.path in self._faults] if self._faults else []

    def told(self, version: Snapshot) -> list[BadFile]:
        """What is known of those of a version."""
        files = self.of(version)
        counts: dict[int | None, list[int | None]] = {}
        for file in version.beside(files) if files else ():
            counts.setdefault(file.partition[PARTITION], []).append(file.rows)
        rows = {
            segment: None if None in each else sum(count or 0 for count in each)
            for segment, each in counts.items()
        }
        return [
            BadFile(str(self._directory / file.path), fault, segment, rows[segment])
            for file in files
            if (fault := self._faults.get(file.path))
            for segment in (file.partition[PARTITION],)
        ]

    def refusal(self, file: DataFile) -> DamagedFileError:
        """The refusal of what needs the rows of a file."""
        return damaged(self._directory / file.path, self._faults.get(file.path, "was not there"))


def _fault_of(place: Path, size: int, *, at_content: bool) -> str:
    try:
        if not at_content:
            return fault_of_length(place, size)
        # Imported where it is needed: who meets no damage does without.
        from tubeq_spark.storage.check.examine import fault_of_file  # noqa: PLC0415

        return fault_of_file(place, size)
    except OSError:
        return ""


def left_out(files: Sequence[DataFile], together: Sequence[str]) -> Expression:
    """The condition of the rows of a tube that are read although some files cannot be.

    Args:
        files: All files of the segments that one of these is in, at least one. No row of them is read.
        together: Columns whose values keep rows together: rows with a value that may be in one of the files
            are left out, too.
    """
    segments = {file.partition[PARTITION] for file in files}
    others = [_ROW.segment != segment for segment in segments if segment is not None]
    of_tasks = [file for file in files if file.partition[PARTITION] not in OWN_SEGMENTS]
    return all_of(*others, *(_is_apart(file, name) for name in together for file in of_tasks))


def _is_apart(file: DataFile, column: str) -> Expression:
    """The condition of rows whose value of a column is in no row of a file, by what the log tells of it."""
    value = _ROW[column]
    if file.is_null(column):
        return value.is_not_null()
    least, greatest = (file.bound(which, column) for which in ("minValues", "maxValues"))
    if least is None or greatest is None:
        return FALSE
    outside = any_of(value < least, value > greatest)
    return any_of(value.is_null(), outside) if file.has_no_null(column) else outside
