"""Cases X-A: what the verbs return, and ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.acceptance.support import data_of, ids_of, take
from tubeq_spark import InvalidOptionError

if TYPE_CHECKING:
    from tubeq_spark import Tube


def test_every_verb_returns_the_task_as_id_state_and_data(tube: Tube) -> None:
    """Case X-A1."""
    task_id = tube.put(["x"]).task_id
    verbs = {
        "take": lambda: take(tube),
        "release": lambda: tube.release(task_id),
        "bury": lambda: tube.bury(task_id),
        "peek": lambda: tube.peek(task_id),
        "delete": lambda: tube.delete(task_id),
    }

    seen = {name: verb().as_tuple() for name, verb in verbs.items()}

    assert seen == {
        "take": (task_id, "t", ["x"]),
        "release": (task_id, "r", ["x"]),
        "bury": (task_id, "!", ["x"]),
        "peek": (task_id, "!", ["x"]),
        "delete": (task_id, "-", ["x"]),
    }


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


def test_put_with_an_option_that_nobody_or_another_type_has_is_refused(tube: Tube) -> None:
    """Case X-A4."""
    for unknown in ("priority", "TTL", "if_not_exist"):
        with pytest.raises(TypeError):
            tube.put("x", **{unknown: 1})
    with pytest.raises(InvalidOptionError, match="utube"):
        tube.put("x", utube="a")

    assert tube.take(timeout=0) is None


def test_put_with_a_bad_pri_or_ttl_inserts_nothing(fifottl: Tube) -> None:
    """Case X-A5."""
    for options in ({"pri": -1}, {"pri": 1.5}, {"pri": "a"}, {"ttl": "a"}):
        with pytest.raises(InvalidOptionError, match=next(iter(options))):
            fifottl.put("x", **options)

    assert fifottl.take(timeout=0) is None
