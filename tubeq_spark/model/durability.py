"""The moment by which a commit to local files is on the disk: before its verb returns, within a second, or later."""

from __future__ import annotations

import os
from enum import StrEnum

#: The environment variable with the default of a process.
VARIABLE = "TUBEQ_DURABILITY"


class Durability(StrEnum):
    """The commits that a power cut may lose."""

    COMMIT = "commit"
    """Nothing that was acknowledged: a verb answers when its commit is on the disk."""
    TABLE = "table"
    """The last second: each table is consistent, and is written to the disk once a second."""
    NONE = "none"
    """Everything that the system has not written by itself, and perhaps the table with it."""

    @property
    def rank(self) -> int:
        """The strength of the durability: a greater number promises more."""
        return (Durability.NONE, Durability.TABLE, Durability.COMMIT).index(self)


def default() -> str:
    """The default durability."""
    return os.environ.get(VARIABLE) or Durability.COMMIT.value
