"""Refuses a damaged table with an error that names the file, so that no verb skips missing data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubeq_spark.errors import StoreError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["DamagedFileError", "damaged"]


class DamagedFileError(StoreError):
    """A file of a table is damaged or missing; nothing was written."""


def damaged(file: Path | str, fault: str) -> DamagedFileError:
    """Make the error for a damaged file of a table.

    Args:
        file: The file.
        fault: What is wrong with it, without the subject.
    """
    return DamagedFileError(f"{file} {fault}; `tubeq check` says what can be repaired")
