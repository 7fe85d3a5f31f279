"""Refuses a table that is damaged, by the name of the file: nobody reads on as if nothing were missing."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tubeq_spark.errors import StoreError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["DamagedFileError", "damaged", "fault_of_length"]


class DamagedFileError(StoreError):
    """A file of a table is not as it was written, or not there; nothing was written."""


def damaged(file: Path | str, fault: str) -> DamagedFileError:
    """The refusal of a table for one of its files.

    Args:
        file: The file.
        fault: What is wrong with it, without the subject.
    """
    return DamagedFileError(f"{file} {fault}; `tubeq check` says what can be repaired")


def fault_of_length(file: Path, size: int) -> str:
    """Why a data file has not the length that it was written with; empty: it has.

    Raises:
        OSError: The system refuses to tell.
    """
    try:
        found = os.stat(file).st_size  # noqa: PTH116  (many files)
    except FileNotFoundError:
        return "is missing"
    if not found:
        return "is empty"
    return "" if found == size else f"has {found} bytes instead of {size}"
