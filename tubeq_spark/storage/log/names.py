"""The names of the files in a Delta log, and of the checksums beside them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

#: The file that names the checkpoint that readers begin with.
LAST_CHECKPOINT = "_last_checkpoint"
#: A file that was prepared for a log (`.tmp`) counts as left over when it is this many seconds old.
LEFT_SECONDS = 3600.0
_COMMIT = re.compile(r"(\d{20})\.json")
#: A commit, its checksum, commits compacted into one file, or a checkpoint.
_FILE = re.compile(
    r"(\d{20})\.(?:(json|crc)|\d{20}\.(compacted)\.json|(checkpoint)(?:\.(.+))?\.(parquet|json))"
)
#: A file of one version, or of a range of versions, or the checksum of such a file.
_OF_VERSIONS = re.compile(r"\.?(\d{20})\.(?:(\d{20})\.)?")


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file of a log, by its name.

    Attributes:
        version: Its version; of compacted commits the first one.
        kind: "json" is a commit, "crc" its checksum by Delta; else "compacted" or "checkpoint".
        part: Of a checkpoint, the part of its name before the ending; empty if the checkpoint has one file.
        is_parquet: Of a checkpoint, whether it is Parquet.
    """

    version: int
    kind: str
    part: str = ""
    is_parquet: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether this is a checkpoint of one Parquet file, the kind that the queue writes."""
        return self.is_parquet and not self.part


def log_file(name: str) -> LogFile | None:
    """Parse the name of a file of a log; `None` if it is no file of a version, or a checksum file of Hadoop."""
    found = _FILE.fullmatch(name)
    if found is None:
        return None
    version, plain, compacted, checkpoint, part, ending = found.groups()
    kind = plain or compacted or checkpoint
    return LogFile(int(version), kind, part or "", ending == "parquet")


def checkpoints_in(names: Iterable[str]) -> dict[str, LogFile]:
    """The files of checkpoints among some names."""
    found = ((name, log_file(name)) for name in names if ".checkpoint." in name)
    return {name: file for name, file in found if file is not None}


def commit_file(log: object, version: int) -> str:
    """The path of a commit."""
    # Text is faster than a `Path`, and each verb needs some of these.
    return f"{log}/{version:020}.json"


def versions_of(names: Iterable[str]) -> list[int]:
    """The versions of the commits among some names, in order."""
    return sorted(int(found[1]) for found in map(_COMMIT.fullmatch, names) if found)


def version_of(name: str) -> int | None:
    """The version (or the first one) of a file or of its checksum; `None` if it has none."""
    found = _OF_VERSIONS.match(name)
    return None if found is None else int(found[1])


def names_after(names: Iterable[str], version: int) -> Iterator[str]:
    """The names of files of later versions, including checksum files."""
    for name in names:
        found = _OF_VERSIONS.match(name)
        if found is not None and int(found[2] or found[1]) > version:
            yield name


def checksum_of(file: Path) -> Path:
    """The path of Hadoop's checksum of a file. Hadoop refuses a file whose checksum is wrong."""
    return file.with_name(f".{file.name}.crc")


def is_elsewhere(path: str) -> bool:
    """Whether a file in a log belongs to another table, as in a shallow clone; it is not checked."""
    return ":" in path or path.startswith("/")
