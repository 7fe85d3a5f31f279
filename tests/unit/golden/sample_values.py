"""Defines the fixed values from which the golden texts are made."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

from tests.unit.golden.recording import Frame
from tubeq_spark.clock import US, to_us
from tubeq_spark.model.takes import NewLease
from tubeq_spark.model.tube_types import AGED, OrderPosition
from tubeq_spark.storage.arrow.columns import empty
from tubeq_spark.storage.location import path_table
from tubeq_spark.storage.rows import COLUMNS, INSERTED, insert_schema
from tubeq_spark.storage.tables.tube_table import TubeTable

NOW = to_us(dt.datetime(2026, 1, 2, 3, 4, 5, 678901, dt.UTC))
LATER = NOW + 60 * US
#: More than a statement names in its text.
MANY = 300
POSITION = OrderPosition(5, 4_000_000_000_000)
LEASE = NewLease("session/1", NOW)
HEADROOM = NewLease("O'Neil {rows}/1", NOW, headroom_us=250_000)
#: Names that SQL, or a statement's own braces, might take for something else.
NAMES = (
    "plain",
    None,
    "",
    "O'Neil",
    'a "word"',
    "back\\slash",
    "{rows} and {note}",
    "line\nfeed",
    "zażółć 漢字 🐇",
    "`tick`; -- /* % ? $1 */",
)
#: By their number: none, one, rare ones, and more than a statement names.
OWNERS: dict[str, tuple[str, ...]] = {
    "no dead owner": (),
    "one dead owner": ("session/1",),
    "dead owners of rare names": tuple(name for name in NAMES if name),
    f"{MANY} dead owners": tuple(f"session/{number}" for number in range(MANY)),
}


def table_of(*order: str, change_feed: bool = False) -> TubeTable:
    """A tube in an order."""
    return TubeTable(path_table("/queues/a q/urls"), 7, order, change_feed=change_feed)


#: The order and the change feed each appear both ways.
TUBES = {
    "by task_id": table_of("task_id"),
    "by pri, with a change feed": table_of("pri", "task_id", change_feed=True),
}
#: A tube whose tasks have keys.
KEYED = table_of("task_id")
#: A tube whose keys stay in use for a while.
KEPT = replace(KEYED, unique_for_us=100 * US)
#: A tube with aging.
AGED_TUBE = table_of(*AGED)
NEW_ROWS = empty(insert_schema(None))
DATA_FRAME = Frame(tuple(INSERTED))


def stored(count: int, segment: int = 10) -> list[dict[str, Any]]:
    """Rows as a query for tasks finds them."""
    columns = dict.fromkeys(COLUMNS)
    return [
        columns
        | {"segment": segment, "task_id": number, "state": "r", "pri": 0, "data": "1"}
        | {"created": NOW, "attempts": 0, "rank": 0}
        for number in range(count)
    ]
