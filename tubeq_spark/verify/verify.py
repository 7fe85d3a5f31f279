"""Verifies the tubes of a location: replays the commits that their logs still have, and judges them. It only reads."""

from __future__ import annotations

import math
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tubeq_spark.clock import to_us
from tubeq_spark.errors import StoreError
from tubeq_spark.model.options import TubeOptions
from tubeq_spark.model.reports import VerifyReport
from tubeq_spark.model.tube_types import BUILT_IN, Driver
from tubeq_spark.model.validation import moment, no_tube
from tubeq_spark.storage.check import reading_files
from tubeq_spark.storage.location import TUBES, local_directory
from tubeq_spark.storage.log.replay import CutError, Replay
from tubeq_spark.storage.tables.schema import PARTITION
from tubeq_spark.verify.judge import Judge
from tubeq_spark.verify.rows import SCHEMA

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterator, Mapping

    from tubeq_spark.storage.engine import Engine
    from tubeq_spark.storage.opened_location import OpenedLocation
    from tubeq_spark.storage.store.store import Store

_REGISTRY = pa.schema(
    {"name": pa.string(), "table_name": pa.string(), "id": pa.int64(), "type": pa.string(), "options": pa.string()}
)  # fmt: skip


def verify(
    opened: OpenedLocation,
    tube: str | None = None,
    since: dt.datetime | None = None,
    until: dt.datetime | None = None,
    *,
    engine: Engine | None = None,
    drivers: Mapping[str, Driver] = BUILT_IN,
) -> VerifyReport:
    """Judge the commits of the tubes of a location.

    Args:
        opened: The location.
        tube: Only the tubes that had this name; `None` is all.
        since: Only commits since this moment.
        until: Only commits before this moment.
        engine: Reads what is not on local files.
        drivers: The types of tubes, by name.

    Raises:
        InvalidOptionError: A moment is no aware datetime.
        TubeNotFoundError: No tube has had this name.
        StoreError: The engine cannot read the files there, or the storage fails.
    """
    since_us = 0 if since is None else to_us(moment("since", since))
    until_us = math.inf if until is None else to_us(moment("until", until))
    with reading_files(opened, engine) as store_of:
        return verify_tubes(store_of, opened.uri, drivers, tube, since_us, until_us)


def verify_tubes(
    store_of: Callable[[str], Store],
    location: str,
    drivers: Mapping[str, Driver] = BUILT_IN,
    tube: str | None = None,
    since_us: int = 0,
    until_us: float = math.inf,
) -> VerifyReport:
    """As `verify`, by the files below paths or URIs."""
    place = local_directory(location) or location.rstrip("/")
    rows = [row for row in _registered(store_of(f"{place}/{TUBES}")) if tube in (None, row["name"])]
    if tube is not None and not rows:
        raise no_tube(tube)
    parts: list[VerifyReport] = []
    for id, table in sorted({row["id"]: row["table_name"] for row in rows}.items()):
        records = [row for row in rows if row["id"] == id]
        name, kind = records[-1]["name"], records[-1]["type"]
        if kind not in drivers:
            text = f"tube {name}: no driver of type {kind} is registered"
            parts.append(VerifyReport(unread=[text]))
            continue
        replay = Replay(store_of(f"{place}/{table}"), SCHEMA, PARTITION)
        options = [TubeOptions.from_json(row["options"]) for row in records]
        new_judge = partial(Judge, name, id, drivers[kind], options)
        parts += _verify_tube(new_judge, replay, since_us, until_us)
    return VerifyReport(
        sum(part.commits for part in parts),
        sum(part.tasks for part in parts),
        [violation for part in parts for violation in part.violations],
        [text for part in parts for text in part.unread],
        [text for part in parts for text in part.damaged],
    )


def _verify_tube(
    new_judge: Callable[[], Judge], replay: Replay, since_us: int, until_us: float
) -> Iterator[VerifyReport]:
    """Judge the commits of one tube. After a version that cannot be read it goes on from the next checkpoint."""
    start = _first(replay, since_us)
    while start is not None:
        judge, count = new_judge(), 0
        unread, damaged = list[str](), list[str]()
        following = None
        try:
            judge.begin(start, *replay.begin(start))
            for commit in replay.commits(start):
                if commit.at_us >= until_us:
                    break
                is_counted = commit.at_us >= since_us
                count += is_counted
                judge.judge(commit, is_counted=is_counted)
        except CutError as cut:
            unread.append(f"tube {judge.name}: {cut}")
            damaged += unread if cut.is_damage else []
            later = max(start + 1, cut.version)
            following = next((s for s in replay.starts() if s >= later), None)
        yield VerifyReport(count, judge.tasks, judge.violations, unread, damaged)
        start = following


def _first(replay: Replay, since_us: int) -> int | None:
    """The last start before a moment; the first one if there is none."""
    starts = replay.starts()
    for start in reversed(starts):
        # A commit without a moment is damaged, and is met again when it is read.
        with suppress(CutError):
            if replay.moment(start + 1) < since_us:
                return start
    return next(iter(starts), None)


def _registered(store: Store) -> list[dict[str, Any]]:
    """The rows that the registry has had.

    Raises:
        StoreError: It cannot be read.
    """
    replay = Replay(store, _REGISTRY)
    found: list[dict[str, Any]] = []
    try:
        for start in replay.starts()[:1]:
            found += replay.begin(start)[0].to_pylist()
            for commit in replay.commits(start):
                found += commit.after.to_pylist()
    except CutError as error:
        msg = f"the table {TUBES} cannot be read: {error}; `tubeq check` says what can be repaired"
        raise StoreError(msg) from error
    return found
