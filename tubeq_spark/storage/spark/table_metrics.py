"""Measures a tube: its tasks by state and age, its table's files and log. Reads only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from tubeq_spark.errors import StoreError
from tubeq_spark.storage.spark import predicates
from tubeq_spark.storage.spark.quoting import bigint, moment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tubeq_spark.storage.spark.engine import Engine
    from tubeq_spark.storage.spark.tube_table import TubeTable

__all__ = [
    "Depth",
    "Extent",
    "counts",
    "depth",
    "extent",
    "is_catalog_managed",
    "last_commit",
    "last_write",
]

#: Tubes that one query counts: each is a scan of its own in the plan.
_COUNTED_TOGETHER = 25

#: A commit's file in a log, and a checkpoint of any kind.
_COMMIT = r"/(\d{20})\.json$"
_CHECKPOINT = r"/(\d{20})\.checkpoint"

#: Commits of the removal of dead files, and how many of the newest commits are looked at for another.
_CLEANING = frozenset({"SET TBLPROPERTIES", "VACUUM END", "VACUUM START"})
_NEWEST = 10

#: The table feature of catalog-managed commits, by today's name and by that of Delta 4.0.0.
_CATALOG_MANAGED = frozenset({"catalogManaged", "catalogOwned-preview"})
_FEATURE = "delta.feature."


@dataclass(frozen=True, slots=True)
class Depth:
    """The tasks of a tube at a moment.

    Attributes:
        states: How many, by the letter of the effective state.
        oldest_ready_us: When the oldest ready task was put.
        leases_ending: Leases that end soon.
        unswept: Tasks that time has changed and nobody has written down.
        unswept_since_us: When the first of these changed.
    """

    states: Mapping[str, int]
    oldest_ready_us: int | None
    leases_ending: int
    unswept: int
    unswept_since_us: int | None


@dataclass(frozen=True, slots=True)
class Extent:
    """A table's files and log.

    Attributes:
        files: Data files of its newest version.
        size_bytes: Their bytes.
        version: Its newest version: commits since it was created.
        committed_us: When the storage says that this was committed.
        log_commits: Commits since the last checkpoint, which every reader goes through; `None`
            where the log cannot be listed.
    """

    files: int
    size_bytes: int
    version: int
    committed_us: int
    log_commits: int | None


def depth(
    engine: Engine, table: TubeTable, now_us: int, soon_us: int, max_attempts: int | None
) -> Depth:
    """Measure a tube's tasks by one aggregate over narrow columns.

    Args:
        engine: The seam to Spark.
        table: The tube.
        now_us: The moment.
        soon_us: Leases that end by then count as ending.
        max_attempts: Of the tube.
    """
    due = predicates.is_due(now_us)
    ending = f"state = 't' AND next_event > {moment(now_us)} AND next_event <= {moment(soon_us)}"
    found = engine.rows(
        f"SELECT {predicates.effective_state(now_us, max_attempts)} AS state, count(*) AS n, "
        f"unix_micros(min(created)) AS oldest, count_if({ending}) AS ending, "
        f"count_if({due}) AS due, "
        f"unix_micros(min(CASE WHEN {due} THEN {predicates.due_at()} END)) AS since "
        f"FROM {table.name} WHERE {table.mine()} GROUP BY 1"
    )
    return Depth(
        {row["state"]: row["n"] for row in found if row["state"] is not None},
        next((row["oldest"] for row in found if row["state"] == "r"), None),
        sum(row["ending"] for row in found),
        sum(row["due"] for row in found),
        min((row["since"] for row in found if row["since"] is not None), default=None),
    )


def counts(
    engine: Engine, tubes: Sequence[tuple[TubeTable, int | None]], now_us: int
) -> dict[int, dict[str, int]]:
    """Count tasks by the letter of their effective state, in one query for many tubes.

    Args:
        engine: The seam to Spark.
        tubes: Their tables, each with the tube's `max_attempts`.
        now_us: The moment.

    Returns:
        The counts by the tube's id.
    """
    found: dict[int, dict[str, int]] = {table.id: {} for table, _ in tubes}
    for first in range(0, len(tubes), _COUNTED_TOGETHER):
        some = tubes[first : first + _COUNTED_TOGETHER]
        for row in engine.rows(" UNION ALL ".join(_counting(*tube, now_us) for tube in some)):
            if row["state"] is not None:
                found[row["tube"]][row["state"]] = row["n"]
    return found


def _counting(table: TubeTable, max_attempts: int | None, now_us: int) -> str:
    state = predicates.effective_state(now_us, max_attempts)
    return (
        f"SELECT {bigint(table.id)} AS tube, {state} AS state, count(*) AS n "
        f"FROM {table.name} WHERE {table.mine()} GROUP BY 2"
    )


def extent(engine: Engine, table: str) -> Extent:
    """Measure a table by its newest version's detail and one listing of its log."""
    modified = F.unix_micros("lastModified")
    detail = engine.frame(f"DESCRIBE DETAIL {table}")
    location, files, size_bytes, committed_us = engine.collect(
        detail.select("location", "numFiles", "sizeInBytes", modified)
    )[0]
    log = _log(engine, f"{location}/_delta_log")
    if log is None:
        version, committed_us = last_commit(engine, table)
        return Extent(files, size_bytes, version, committed_us, None)
    version, checkpoint = log
    return Extent(files, size_bytes, version, committed_us, version - checkpoint)


def is_catalog_managed(engine: Engine, table: str) -> bool:
    """Whether the catalog does a table's commits, and alone may clean it up."""
    detail = engine.rows(f"DESCRIBE DETAIL {table}")[0]
    names = (*(detail["tableFeatures"] or ()), *detail["properties"])
    return any(name.removeprefix(_FEATURE) in _CATALOG_MANAGED for name in names)


def last_commit(engine: Engine, table: str) -> tuple[int, int]:
    """A table's newest version, and the storage's time of it."""
    history = engine.frame(f"DESCRIBE HISTORY {table} LIMIT 1")
    newest = history.select("version", F.unix_micros("timestamp"))
    version, committed_us = engine.collect(newest)[0]
    return version, committed_us


def last_write(engine: Engine, table: str) -> int:
    """The storage's time of a table's newest commit but for those of removing dead files.

    Where the newest commits are all of that kind: the time of the oldest of them.
    """
    history = engine.frame(f"DESCRIBE HISTORY {table} LIMIT {_NEWEST}")
    made = history.select("operation", F.unix_micros("timestamp").alias("at"))
    commits = engine.collect(made)
    newest = next((row for row in commits if row["operation"] not in _CLEANING), commits[-1])
    at: int = newest["at"]
    return at


def _log(engine: Engine, log: str) -> tuple[int, int] | None:
    """The newest version of a log and its last checkpoint, -1 when there is none yet."""
    numbers = [F.regexp_extract("path", pattern, 1) for pattern in (_COMMIT, _CHECKPOINT)]
    newest = [F.max(F.when(number != "", number.cast("bigint"))) for number in numbers]
    try:
        with engine.reading():
            version, checkpoint = engine.files(log).agg(*newest).collect()[0]
    except (AnalysisException, StoreError):
        if engine.unreachable:
            raise
        # Catalogs may keep a managed table's directory to themselves.
        return None
    return None if version is None else (version, -1 if checkpoint is None else checkpoint)
