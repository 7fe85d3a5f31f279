"""Times the verbs on one task that no other part measures, each on a tube of its own."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable

from bench.measure import BenchError
from bench.subjects import payload
from tubeq_spark import Queue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tubeq_spark import Task, Tube

__all__ = ["VERBS", "TimedVerb", "Verb", "measure"]

#: Seconds for which tasks are held: longer than any round lasts.
_TTR = 3_600
#: Rounds that are not counted: code is compiled on the way.
_WARM_UP = 4


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb on one task.

    Attributes:
        name: As it is shown.
        type: The type of its tube.
        prepare: Leaves the tube as the verb needs it, and returns what `call` is given; not measured.
        call: Calls it; returns how many tasks it was for.
        options: Of its tube.
        made_twice: Whether its tube is dropped and made again before.
    """

    name: str
    type: str
    prepare: Callable[[Tube], Any]
    call: Callable[[Tube, Any], int]
    options: Mapping[str, Any] = field(default_factory=dict)
    made_twice: bool = False


@dataclass(slots=True)
class TimedVerb:
    """What was measured of a verb.

    Attributes:
        seconds: Of each measured call.
        cpu: Processor time of this process in each of them.
        commits: Of one call, to the table of the tube.
    """

    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    commits: int = 0


def _empty(_tube: Tube) -> None:
    """Nothing is there."""


def _taken(tube: Tube) -> int:
    """One task is there, and taken."""
    tube.put(payload(0))
    return _held(tube.take_many(1)).task_id


def _taken_and_one_more(tube: Tube) -> int:
    """One task is taken, and one ready."""
    task_id = _taken(tube)
    tube.put(payload(1))
    return task_id


def _buried(tube: Tube) -> None:
    """One task is there, and buried."""
    tube.bury(_taken(tube))


def _in_subqueue(tube: Tube) -> None:
    """One task is ready in a sub-queue."""
    tube.put(payload(0), utube="u1")


def _held(tasks: Sequence[Task]) -> Task:
    if len(tasks) != 1:
        msg = f"a take of one task had {len(tasks)}"
        raise BenchError(msg)
    return tasks[0]


def _put(tube: Tube, _: object) -> int:
    return len(tube.put_many([payload(0)]))


VERBS = (
    Verb("release", "fifottl", _taken, lambda tube, task: len(tube.release_many([task]))),
    Verb("touch", "fifottl", _taken, lambda tube, task: tube.touch(task, _TTR) is not None),
    Verb("kick", "fifottl", _buried, lambda tube, _: tube.kick(1)),
    Verb(
        "exchange",
        "fifottl",
        _taken_and_one_more,
        lambda tube, task: len(tube.exchange(ack=[task], take=1)),
    ),
    Verb("put, tube with a capacity", "limfifottl", _empty, _put, {"capacity": 1_000}),
    Verb("put, tube made again", "fifottl", _empty, _put, made_twice=True),
    Verb("take of a sub-queue", "utube", _in_subqueue, lambda tube, _: len(tube.take_many(1))),
)


def measure(location: str, rounds: Callable[[int], Iterable[int]]) -> dict[str, TimedVerb]:
    """Measure all verbs in turns.

    Args:
        location: Of a queue of their own.
        rounds: Counts the rounds, given how many more than those that count there are.

    Raises:
        BenchError: One was not for one task.
    """
    found = {verb.name: TimedVerb() for verb in VERBS}
    with Queue(None, location, engine="native") as queue:
        tubes = [_new_tube(queue, verb, number) for number, verb in enumerate(VERBS)]
        for number in rounds(_WARM_UP):
            for verb, tube in zip(VERBS, tubes, strict=True):
                given = verb.prepare(tube)
                before = _version(queue, tube) if number == 0 else 0
                began, cpu = time.perf_counter(), time.process_time()
                tasks = verb.call(tube, given)
                seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
                if tasks != 1:
                    msg = f"{verb.name} of one task was for {tasks}"
                    raise BenchError(msg)
                if number == 0:
                    found[verb.name].commits = _version(queue, tube) - before
                elif number >= _WARM_UP:
                    found[verb.name].seconds.append(seconds)
                    found[verb.name].cpu.append(cpu)
                _clear(tube)
    return found


def _new_tube(queue: Queue, verb: Verb, number: int) -> Tube:
    name, options = f"verb_{number}", dict(verb.options)
    if "ttl" in verb.type:
        options["ttr"] = _TTR
    tube = queue.create_tube(name, verb.type, **options)
    if verb.made_twice:
        tube.put(payload(0))
        tube.drop()
        tube = queue.create_tube(name, verb.type, **options)
    return tube


def _clear(tube: Tube) -> None:
    """Leave nothing of what a round has put."""
    held = [task.task_id for task in tube.tasks_by_state("t")]
    held += [task.task_id for task in tube.take_many(10)]
    tube.ack_many(held)


def _version(queue: Queue, tube: Tube) -> int:
    return DeltaTable(f"{queue.location}/{tube.name}").version()
