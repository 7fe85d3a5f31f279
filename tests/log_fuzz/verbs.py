"""What the queue itself does in a sequence."""

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

__all__ = ["REFUSALS", "VERBS"]

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


def _noted(world: World, options: dict[str, Any], ids: list[int]) -> None:
    if "ttl" in options:
        world.mortal.update(ids)


def put(world: World, name: str) -> None:
    options = _options(world, name)
    task = world.tube(name).put(world.text(), **options)
    world.put(name, [task])
    _noted(world, options, [task.task_id])


def put_many(world: World, name: str) -> None:
    options = _options(world, name)
    items = [world.text() for _ in range(world.random.randint(2, 12))]
    tasks = world.tube(name).put_many(items, **options)
    world.put(name, tasks)
    _noted(world, options, [task.task_id for task in tasks])


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
    task = world.tube(name).take(timeout=0)
    if task is not None:
        _hold(world, name, [task.task_id])


def take_many(world: World, name: str) -> None:
    tasks = world.tube(name).take_many(world.random.randint(2, 20))
    _hold(world, name, [task.task_id for task in tasks])


def _hold(world: World, name: str, ids: list[int]) -> None:
    """Some were held before, by a lease that has ended."""
    held = world.known[name].held
    held += [task_id for task_id in ids if task_id not in held]


def _some(world: World, name: str) -> list[int]:
    held = world.known[name].held
    return world.random.sample(held, world.random.randint(0, len(held)))


def ack(world: World, name: str) -> None:
    held = world.known[name].held
    if held:
        task_id = world.random.choice(held)
        held.remove(task_id)
        world.tube(name).ack(task_id)
        world.gone(name, [task_id])


def ack_many(world: World, name: str) -> None:
    some = _some(world, name)
    known = world.known[name]
    known.held = [task_id for task_id in known.held if task_id not in some]
    if some:
        world.tube(name).ack_many(some)
        world.gone(name, some)


def release(world: World, name: str) -> None:
    some = _some(world, name)
    known = world.known[name]
    known.held = [task_id for task_id in known.held if task_id not in some]
    if some:
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


def touch(world: World, name: str) -> None:
    held = world.known[name].held
    if held:
        world.tube(name).touch(world.random.choice(held), 100.0)


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


def look(world: World, name: str) -> None:
    world.queue.statistics(name)
    list(world.tube(name).tasks_by_state("r"))


def reopen(world: World, _: str) -> None:
    world.reopen()


def later(world: World, _: str) -> None:
    world.later(world.random.choice([1.0, 600.0, 4_000.0, 90_000.0]))


#: How often each is done, in comparison.
VERBS: Mapping[Act, int] = {
    put: 10,
    put_many: 6,
    put_arrow: 3,
    take: 10,
    take_many: 6,
    ack: 8,
    ack_many: 4,
    release: 4,
    bury: 3,
    kick: 2,
    touch: 1,
    delete: 3,
    truncate: 1,
    release_all: 1,
    sweep: 4,
    look: 1,
    reopen: 2,
    later: 4,
}
