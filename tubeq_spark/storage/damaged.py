"""Refuses a damaged table with an error that names the file, so that no verb skips missing data."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tubeq_spark.errors import StoreError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["DamagedFileError", "damaged", "fault_of_length"]


class DamagedFileError(StoreError):
    """A file of a table is damaged or missing; nothing was written."""


def damaged(file: Path | str, fault: str) -> DamagedFileError:
    """Make the error for a damaged file of a table.

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
