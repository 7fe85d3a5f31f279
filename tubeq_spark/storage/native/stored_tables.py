"""The tables at a location on an object store as a check reads them: copies of their logs, and a listing of the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubeq_spark.storage.native.store_client import patiently

if TYPE_CHECKING:
    from pathlib import Path

    from tubeq_spark.storage.native.object_store import Bucket
    from tubeq_spark.storage.native.store_client import Patience

_LOG = "_delta_log/"


class StoredTables:
    """The tables below one key."""

    def __init__(self, bucket: Bucket, key: str, patience: Patience) -> None:
        """Read them from a bucket."""
        self._bucket, self._key, self._patience = bucket, key, patience

    def names(self) -> list[str]:
        """The names of all tables that have a log.

        Raises:
            RequestError: The store fails.
        """
        paths = [path.split("/", 2) for path in self._sizes(self._key)]
        return sorted({path[0] for path in paths if len(path) == 3 and f"{path[1]}/" == _LOG})

    def copied(self, name: str, directory: Path) -> dict[str, int]:
        """Copy the log of a table into a directory, and return the sizes of its other files.

        Files that others remove meanwhile, and Delta's checksum files, are left out.

        Raises:
            RequestError: The store fails.
            OSError: The directory cannot be written.
        """
        table = f"{self._key}/{name}" if self._key else name
        # The listing is in the order of names, the log first. A data file is written before the log names it.
        sizes = self._sizes(table)
        log = [path for path in sizes if path.startswith(_LOG) and not path.endswith(".crc")]

        def copy(path: str) -> None:
            try:
                content, _ = patiently(
                    lambda: self._bucket.get(f"{table}/{path}", sizes[path]), self._patience
                )
            except FileNotFoundError:
                return
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            (directory / path).write_bytes(content)

        (directory / _LOG).mkdir(parents=True)
        self._bucket.together(copy, log)
        return {path: size for path, size in sizes.items() if not path.startswith(_LOG)}

    def _sizes(self, prefix: str) -> dict[str, int]:
        listed = patiently(lambda: self._bucket.list_from(prefix), self._patience)
        return {file.name: file.size for file in listed}
