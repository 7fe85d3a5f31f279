"""The location of a queue: a path or URI, or a schema of a catalog."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tubeq_spark.rules.validation import refuse
from tubeq_spark.storage.table_names import identifier, path_table

__all__ = ["SESSIONS", "SYSTEM", "TAKEN_UTUBES", "TUBES", "Location", "local_directory"]

TUBES = "_tubeq_tubes"
SESSIONS = "_tubeq_sessions"
TAKEN_UTUBES = "_tubeq_taken_utubes"
#: The tables that are no tubes.
SYSTEM = frozenset({TUBES, SESSIONS, TAKEN_UTUBES})

_URI = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?P<rest>.*)")
#: Of files and directories, not of schemas.
_SUFFIXES = frozenset({".csv", ".json", ".jsonl", ".ndjson", ".parquet", ".toml", ".txt"})
#: Control characters, and halves of pairs of surrogates.
_UNUSABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_CATALOG_SCHEMA = re.compile(r"[^./:\\]+(\.[^./:\\]+)+")


@dataclass(frozen=True, slots=True)
class Location:
    """A parsed location.

    Attributes:
        text: As given, a relative path made absolute.
        parts: Catalog and schema; empty for a path.
    """

    text: str
    parts: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: object) -> Location:
        """Parse the location argument of `Queue`.

        Raises:
            InvalidOptionError: Not a path, a URI or `catalog.schema`.
        """
        allowed = "a path, a URI such as hdfs://host/q, or catalog.schema"
        if isinstance(text, Path):
            text = str(text.absolute())
        if not isinstance(text, str) or not text.strip() or _UNUSABLE.search(text):
            refuse("location", text, allowed)
        if _CATALOG_SCHEMA.fullmatch(text) and not _is_path(text):
            return cls(text, tuple(text.split(".")))
        text = text.rstrip("/") or "/"
        if ":" not in text and not text.startswith("/"):
            text = str(Path(text).absolute())
        return cls(text)

    @property
    def in_catalog(self) -> bool:
        """Whether the tables have names in a catalog rather than paths."""
        return bool(self.parts)

    def needs_a_session(self) -> str:
        """The error text if a catalog is given without a Spark session."""
        return (
            f"{self.text} is a schema of a catalog: only a Spark session knows where it is; "
            f"for a directory of this name write ./{self.text}"
        )

    def table(self, name: str) -> str:
        """The SQL name of one of the queue's tables."""
        if self.parts:
            return identifier(*self.parts, name)
        return path_table(f"{self.text}/{name}")

    def schema_query(self) -> str | None:
        """A statement that fails when the catalog's schema does not exist; paths need none."""
        return f"DESCRIBE SCHEMA {identifier(*self.parts)}" if self.parts else None


def _is_path(text: str) -> bool:
    """Whether a text that may be `catalog.schema` is a path."""
    return Path(text).suffix.lower() in _SUFFIXES or Path(text).is_dir()


def local_directory(text: str) -> Path | None:
    """The directory of a path or URI on the local file system; `None` on any other storage.

    Spark names places without percent-encoding, so nothing is decoded.
    """
    found = _URI.fullmatch(text)
    if found is None:
        return Path(text)
    if found["scheme"].lower() != "file":
        return None
    path = found["rest"]
    return Path(path[2:] if path.startswith("///") else path)
