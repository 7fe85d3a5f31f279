"""Hadoop's checksum files in a log: Spark refuses to read a file whose checksum differs."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from tubeq_spark.storage.durability.files_there import stale_of
from tubeq_spark.storage.durability.log_names import checksum_of

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["fits", "is_stale"]

#: How long its head is, and each of its numbers, and how many bytes of the file one is about.
_HEAD, _NUMBER, _CHUNK = 8, 4, 512


def is_stale(file: Path) -> bool:
    """Whether the length of a checksum file does not fit the length of its file."""
    return any(True for _ in stale_of(file.parent, [file.name]))


def fits(file: Path) -> bool:
    """Whether a file fits its checksum file; true if it has none."""
    try:
        text, content = checksum_of(file).read_bytes()[_HEAD:], file.read_bytes()
    except FileNotFoundError:
        return True
    made = b"".join(
        zlib.crc32(content[at : at + _CHUNK]).to_bytes(_NUMBER, "big")
        for at in range(0, len(content), _CHUNK)
    )
    return made == text
