"""Cases X-A and X-B: each verb returns the value of the reference, or raises the right error."""

from __future__ import annotations

import itertools
import uuid
from typing import TYPE_CHECKING

import pytest

from tests.acceptance.support import WAIT, data_of, ids_of, put_and_take, take
from tubeq_spark import (
    InvalidOptionError,
    NotTakenError,
    SessionError,
    TaskNotFoundError,
    TubeBusyError,
    TubeNotFoundError,
)

if TYPE_CHECKING:
    from typing import Any

    from tests.acceptance.support import InBackground, NewTube, Session, Versions
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


@pytest.mark.thorough
def test_payload_comes_back_as_the_json_value_it_is(tube: Tube) -> None:
    """Case X-A3."""
    payloads = [None, "", "é\u2028\U0001f600\"'\\`", 2**200, -0.5, True, [], {"": {"a": [None]}}]

    put = tube.put_many([*payloads, (1, (2,))])

    assert data_of(put) == [*payloads, [1, [2]]]
    assert data_of(tube.take_many(10)) == [*payloads, [1, [2]]]
    assert data_of(list(tube.tasks_by_state("t"))) == [*payloads, [1, [2]]]


YEAR = 365 * 86_400.0


@pytest.mark.thorough
def test_verbs_on_a_task_that_is_not_there_or_held_are_refused_and_touch_by_nothing_is_none(
    tube: Tube, versions: Versions
) -> None:
    """Cases X-B1, X-B2 and X-B3."""
    acked, held, ready = ids_of(tube.put_many(["acked", "held", "ready"]))
    tube.take_many(2)
    tube.ack(acked)
    before = versions()

    for task_id in (42, -1, 2**70, acked):
        for verb in (tube.bury, tube.delete, tube.peek):
            with pytest.raises(TaskNotFoundError, match=str(task_id)):
                verb(task_id)
        for verb in (tube.ack, tube.release):
            with pytest.raises(NotTakenError, match=str(task_id)):
                verb(task_id)
    for many, error in (
        (tube.bury_many, TaskNotFoundError),
        (tube.delete_many, TaskNotFoundError),
        (tube.ack_many, NotTakenError),
    ):
        with pytest.raises(error, match="42"):
            many([held, 42])
    for task_id, increment in itertools.product((42, held, ready), (None, 0, 0.0, 501 * YEAR)):
        assert tube.touch(task_id, increment) is None
    assert versions() == before


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
