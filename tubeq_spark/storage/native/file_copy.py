"""Copies tables file by file, also to another storage: the data files first, then the log that names them.

A copy has the newest version of its table under the same number, with the transaction ids of its log: keys of
puts and totals of ended tasks. The log of the copy begins at a checkpoint, as after a clean-up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubeq_spark.errors import StoreError
from tubeq_spark.storage.log.log_files import LOG, checkpoints_in

if TYPE_CHECKING:
    from tubeq_spark.storage.log.snapshot import Snapshot
    from tubeq_spark.storage.store.store import Store


def copy_table(source: Store, target: Store, name: str, newest: Snapshot) -> None:
    """Copy a table.

    Args:
        source: The files of its location.
        target: The files of the new location.
        name: Its name.
        newest: Its newest version.

    Raises:
        FileNotFoundError: Another program has removed old files meanwhile.
        OSError: The storage fails.
        StoreError: The log lacks a commit.
    """
    log = _log_at(source, name, newest.version)
    data = {f"{name}/{path}": file.size for path, file in newest.files.items()}
    for path, size in (data | log).items():
        _copy_file(source, target, path, size)


def _copy_file(source: Store, target: Store, path: str, size: int) -> None:
    """Copy a file of this many bytes."""
    with source.open_file(path, size) as content:
        target.put(path, content.read())


def _log_at(source: Store, name: str, version: int) -> dict[str, int]:
    """The files of a log that a reader of a version needs, in the order in which they are written."""
    found = {file.name: file.size for file in source.list(f"{name}/{LOG}")}
    checkpoints = {of.version: file for file, of in checkpoints_in(found).items() if of.is_plain}
    first = max((v for v in checkpoints if v <= version), default=None)
    commits = [f"{v:020}.json" for v in range(first or 0, version + 1)]
    missing = [c for c in (commits if first is None else commits[1:]) if c not in found]
    if missing:
        raise StoreError(f"table {name} cannot be copied: its log lacks {missing[0]}")
    # `_last_checkpoint` is not copied: it is only a hint.
    files = [*(() if first is None else (checkpoints[first],)), *commits]
    return {f"{name}/{LOG}/{file}": found[file] for file in files if file in found}
