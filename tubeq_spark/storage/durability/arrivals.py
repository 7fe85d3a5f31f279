"""Shows a waiting verb that another process has committed to its tube, by the name of the next version in the log.

On local files the name of the next version is known in advance. So a waiting verb can check many
times a second whether this file exists, and reads the tube only after a commit that may matter.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

from tubeq_spark.storage.log.names import commit_file
from tubeq_spark.storage.note import pattern_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from tubeq_spark.storage.durability.synced_log import SyncedLog

#: The operation in a note, in any field of a commit.
_OPERATION = re.compile(pattern_of("operation").encode())
#: The number of bytes to read for the note, which is in the first line.
_BEGINNING = 1 << 16


class Arrivals:
    """Counts commits to a table, except those of certain operations, from the first call on."""

    def __init__(self, synced: SyncedLog, but: Collection[str]) -> None:
        """Follow a log.

        Args:
            synced: The log.
            but: Operations that cannot end the wait.
        """
        self._synced = synced
        self._but = {name.encode() for name in but}
        self._last: int | None = None
        self._count = 0

    def count(self) -> int:
        """The number of such commits; 0 if the log cannot be read.

        The first call lists the names in the log. Later calls check for one name at a time.
        """
        with suppress(OSError):
            known = self._last
            newest = self._synced.newest_since(-1 if known is None else known)
            if known is not None and newest != known:
                new = range(known + 1, newest + 1)
                # If the table was created anew, its versions begin again.
                self._count += sum(map(self._matters, new)) if new else 1
            self._last = newest
        return self._count

    def _matters(self, version: int) -> bool:
        try:
            with open(commit_file(self._synced.log, version), "rb") as file:  # noqa: PTH123  (as its siblings)
                found = _OPERATION.search(file.read(_BEGINNING))
        except FileNotFoundError:
            # While this process was suspended, the log was shortened beyond this version.
            return True
        # Commits without a note may be of any kind, so they count.
        return found is None or found[1] not in self._but
