"""Turns an error of the system for a file into a `StoreError` with path, cause and hint."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from tubeq_spark.errors import StoreError
from tubeq_spark.rules.error_text import reason_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["FileError", "using"]


class FileError(StoreError):
    """A file or directory of this host cannot be used; nothing was written."""


@contextmanager
def using(path: Path) -> Iterator[None]:
    """Run a block that uses a file or a directory.

    Raises:
        FileError: It cannot be used.
    """
    try:
        yield
    except OSError as error:
        reason = reason_of(error).replace(f": {str(path)!r}", "", 1)
        msg = f"{path} cannot be used: {reason}"
        raise FileError(msg) from error
