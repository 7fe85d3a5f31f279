"""Shows a waiting verb that another process has committed to its tube, by the name of the next version in the log.

On local files the name of the next version is known in advance. So a waiting verb can check many
times a second whether this file exists, and reads the tube only after a commit that may matter.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING

from tubeq_spark.storage.log.names import commit_file, versions_of

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

#: The beginning of a note, in any field of a commit.
_OPERATION = re.compile(rb"tubeq operation=(\w+)")
#: The number of bytes to read for the note, which is in the first line.
_BEGINNING = 1 << 16


class Arrivals:
    """Counts commits to a table, except those of certain operations, from the first call on."""

    def __init__(self, log: Path, but: Collection[str]) -> None:
        """Follow a log.

        Args:
            log: The directory of the log.
            but: Operations that cannot end the wait.
        """
        self._log = log
        self._but = {name.encode() for name in but}
        self._last: int | None = None
        self._count = 0

    def count(self) -> int:
        """The number of such commits; 0 if the log cannot be read.

        The first call lists the names in the log. Later calls check for one name at a time.
        """
        with suppress(OSError):
            if self._last is None:
                self._last = self._newest()
            while os.path.exists(commit_file(self._log, self._last + 1)):  # noqa: PTH110
                self._last += 1
                self._count += self._matters(self._last)
            if not os.path.exists(commit_file(self._log, self._last)):  # noqa: PTH110
                # While this process was suspended, the log may have been shortened beyond this version.
                before, self._last = self._last, self._newest()
                self._count += self._last != before
        return self._count

    def _newest(self) -> int:
        names = os.listdir(self._log)  # noqa: PTH208  (names are enough)
        return max(versions_of(names), default=-1)

    def _matters(self, version: int) -> bool:
        with open(commit_file(self._log, version), "rb") as file:  # noqa: PTH123  (as its siblings)
            found = _OPERATION.search(file.read(_BEGINNING))
        # Commits without a note may be of any kind, so they count.
        return found is None or found[1] not in self._but
