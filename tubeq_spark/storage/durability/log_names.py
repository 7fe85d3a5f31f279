"""The names of the files in a Delta log, and of the checksums beside them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

__all__ = ["LAST_CHECKPOINT", "checksum_of", "commit_file", "names_after", "versions_of"]

#: The file that names the checkpoint that readers begin with.
LAST_CHECKPOINT = "_last_checkpoint"
_COMMIT = re.compile(r"(\d{20})\.json")
#: A file of one version, or of a range of versions, or the checksum of such a file.
_OF_VERSIONS = re.compile(r"\.?(\d{20})\.(?:(\d{20})\.)?")


def commit_file(log: Path, version: int) -> str:
    """The path of a commit."""
    # As text: each verb asks for some.
    return f"{log}/{version:020}.json"


def versions_of(names: Iterable[str]) -> list[int]:
    """The versions of the commits among some names, in order."""
    return sorted(int(found[1]) for found in map(_COMMIT.fullmatch, names) if found)


def names_after(names: Iterable[str], version: int) -> Iterator[str]:
    """The names of files of later versions, including checksum files."""
    for name in names:
        found = _OF_VERSIONS.match(name)
        if found is not None and int(found[2] or found[1]) > version:
            yield name


def checksum_of(file: Path) -> Path:
    """The path of Hadoop's checksum of a file; with another one Hadoop refuses the file."""
    return file.with_name(f".{file.name}.crc")
