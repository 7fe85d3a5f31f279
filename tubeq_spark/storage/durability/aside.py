"""Moves files of a log aside, where no reader finds them, and sets the checkpoint to begin with."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING

from tubeq_spark.clock import SystemClock
from tubeq_spark.storage import disk
from tubeq_spark.storage.durability.log_names import LAST_CHECKPOINT, checksum_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["ASIDE", "move_aside", "point_to"]

#: How the directories begin, in a log, that files are moved to.
ASIDE = "_lost-"


def move_aside(log: Path, names: Iterable[str], *, newest_first: bool = True) -> Path:
    """Move files of a log to a directory in it.

    Args:
        log: The directory of the log; the table's lock is held.
        names: Their names.
        newest_first: Who stops on the way leaves a log without holes: of its end the newest files go
            first, of its beginning the oldest.

    Returns:
        The directory.

    Raises:
        OSError: They cannot be moved.
    """
    aside = log / f"{ASIDE}{SystemClock().now():%Y%m%dT%H%M%S.%f}"
    aside.mkdir()
    for name in sorted(names, key=lambda name: name.lstrip("."), reverse=newest_first):
        with suppress(FileNotFoundError):
            (log / name).rename(aside / name)
    return aside


def point_to(log: Path, checkpoint: Path | None) -> None:
    """Make a log name a checkpoint of one file as the one to begin with, or none.

    Raises:
        OSError: It cannot be written.
    """
    file = log / LAST_CHECKPOINT
    if checkpoint is None:
        checksum_of(file).unlink(missing_ok=True)
        file.unlink(missing_ok=True)
        return
    from pyarrow.parquet import read_metadata  # noqa: PLC0415  where something was damaged only

    size = read_metadata(checkpoint).num_rows
    told = json.dumps({"version": int(checkpoint.name[:20]), "size": size})
    with disk.replacing(file, synced=True) as prepared:
        prepared.write_text(told, encoding="utf-8")
