"""Cases X-A and X-B: each verb returns the value of the reference, or raises the right error."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.acceptance.support import TUBE_TYPES, WAIT, calls, data_of, ids_of, put_and_take, take
from tests.thorough import without_spark
from tubeq_spark import (
    InvalidOptionError,
    NotTakenError,
    SessionError,
    TaskNotFoundError,
    TaskState,
    TubeBusyError,
    TubeExistsError,
    TubeNotFoundError,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tests.acceptance.support import Engine, InBackground, NewTube, Session, Versions
    from tubeq_spark import Queue, Tube


def test_every_verb_returns_the_task_as_id_state_and_data(tube: Tube) -> None:
    """Cases 010-3, 020-3, 020-5 and X-A1."""
    put = tube.put(["x"])
    task_id = put.task_id
    assert tube.peek(task_id) == put
    verbs = (
        (lambda: take(tube), "t"),
        (lambda: tube.release(task_id), "r"),
        (lambda: tube.bury(task_id), "!"),
        (lambda: tube.peek(task_id), "!"),
        (lambda: tube.delete(task_id), "-"),
    )
    for verb, state in verbs:
        assert verb().as_tuple() == (task_id, state, ["x"])

    for end in (tube.ack, tube.delete):
        task_id = put_and_take(tube, [123]).task_id
        assert end(task_id).as_tuple() == (task_id, "-", [123])
        with pytest.raises(NotTakenError, match=str(task_id)):
            tube.ack(task_id)
        with pytest.raises(TaskNotFoundError, match=str(task_id)):
            tube.peek(task_id)


def test_ids_grow_and_are_never_used_again(tube: Tube) -> None:
    """Case X-A2."""
    first = tube.put("deleted")
    tube.delete(first.task_id)
    batch = tube.put_many(["truncated", "too"])
    tube.truncate()
    last = tube.put("kept")

    ids = [first.task_id, *ids_of(batch), last.task_id]
    assert ids == sorted(set(ids))


def test_put_without_data_is_refused_but_none_is_data(tube: Tube) -> None:
    """Case X-A3."""
    with pytest.raises(TypeError):
        tube.put()  # type: ignore[call-arg]

    tube.put(None)
    assert take(tube).data is None


@pytest.mark.thorough
def test_payload_comes_back_as_the_json_value_it_is(tube: Tube) -> None:
    """Case X-A3."""
    payloads = ["", "é\u2028\U0001f600\"'\\`", 2**200, -0.5, True, [], {"": {"a": [None]}}]

    put = tube.put_many([*payloads, (1, (2,))])

    assert data_of(put) == [*payloads, [1, [2]]]
    assert data_of(tube.take_many(10)) == [*payloads, [1, [2]]]
    assert data_of(list(tube.tasks_by_state("t"))) == [*payloads, [1, [2]]]


def test_put_with_a_bad_option_inserts_nothing(tube: Tube, fifottl: Tube) -> None:
    """Cases X-A4 and X-A5."""
    for unknown in ("priority", "TTL", "if_not_exist"):
        with pytest.raises(TypeError):
            tube.put("x", **{unknown: 1})
    with pytest.raises(InvalidOptionError, match="utube"):
        tube.put("x", utube="a")
    for options in ({"pri": -1}, {"pri": 1.5}, {"pri": "a"}, {"ttl": "a"}):
        with pytest.raises(InvalidOptionError, match=next(iter(options))):
            fifottl.put("x", **options)

    assert (tube.take(timeout=0), fifottl.take(timeout=0)) == (None, None)


YEAR = 365 * 86_400.0


class NotHeld(NamedTuple):
    """A tube with a task in every state but held, and one that is held."""

    tube: Tube
    held: int
    ids: dict[str, int]


@pytest.fixture(scope="module", params=TUBE_TYPES)
def not_held(request: pytest.FixtureRequest, engine: Engine, queue: Queue, other: Queue) -> NotHeld:
    """Tasks that the module's queue does not hold, by the reason why."""
    tube = engine.create_tube(queue, f"not_held_{request.param}", request.param)
    kinds = ("held", "acked", "buried", "ready")
    ids = dict(zip(kinds, ids_of(tube.put_many(kinds)), strict=True))
    tube.take_many(2)
    tube.ack(ids["acked"])
    tube.bury(ids["buried"])
    ids["foreign"] = ids["ready"]
    assert take(other[tube.name]).task_id == ids["foreign"]
    ids["ready"] = tube.put("ready").task_id
    ids |= {"unknown": 42, "no number": 2**70}
    if request.param == "fifottl":
        ids["delayed"] = tube.put("delayed", delay=10 * YEAR).task_id
    return NotHeld(tube, ids.pop("held"), ids)


VERBS_OF_THE_HOLDER: dict[str, Callable[[Tube, int, int], Any]] = {
    "ack": lambda tube, _, task_id: tube.ack(task_id),
    "ack_many": lambda tube, held, task_id: tube.ack_many([held, task_id]),
    "release": lambda tube, _, task_id: tube.release(task_id),
    "release_many": lambda tube, held, task_id: tube.release_many([held, task_id]),
    "exchange": lambda tube, held, task_id: tube.exchange(ack=[held, task_id], take=1),
    "touch": lambda tube, _, task_id: tube.touch(task_id, 5),
}


@pytest.mark.nightly
@pytest.mark.parametrize(
    "verb", ["exchange", *without_spark("ack", "ack_many", "release", "release_many", "touch")]
)
def test_holders_verb_on_a_task_not_held_is_refused_whatever_the_reason(
    not_held: NotHeld, versions: Versions, verb: str
) -> None:
    """Case X-B1."""
    if verb == "touch" and not_held.tube.type == "fifo":
        pytest.skip("fifo has no touch: X-B3")
    before = versions()

    for task_id in not_held.ids.values():
        with pytest.raises(NotTakenError, match=str(task_id)):
            VERBS_OF_THE_HOLDER[verb](not_held.tube, not_held.held, task_id)

    assert versions() == before


@pytest.mark.parametrize("verb", ["bury", "delete", "peek"])
def test_anybodys_verb_on_an_unknown_task_is_not_found(not_held: NotHeld, verb: str) -> None:
    """Case X-B2."""
    for task_id in (42, -1, 2**70, not_held.ids["acked"]):
        with pytest.raises(TaskNotFoundError, match=str(task_id)):
            getattr(not_held.tube, verb)(task_id)


@pytest.mark.thorough
def test_bury_and_delete_of_several_when_one_is_unknown_change_nothing(
    not_held: NotHeld, versions: Versions
) -> None:
    """Case X-B2."""
    before = versions()

    for verb in (not_held.tube.bury_many, not_held.tube.delete_many):
        with pytest.raises(TaskNotFoundError, match="42"):
            verb([not_held.ids["ready"], 42])

    assert versions() == before


def test_touch_of_a_task_without_ttr_is_refused(fifo: Tube, queue: Queue) -> None:
    """Case X-B3."""
    task = put_and_take(fifo)

    with pytest.raises(InvalidOptionError, match="fifo"):
        fifo.touch(task.task_id, 5)
    with pytest.raises(InvalidOptionError):
        fifo.touch(task.task_id, -1)
    assert queue.statistics(fifo.name)["calls"]["touch"] == 0


@pytest.mark.parametrize("increment", [None, 0, 0.0, 501 * YEAR])
def test_touch_by_nothing_or_for_ever_is_none_before_any_check(
    not_held: NotHeld, increment: float | None
) -> None:
    """Case X-B3."""
    for task_id in (42, not_held.held, not_held.ids["ready"]):
        assert not_held.tube.touch(task_id, increment) is None


def test_kick_counts_and_by_default_kicks_one(tube: Tube) -> None:
    """Case X-B4."""
    tube.bury_many(ids_of(tube.put_many([1, 2, 3])))

    assert tube.kick(0) == 0
    for count in (-1, "foo", 1.5, True):
        with pytest.raises(InvalidOptionError, match="count"):
            tube.kick(count)  # type: ignore[arg-type]
    assert len(list(tube.tasks_by_state("!"))) == 3
    assert tube.kick() == 1
    assert tube.kick(5) == 2
    assert tube.kick() == 0


def test_kick_of_named_tasks_kicks_these_or_none(tube: Tube, queue: Queue) -> None:
    before = calls(queue, tube)["kick"]
    first, second, third = ids_of(tube.put_many([1, 2, 3]))
    for _ in range(2):
        take(tube)
        tube.release(first)
    tube.bury_many([first, second, third])

    for others, said in (([42], "42"), ([tube.put(4).task_id], "is ready, not buried")):
        with pytest.raises(TaskNotFoundError, match=said):
            tube.kick_many([third, *others])
    with pytest.raises(InvalidOptionError, match="task_ids"):
        tube.kick_many([third, third])
    assert tube.kick_many([]) == []
    assert ids_of(tube.tasks_by_state("!")) == [first, second, third]

    kicked = tube.kick_many([third, first])

    assert [(task.task_id, task.state, task.attempts) for task in kicked] == [
        (third, TaskState.READY, 0),
        (first, TaskState.READY, 0),
    ]
    assert ids_of(tube.tasks_by_state("!")) == [second]
    assert take(tube).task_id == first
    assert calls(queue, tube)["kick"] == before + 2


def test_drop_is_refused_only_while_tasks_are_taken(fresh_tube: Tube, queue: Queue) -> None:
    """Cases 020-11 and X-B5."""
    tube = fresh_tube
    ids = ids_of(tube.put_many(["taken", "buried", "ready"]))
    take(tube)
    tube.bury(ids[1])
    if tube.type == "fifottl":
        tube.put("delayed", delay=10)

    with pytest.raises(TubeBusyError, match=tube.name):
        tube.drop()
    assert take(tube).task_id == ids[2]
    tube.release_many([ids[0], ids[2]])
    tube.drop()

    assert tube.name not in queue
    assert tube.name not in queue.sweep().tubes
    with pytest.raises(TubeNotFoundError):
        tube.drop()
    with pytest.raises(TubeNotFoundError):
        tube.put("too late")


def test_drop_while_a_take_waits_ends_the_take(
    new_live_tube: NewTube, in_background: InBackground
) -> None:
    """Case X-B5."""
    tube = new_live_tube("fifo")
    waiting = in_background(tube.take)

    tube.drop()

    with pytest.raises(TubeNotFoundError):
        waiting.result(WAIT)


def test_create_tube_that_is_unknown_or_there_is_refused(fifo: Tube, queue: Queue) -> None:
    """Case X-B6."""
    before = queue.tubes()

    with pytest.raises(InvalidOptionError, match="foo"):
        queue.create_tube("x", "foo")
    with pytest.raises(InvalidOptionError, match="foo"):
        queue.create_tube(fifo.name, "foo", if_not_exists=True)
    with pytest.raises(TubeExistsError, match=fifo.name):
        queue.create_tube(fifo.name, "fifo")
    with pytest.raises(TubeExistsError, match=fifo.name):
        queue.create_tube(fifo.name, "fifottl", if_not_exists=True)
    with pytest.raises(TubeExistsError):
        queue.create_tube(fifo.name.upper(), "fifo", if_not_exists=True)
    with pytest.raises(TubeNotFoundError):
        queue.tube(fifo.name.upper())

    assert queue.tubes() == before


@pytest.mark.parametrize("name", [None, "nope", "_tubeq_tubes", 123, "", "a/b", b"test"])
def test_look_up_of_what_is_no_tube_is_not_found(queue: Queue, name: Any) -> None:
    """Case X-B7."""
    for look_up in (queue.tube, queue.__getitem__):
        with pytest.raises(TubeNotFoundError):
            look_up(name)
    if name is not None:
        with pytest.raises(TubeNotFoundError):
            queue.statistics(name)
    assert name not in queue


def test_cfg_when_refused_changes_nothing(queue: Queue) -> None:
    """Case X-B7."""
    before = queue.cfg()

    for settings in (
        {"foo": 1},
        {"ttr": -1},
        {"ttr": "x"},
        {"ttr": 5, "in_replicaset": "x"},
        {"ttr": 5, "foo": 1},
    ):
        with pytest.raises(InvalidOptionError, match=list(settings)[-1]):
            queue.cfg(**settings)

    assert queue.cfg() == before


def test_identify_knows_its_own_uuid_and_living_ones_only(queue: Queue, session: Session) -> None:
    """Cases 180-1 and X-B9."""
    own = queue.identify()
    assert queue.identify() == own
    assert queue.identify(own) == own
    assert queue.identify(str(own)) == own
    assert queue.session_uuid == own

    unknown = uuid.UUID(int=own.int ^ 1)
    with pytest.raises(SessionError, match=str(unknown)):
        queue.identify(unknown)
    for malformed in ("just-for-fun", "", "1234", 5, 1.5, b"1234567890123456"):
        with pytest.raises(SessionError):
            queue.identify(malformed)  # type: ignore[arg-type]
    with pytest.raises(SessionError):
        session(session_uuid=unknown)
    assert queue.identify() == own
