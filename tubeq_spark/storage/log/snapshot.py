"""A version of a table: its files, its columns, and its transaction ids of applications.

Also the columns and properties of new and of changed tables, in the words of Delta's log.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tubeq_spark.payloads.ddl import columns_of
from tubeq_spark.payloads.types import arrow_struct, delta_type
from tubeq_spark.storage.log.actions import Actions, DataFile, UnknownLogError
from tubeq_spark.storage.tables.schema import CHANGE_FEED, NewTable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence


#: The features that protocol versions stand for, for readers and writers. Later versions name their features.
_READERS: Mapping[int, Collection[str]] = {1: (), 2: ("columnMapping",)}
_WRITERS: Mapping[int, Collection[str]] = {
    **dict.fromkeys(range(1, 5), ()),
    5: ("columnMapping",),
    6: ("columnMapping", "identityColumns"),
}
#: Known features: timestamps without a time zone, and those of writers that need a rule or a property, too.
_KNOWN = {
    "appendOnly",
    "changeDataFeed",
    "checkConstraints",
    "generatedColumns",
    "invariants",
    "timestampNtz",
}
#: Rules, in the columns and among the properties.
_RULES = ("delta.invariants", "delta.generationExpression")
_CONSTRAINT = "delta.constraints."


@functools.lru_cache(maxsize=64)
def _columns(text: str) -> pa.Schema:
    """The columns of a schema in JSON. The cache is small, because most tubes have the same."""
    return pa.schema(list(arrow_struct(json.loads(text)["fields"])))


def _of_commits(metadata: Mapping[str, Any], properties: Mapping[str, Any]) -> Mapping[str, Any]:
    """The action with the metadata as commits have it: a checkpoint has maps as pairs."""
    told = metadata.get("format") or {"provider": "parquet"}
    form = {**told, "options": dict(told.get("options") or {})}
    return {**metadata, "format": form, "configuration": properties}


@dataclass(frozen=True, slots=True)
class Shape:
    """The columns and partitions of a table.

    Attributes:
        schema: Its columns.
        by: Its partition columns.
        properties: Its table properties.
        metadata: The action that has all this.
        protocol: The action with the protocol for its readers and writers.
    """

    schema: pa.Schema
    by: Sequence[str]
    properties: Mapping[str, str | None]
    metadata: Mapping[str, Any]
    protocol: Mapping[str, Any]

    @classmethod
    def parse(cls, metadata: Mapping[str, Any], protocol: Mapping[str, Any]) -> Shape:
        """The shape by these actions.

        Raises:
            UnknownLogError: Its readers need features that this package does not know, or it has partitions that are no
                numbers.
        """
        readers = _features(protocol, "Reader", _READERS)
        if readers - _KNOWN:
            raise UnknownLogError(_named(readers - _KNOWN))
        properties = dict(metadata["configuration"] or {})
        schema = _columns(metadata["schemaString"])
        by = tuple(metadata["partitionColumns"] or ())
        if not all(pa.types.is_integer(schema.field(name).type) for name in by):
            raise UnknownLogError("partitions that are no numbers")
        return cls(schema, by, properties, _of_commits(metadata, properties), protocol)

    def require_writable(self) -> None:
        """Refuse to write a table with features or rules that this package does not know.

        Raises:
            UnknownLogError: The table has such.
        """
        features = _features(self.protocol, "Writer", _WRITERS) - _KNOWN
        if features:
            raise UnknownLogError(_named(features))
        rules = [rule for rule in _RULES if rule in self.metadata["schemaString"]]
        rules += [name for name in self.properties if name.startswith(_CONSTRAINT)]
        if self.properties.get("delta.appendOnly") == "true":
            rules.append("delta.appendOnly")
        if rules:
            raise UnknownLogError(", ".join(rules))

    @property
    def schema_json(self) -> dict[str, Any]:
        """Its columns, in the words of the log."""
        found: dict[str, Any] = json.loads(self.metadata["schemaString"])
        return found

    def is_like(self, other: Shape) -> bool:
        """Whether it is the same table, with the same columns and properties."""
        return self._told == other._told

    @property
    def _told(self) -> tuple[object, ...]:
        # A checkpoint may write the rest in another way.
        told = self.metadata
        return told.get("id"), told["schemaString"], self.by, self.properties

    @property
    def measured(self) -> Sequence[str]:
        """The columns of which files have statistics."""
        columns = [name for name in self.schema.names if name not in self.by]
        named = self.properties.get("delta.dataSkippingStatsColumns")
        if named is None:
            return columns
        names = [name.strip() for name in named.split(",")]
        return [name for name in names if name in columns]


def _features(
    protocol: Mapping[str, Any], of: str, by_version: Mapping[int, Collection[str]]
) -> set[str]:
    """The features that readers ("Reader") or writers ("Writer") of a table need."""
    version = protocol[f"min{of}Version"]
    if version in by_version:
        return {*by_version[version]}
    named = protocol.get(f"{of.lower()}Features")
    return {f"version {version} for {of.lower()}s"} if named is None else {*named}


def _named(features: Collection[str]) -> str:
    return f"the feature{'s' if len(features) > 1 else ''} {', '.join(sorted(features))}"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A version of a table; it does not change.

    Attributes:
        version: Its number.
        shape: Its columns and partitions.
        files: Its files, by their paths.
        transactions: By application id, the last version that was written, and when, in milliseconds.
    """

    version: int
    shape: Shape
    files: Mapping[str, DataFile]
    transactions: Mapping[str, tuple[int, int | None]]

    @classmethod
    def before(cls, shape: Shape) -> Snapshot:
        """The version before the first one of a new table."""
        return cls(-1, shape, {}, {})

    @classmethod
    def first(cls, version: int, actions: Actions) -> Snapshot:
        """The version of a checkpoint, or of a table's first commit.

        Raises:
            UnknownLogError: It lacks metadata or protocol, or the table has features.
        """
        if actions.unknown:
            raise UnknownLogError(actions.unknown)
        if actions.metadata is None or actions.protocol is None:
            raise UnknownLogError(f"version {version} does not say what the table is")
        shape = Shape.parse(actions.metadata, actions.protocol)
        return cls(version, shape, actions.adds, actions.transactions)

    def after(self, *commits: Actions) -> Snapshot:
        """The version after applying some commits to it.

        Raises:
            UnknownLogError: The table has features from now on.
        """
        shape, now = self.shape, Actions(dict(self.files), {}, dict(self.transactions))
        for actions in commits:
            now.apply(actions)
        if now.metadata is not None or now.protocol is not None:
            told = now.metadata or shape.metadata
            shape = Shape.parse(told, now.protocol or shape.protocol)
        version = self.version + len(commits)
        return Snapshot(version, shape, now.adds, now.transactions)

    def without(self, files: Sequence[DataFile]) -> Snapshot:
        """The version without the partitions of some files."""
        gone = {file.path for file in self.beside(files)}
        return replace(self, files={p: file for p, file in self.files.items() if p not in gone})

    def beside(self, files: Sequence[DataFile]) -> list[DataFile]:
        """All files in the partitions of some files, these among them."""
        partitions = {tuple(file.partition.items()) for file in files}
        return [f for f in self.files.values() if tuple(f.partition.items()) in partitions]

    def version_under(self, app: str) -> int | None:
        """The last transaction version of an application id."""
        found = self.transactions.get(app)
        return None if found is None else found[0]

    def within(self, near: Mapping[str, Sequence[int]]) -> list[DataFile]:
        """The files in some partitions.

        Args:
            near: The values of partition columns, as in a `Statement`; empty for all partitions.
        """
        found = list(self.files.values())
        # This loop is short, because it looks at each file.
        for name, values in near.items():
            wanted = frozenset(values)
            found = [file for file in found if file.partition[name] in wanted]
        return found


def shape_of(new: NewTable, table_id: str, now_ms: int) -> Shape:
    """The shape of a new table.

    Args:
        new: Its definition.
        table_id: An id that no other table has.
        now_ms: The moment, in milliseconds since 1970.
    """
    keeps_feed = new.properties.get(CHANGE_FEED) == "true"
    schema = {"type": "struct", "fields": _fields(new.columns)}
    metadata = {
        "id": table_id,
        "name": None,
        "description": None,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema, separators=(",", ":")),
        "partitionColumns": list(new.partitions),
        "createdTime": now_ms,
        "configuration": dict(new.properties),
    }
    return Shape.parse(
        metadata, {"minReaderVersion": 1, "minWriterVersion": 4 if keeps_feed else 2}
    )


def with_property(shape: Shape, name: str, value: str) -> Shape:
    """A shape with another value of a property."""
    metadata = {**shape.metadata, "configuration": {**shape.properties, name: value}}
    return Shape.parse(metadata, shape.protocol)


def _fields(columns: Mapping[str, tuple[str, str]]) -> list[dict[str, Any]]:
    """Columns with their types in DDL and comments."""
    ddl = ", ".join(f"{name} {kind}" for name, (kind, _) in columns.items())
    fields: list[dict[str, Any]] = delta_type(columns_of(ddl))["fields"]
    for field, (_, comment) in zip(fields, columns.values(), strict=True):
        field["metadata"] = {"comment": comment}
    return fields
