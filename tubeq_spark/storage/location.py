"""The location of a queue: a path or URI, or a schema of a catalog. Refuses directories without working lock files."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from tubeq_spark.errors import StoreError
from tubeq_spark.model.validation import refuse


def identifier(*parts: str) -> str:
    """A (dotted) name, each part quoted."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


def path_table(path: str) -> str:
    """The Delta table at a path."""
    return "delta." + identifier(path)


def path_of(table: str) -> str | None:
    """The path in a name of `path_table`; `None` for a name in a catalog."""
    prefix = "delta.`"
    return table[len(prefix) : -1].replace("``", "`") if table.startswith(prefix) else None


def name_of(table: str) -> str:
    """The last part of a table's SQL name: the queue's own name for it."""
    return re.split(r"[/.`]", table.strip("`"))[-1]


TUBES = "_tubeq_tubes"
SESSIONS = "_tubeq_sessions"
#: The tables that are no tubes.
SYSTEM = frozenset({TUBES, SESSIONS})

#: A URI has a slash after its scheme, or a scheme that a user means even without it. Other colons are part of names, as
#: in `runs:2`; so is one after a single letter, as in `C:/queue`.
_URI = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+(?=:/)|(?i:file|hdfs|gs|s3a?|abfss?)):(?P<rest>.*)"
)
#: The schemes of object stores.
STORES = frozenset({"s3", "s3a", "gs", "az", "adl", "abfs", "abfss"})
#: The schemes that Hadoop only reads.
_READ_ONLY = frozenset({"http", "https"})
#: Endings of names of files; a schema does not end so.
_SUFFIXES = frozenset({".csv", ".json", ".jsonl", ".ndjson", ".parquet", ".toml", ".txt"})
#: Control characters and surrogates.
_UNUSABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_CATALOG_SCHEMA = re.compile(r"[^./:\\]+(\.[^./:\\]+)+")


@dataclass(frozen=True, slots=True)
class Location:
    """A parsed location.

    Attributes:
        text: The location as given; a relative path is made absolute.
        parts: Catalog and schema; empty for a path.
    """

    text: str
    parts: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: object) -> Location:
        """Parse the location argument of `Queue`. A `Location` is returned unchanged.

        Raises:
            InvalidOptionError: Not a path, a URI or `catalog.schema`.
        """
        if isinstance(text, Location):
            return text
        allowed = "a path, a URI such as hdfs://host/q, or catalog.schema"
        if isinstance(text, Path):
            text = str(text.absolute())
        if not isinstance(text, str) or not text.strip() or _UNUSABLE.search(text):
            refuse("location", text, allowed)
        if _CATALOG_SCHEMA.fullmatch(text) and not _is_path(text):
            return cls(text, tuple(text.split(".")))
        text = text.rstrip("/") or "/"
        found = _URI.fullmatch(text)
        if found is None and not text.startswith("/"):
            text = str(Path(text).absolute())
        elif (
            found is not None
            and found["scheme"].lower() == "file"
            and not found["rest"].startswith("/")
        ):
            text = f"file:{Path(found['rest']).absolute()}"
        return cls(text)

    @classmethod
    def of_table(cls, text: str) -> tuple[str, str]:
        """The place of a program's own table, a relative path made absolute, and its SQL name. Raises as `parse`."""
        place = cls.parse(text)
        return place.text, identifier(*place.parts) if place.in_catalog else path_table(place.text)

    @property
    def in_catalog(self) -> bool:
        """Whether the tables have names in a catalog rather than paths."""
        return bool(self.parts)

    @property
    def scheme(self) -> str:
        """The scheme of its URI, in lower case: "file" for a path, "catalog" for a schema of a catalog."""
        if self.in_catalog:
            return "catalog"
        found = _URI.fullmatch(self.text)
        return "file" if found is None else found["scheme"].lower()

    def why_unreachable(self, *, by_spark: bool) -> str | None:
        """The error text if an engine cannot reach a location of this kind; `None` if it may.

        Args:
            by_spark: Whether a Spark session is there, which may have file systems of its own.
        """
        if self.in_catalog:
            return None if by_spark else self.needs_a_session()
        scheme = self.scheme
        is_native = scheme == "file" or scheme in STORES
        if is_native or (by_spark and scheme not in _READ_ONLY):
            return None
        return (
            f"nothing can be written to {self.text}: name a path, or a URI of s3, gs, az or abfss; one of another "
            f"file system of Hadoop needs a Spark session; for a directory of this name write ./{self.text}"
        )

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

    Spark writes paths without percent-encoding, so nothing is decoded.
    """
    found = _URI.fullmatch(text)
    if found is None:
        return Path(text)
    if found["scheme"].lower() != "file":
        return None
    path = found["rest"]
    return Path(path[2:] if path.startswith("///") else path)


#: Directories of Databricks that are object stores. Each driver has its own cache of them.
_MOUNTS = ("Volumes", "dbfs")


def on_databricks() -> bool:
    """Whether this process runs on Databricks, in a notebook or a job."""
    return "DATABRICKS_RUNTIME_VERSION" in os.environ


def refuse_mounts(location: Location) -> None:
    """Refuse a directory of an object store on Databricks.

    Raises:
        StoreError: The location is such a directory.
    """
    directory = None if location.in_catalog else local_directory(location.text)
    if directory is None or not on_databricks():
        return
    for place in (directory, directory.resolve()):
        root = place.parts[1:2]
        if root and root[0] in _MOUNTS:
            raise StoreError(
                f"{directory} is an object store that Databricks shows as a directory: lock files and hard "
                "links there keep no two drivers apart, and tasks would be lost. Name a schema "
                "(catalog.schema), or the store itself (abfss://…, s3://…, gs://…) with storage_options"
            )
