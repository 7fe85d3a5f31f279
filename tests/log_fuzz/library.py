"""Changes a tube's table by the library `deltalake`, as other programs do beside the queue."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import write_deltalake

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from tests.log_fuzz.verbs import Act
    from tests.log_fuzz.world import World


def _rows(world: World, name: str, count: int) -> pa.Table:
    schema = pa.schema(world.table(name).schema().to_arrow())
    rows: list[dict[str, Any]] = []
    for _ in range(count):
        world.foreign += 1
        rows.append(
            {
                "segment": world.foreign,
                "tube": world.tube_id(name),
                "task_id": world.foreign,
                "state": "r",
                "pri": 3,
                "utube": world.random.choice([None, world.text()]) if name == "hosts" else None,
                "data": '"foreign"',
                "created": world.clock.now()
                - dt.timedelta(microseconds=world.random.randint(0, 999)),
                "ttr": 3_600_000_000,
                "attempts": 0,
            }
        )
    columns = {field.name: [row.get(field.name) for row in rows] for field in schema}
    return pa.table(columns, schema)


def append(world: World, name: str) -> None:
    rows = _rows(world, name, world.random.randint(1, 3))
    write_deltalake(world.table(name), rows, mode="append")
    world.known[name].ids.update(rows.column("task_id").to_pylist())


def delete(world: World, name: str) -> None:
    stored = world.stored(name)
    if stored:
        row = world.random.choice(stored)
        by = world.random.choice(["task_id", "segment"])
        world.table(name).delete(f"{by} = {row[by]}")
        world.gone(name, [r["task_id"] for r in stored if r[by] == row[by]])


def compact(world: World, name: str) -> None:
    world.table(name).optimize.compact()


def checkpoint(world: World, name: str) -> None:
    world.table(name).create_checkpoint()


def vacuum(world: World, name: str) -> None:
    """As by the table's retention, or of all that the newest version does not need."""
    if world.random.random() < 0.7:
        world.table(name).vacuum(dry_run=False, full=world.random.random() < 0.5)
    else:
        world.table(name).vacuum(0, dry_run=False, enforce_retention_duration=False)


def clean_up(world: World, name: str) -> None:
    world.table(name).cleanup_metadata()


#: How often each is done, in comparison.
ACTS: Mapping[Act, int] = {
    append: 4,
    delete: 3,
    compact: 3,
    checkpoint: 3,
    vacuum: 3,
    clean_up: 2,
}
