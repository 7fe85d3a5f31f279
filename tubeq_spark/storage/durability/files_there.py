"""Checks that the files in a log exist in full length. A power cut may leave some empty or cut."""

from __future__ import annotations

import os
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING

from tubeq_spark.storage.log.names import checksum_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

#: The first and last bytes of a Parquet file, plain or encrypted.
_MAGICS = (b"PAR1", b"PARE")
#: The first bytes of a checksum file of Hadoop, and the number of bytes for each of its checksums.
_CHECKSUM, _CHUNK = b"crc\0", 512


def is_of_the_system(error: Exception) -> bool:
    """Whether the system refused to read a file; such an error says nothing about its contents.

    Arrow raises errors of the same class, without an errno, for bad contents.
    """
    return isinstance(error, OSError) and error.errno is not None


def is_elsewhere(path: str) -> bool:
    """Whether a file in a log belongs to another table, as in a shallow clone; it is not checked."""
    return ":" in path or path.startswith("/")


def is_there(table: Path, path: str, size: int | None) -> bool:
    """Whether a file has its full length, and ends like a Parquet file.

    Raises:
        OSError: The system refuses access to the file.
    """
    if is_elsewhere(path):
        return True
    file = table / path
    try:
        found = os.stat(file).st_size  # noqa: PTH116  (many files)
    except FileNotFoundError:
        return False
    return size is None or (found == size and (not path.endswith(".parquet") or is_parquet(file)))


def is_parquet(file: Path) -> bool:
    """Whether a file exists, and begins and ends like a Parquet file.

    Raises:
        OSError: The system refuses to read the file.
    """
    try:
        with file.open("rb") as opened:
            begins = opened.read(4)
            if begins not in _MAGICS:
                return False
            opened.seek(-4, os.SEEK_END)
            return opened.read() == begins
    except FileNotFoundError:
        return False


def stale_of(directory: Path, names: Iterable[str]) -> Iterator[Path]:
    """The checksum files that cannot belong to their files."""
    for name in names:
        file = directory / name
        checksum = checksum_of(file)
        with suppress(FileNotFoundError):
            text, chunks = checksum.read_bytes(), -(-file.stat().st_size // _CHUNK)
            if not text.startswith(_CHECKSUM) or len(text) != 2 * len(_CHECKSUM) + 4 * chunks:
                yield checksum


def fits(file: Path) -> bool:
    """Whether a file fits its checksum file; true if it has none."""
    try:
        text, content = checksum_of(file).read_bytes()[2 * len(_CHECKSUM) :], file.read_bytes()
    except FileNotFoundError:
        return True
    made = (zlib.crc32(content[at : at + _CHUNK]) for at in range(0, len(content), _CHUNK))
    return text == b"".join(number.to_bytes(4, "big") for number in made)
