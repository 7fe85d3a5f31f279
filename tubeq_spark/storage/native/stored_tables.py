"""The tables at a location on an object store as a check reads them: copies of their logs, and a listing of the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tubeq_spark.storage.store.store import Store

_LOG = "_delta_log/"


class StoredTables:
    """The tables in the directories of a store."""

    def __init__(self, store: Store) -> None:
        """Read them from there."""
        self._store = store

    def names(self) -> list[str]:
        """The names of all tables that have a log.

        Raises:
            RequestError: The store fails.
        """
        paths = [path.split("/", 2) for path in self._sizes("")]
        return sorted({path[0] for path in paths if len(path) == 3 and f"{path[1]}/" == _LOG})

    def copied(self, name: str, directory: Path) -> dict[str, int]:
        """Copy the log of a table into a directory, and return the sizes of its other files.

        Files that others remove meanwhile, and Delta's checksum files, are left out.

        Raises:
            RequestError: The store fails.
            OSError: The directory cannot be written.
        """
        # The listing is in the order of names, the log first. A data file is written before the log names it.
        sizes = self._sizes(name)
        log = [path for path in sizes if path.startswith(_LOG) and not path.endswith(".crc")]

        def copy(path: str) -> None:
            try:
                content, _ = self._store.get(f"{name}/{path}", size=sizes[path])
            except FileNotFoundError:
                return
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            (directory / path).write_bytes(content)

        (directory / _LOG).mkdir(parents=True)
        self._store.together(copy, log)
        return {path: size for path, size in sizes.items() if not path.startswith(_LOG)}

    def _sizes(self, directory: str) -> dict[str, int]:
        return {file.name: file.size for file in self._store.list(directory)}
