"""Finds data files of a table that are missing or damaged. Reads leave them out.

They are found when a read fails. A file can be missing for a moment, so each read checks the known ones again.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from tubeq_spark.storage.expression import FALSE, all_of, any_of, row
from tubeq_spark.storage.log.commit_text import damaged, fault_of_length
from tubeq_spark.storage.rows import BadFile
from tubeq_spark.storage.tables.schema import PARTITION
from tubeq_spark.storage.tables.tube_table import OWN_SEGMENTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.log.actions import DataFile
    from tubeq_spark.storage.log.commit_text import DamagedFileError
    from tubeq_spark.storage.log.snapshot import Snapshot

log = logging.getLogger(__name__)
_ROW = row()


class BadFiles:
    """The data files of one table that are missing, cut or no Parquet. Thread-safe.

    A file that the system refuses to read for another reason is not among them.
    """

    def __init__(self, directory: Path) -> None:
        """Begin without bad files, for the table at a directory."""
        self._directory = directory
        #: The fault of each bad file, by its path.
        self._faults: dict[str, str] = {}
        self._lock = threading.Lock()

    def of(self, version: Snapshot) -> list[DataFile]:
        """The known bad files of a version that have not come back."""
        if not self._faults:
            return []
        with self._lock:
            # A file that a later version has removed is no longer a file of the table.
            known = [path for path in self._faults if path in version.files]
            self._faults = {path: self._faults[path] for path in known}
        files = [version.files[path] for path in known]
        self.look(files)
        return [file for file in files if file.path in self._faults]

    def look(self, files: Iterable[DataFile], *, at_content: bool = True) -> None:
        """Check some files.

        Args:
            files: The files.
            at_content: Whether to check for the end of a Parquet file, too, and not only the length.
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
        """The known bad files among some files."""
        return [file for file in files if file.path in self._faults] if self._faults else []

    def told(self, version: Snapshot) -> list[BadFile]:
        """The bad files of a version with their faults, for reports."""
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
        """The error for a read that needs the rows of a bad file."""
        return damaged(self._directory / file.path, self._faults.get(file.path, "was not there"))


class NoBadFiles(BadFiles):
    """No bad files: on an object store the read of a damaged file fails."""

    def __init__(self) -> None:
        """Begin without bad files."""
        super().__init__(Path())

    def look(self, files: Iterable[DataFile], *, at_content: bool = True) -> None:
        """Check no file."""


def _fault_of(place: Path, size: int, *, at_content: bool) -> str:
    try:
        if not at_content:
            return fault_of_length(place, size)
        # Imported here, because most processes find no damage.
        from tubeq_spark.storage.examine import fault_of_file  # noqa: PLC0415

        return fault_of_file(place, size)
    except OSError:
        return ""


def left_out(files: Sequence[DataFile], together: Sequence[str]) -> Expression:
    """The condition for the rows of a tube that are read although some files are bad.

    Args:
        files: All files of the segments of the bad files, at least one. None of their rows is read.
        together: Columns whose values keep rows together: rows with a value that may be in one of these files are
            left out, too.
    """
    segments = {file.partition[PARTITION] for file in files}
    others = [_ROW.segment != segment for segment in segments if segment is not None]
    of_tasks = [file for file in files if file.partition[PARTITION] not in OWN_SEGMENTS]
    return all_of(*others, *(_is_apart(file, name) for name in together for file in of_tasks))


def _is_apart(file: DataFile, column: str) -> Expression:
    """The condition for rows whose value of a column is in no row of a file, by the file's statistics."""
    value = _ROW[column]
    if file.is_null(column):
        return value.is_not_null()
    least, greatest = (file.bound(which, column) for which in ("minValues", "maxValues"))
    if least is None or greatest is None:
        return FALSE
    outside = any_of(value < least, value > greatest)
    return any_of(value.is_null(), outside) if file.has_no_null(column) else outside
