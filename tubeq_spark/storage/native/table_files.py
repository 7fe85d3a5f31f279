"""Reads single files of a table's directory, on any storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["read"]


def read(path: str, options: Mapping[str, str], name: str) -> bytes | None:
    """The contents of a file; `None` if it does not exist.

    Args:
        path: Path or URI of the table.
        options: What the library needs to reach the storage.
        name: The file, within the table.
    """
    # They bring the clients of all object stores along, which most processes never need.
    from deltalake.fs import DeltaStorageHandler  # noqa: PLC0415
    from pyarrow.fs import FileSystem, PyFileSystem  # noqa: PLC0415

    files: FileSystem = PyFileSystem(DeltaStorageHandler(path, dict(options) or None))
    try:
        with files.open_input_stream(name) as file:
            content: bytes = file.readall()
    except FileNotFoundError:
        return None
    return content
