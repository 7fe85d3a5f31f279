"""Calls verbs of the queue itself in a sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from tests.log_fuzz.world import TUBES
from tubeq_spark.errors import NotTakenError, TaskNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from tests.log_fuzz.world import World

    #: Does something to a tube; of what others did meanwhile it may be refused.
    Act = Callable[[World, str], object]


#: What a verb may say where others have changed the table behind it.
REFUSALS = (NotTakenError, TaskNotFoundError)


def _options(world: World, name: str) -> dict[str, Any]:
    chance = world.random
    options: dict[str, Any] = {"pri": chance.choice([0, 0, 5, 2_147_483_647])}
    if chance.random() < 0.2:
        options["delay"] = chance.choice([1.5, 5_000.0])
    if chance.random() < 0.1:
        options["ttl"] = 40_000.0
    if TUBES[name].startswith("utube") and chance.random() < 0.9:
        options["utube"] = world.text()
    return options


def put(world: World, name: str) -> None:
    options = _options(world, name)
    items = [world.text() for _ in range(world.random.choice([1, 1, 2, 12]))]
    tube = world.tube(name)
    tasks = tube.put_many(items, **options) if len(items) > 1 else [tube.put(*items, **options)]
    world.put(name, tasks)
    if "ttl" in options:
        world.mortal.update(task.task_id for task in tasks)


def put_arrow(world: World, name: str) -> None:
    count = world.random.choice([3, 40])
    columns: dict[str, Any] = {"data": [f'"{n}"' for n in range(count)]}
    if TUBES[name].startswith("utube"):
        columns["utube"] = [world.random.choice([world.text(), None]) for _ in range(count)]
    before = {row["task_id"] for row in world.stored(name)}
    key = world.random.choice([None, f"key {world.text()[:40]}"])
    world.tube(name).put_arrow(pa.table(columns), key=key)
    for row in world.stored(name):
        if row["task_id"] not in before:
            world.known[name].ids[row["task_id"]] += 1


def take(world: World, name: str) -> None:
    ids = [task.task_id for task in world.tube(name).take_many(world.random.choice([1, 2, 20]))]
    # Some were held before, by a lease that has ended.
    held = world.known[name].held
    held += [task_id for task_id in ids if task_id not in held]


def _some(world: World, name: str) -> list[int]:
    held = world.known[name].held
    some = world.random.sample(held, world.random.randint(0, len(held)))
    world.known[name].held = [task_id for task_id in held if task_id not in some]
    return some


def ack(world: World, name: str) -> None:
    if some := _some(world, name):
        world.tube(name).ack_many(some)
        world.gone(name, some)


def release(world: World, name: str) -> None:
    if some := _some(world, name):
        world.tube(name).release_many(some, delay=world.random.choice([0, 0, 100.0]))


def bury(world: World, name: str) -> None:
    ids = list(world.known[name].ids)
    if ids:
        task_id = world.random.choice(ids)
        world.tube(name).bury(task_id)
        if task_id in world.known[name].held:
            world.known[name].held.remove(task_id)


def kick(world: World, name: str) -> None:
    world.tube(name).kick(world.random.randint(1, 5))


def delete(world: World, name: str) -> None:
    ids = list(world.known[name].ids)
    if ids:
        task_id = world.random.choice(ids)
        world.tube(name).delete(task_id)
        world.gone(name, [task_id])


def truncate(world: World, name: str) -> None:
    world.tube(name).truncate()
    world.gone(name, list(world.known[name].ids))
    world.known[name].held.clear()


def release_all(world: World, name: str) -> None:
    world.tube(name).release_all()
    world.known[name].held.clear()


def sweep(world: World, _: str) -> None:
    report = world.queue.sweep()
    for name, told in report.tubes.items():
        assert told.error is None, f"sweep of {name}: {told.error}"


def reopen(world: World, _: str) -> None:
    world.reopen()


def later(world: World, _: str) -> None:
    world.later(world.random.choice([1.0, 600.0, 4_000.0, 90_000.0]))


#: How often each is done, in comparison.
VERBS: Mapping[Act, int] = {
    put: 16,
    put_arrow: 3,
    take: 16,
    ack: 12,
    release: 4,
    bury: 3,
    kick: 2,
    delete: 3,
    truncate: 1,
    release_all: 1,
    sweep: 4,
    reopen: 2,
    later: 4,
}
