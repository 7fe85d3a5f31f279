"""Refuses a log that is damaged, by the name of the file: nobody reads on as if nothing were missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubeq_spark.errors import StoreError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["DamagedLogError", "damaged"]


class DamagedLogError(StoreError):
    """A file of a log is not as it was written, or not there; nothing was written."""


def damaged(file: Path | str, fault: str) -> DamagedLogError:
    """The refusal of a table for one of its files.

    Args:
        file: The file.
        fault: What is wrong with it, without the subject.
    """
    return DamagedLogError(f"{file} {fault}; `tubeq check` says what can be repaired")
