"""Bad input is refused before anything is written, by every verb that takes it.

All cases share one queue; a refused call makes no commit, which every test reads off the logs. Each
argument of each verb has one bad value here, which only the check that it must have refuses; what else
that check refuses is in `tests/unit`.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pytest

from tests.acceptance.support import take
from tests.thorough import thorough
from tubeq_spark import (
    InvalidOptionError,
    NotTakenError,
    PutItem,
    Queue,
    QueueStateError,
    TaskNotFoundError,
    TubeExistsError,
    TubeqError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from tests.acceptance.support import Session
    from tubeq_spark import Tube

#: Refused as what their names say, and as less strict things not.
NO_DURATION, NO_LEASE, NO_COUNT, NO_PRI, NO_ID = [-0.001], [0], [-1], [2**31], [1.0]


Errors = type[Exception] | tuple[type[Exception], ...]


class Refused(Protocol):
    """Expects a refusal that names an argument, and no commit anywhere."""

    def __call__(
        self, naming: str = "", *, error: Errors = InvalidOptionError
    ) -> AbstractContextManager[None]: ...


class Tubes(NamedTuple):
    """A tube of each type, each with a held and a ready task."""

    fifo: Tube
    fifottl: Tube
    held: dict[str, int]

    def __getitem__(self, type_name: str) -> Tube:  # type: ignore[override]
        return {"fifo": self.fifo, "fifottl": self.fifottl}[type_name]


@pytest.fixture(scope="module")
def tubes(queue: Queue) -> Tubes:
    """The tubes that all cases share."""
    fifo = queue.create_tube("fifo", "fifo")
    fifottl = queue.create_tube("fifottl", "fifottl")
    for tube in (fifo, fifottl):
        tube.put_many(["held", "ready"])
    return Tubes(fifo, fifottl, {tube.type: take(tube).task_id for tube in (fifo, fifottl)})


@pytest.fixture
def refused(tubes: Tubes, versions: Callable[[], dict[str, int]]) -> Refused:
    """Expects refusals."""

    @contextmanager
    def check(naming: str = "", *, error: Errors = InvalidOptionError) -> Iterator[None]:
        before = versions()
        with pytest.raises(error, match=naming or None):
            yield
        assert versions() == before

    return check


def cases(**values: list[Any]) -> pytest.MarkDecorator:
    """One test an option and a bad value of it."""
    return pytest.mark.parametrize(
        ("option", "value"),
        [
            pytest.param(option, value, id=f"{option}={value!r:.20}")
            for option, bad in values.items()
            for value in bad
        ],
    )


# -- create_tube -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["_x", None], ids=repr)
def test_create_tube_with_a_bad_name_is_refused(queue: Queue, refused: Refused, name: Any) -> None:
    with refused("name"):
        queue.create_tube(name, "fifo")


@pytest.mark.parametrize("type_name", ["FIFO", None])
def test_create_tube_of_an_unknown_type_is_refused(
    queue: Queue, refused: Refused, type_name: Any
) -> None:
    with refused("type"):
        queue.create_tube("x", type_name)


@cases(
    pri=NO_PRI,
    ttl=NO_DURATION,
    ttr=NO_LEASE,
    delay=NO_DURATION,
    max_attempts=[0],
    storage_mode=["foo"],
    schema=["", "not a ddl ((", "a NOSUCHTYPE", "a INT, A STRING"],
    change_feed=[1],
    temporary=[1],
    if_not_exists=[1],
    on_task_change=["print"],
)
def test_create_tube_with_a_bad_option_is_refused(
    queue: Queue, refused: Refused, option: str, value: Any
) -> None:
    with refused(option):
        queue.create_tube("x", "fifottl", **{option: value})


@cases(pri=[0], capacity=[1], storage_mode=["ready_buffer"])
def test_create_tube_with_an_option_of_another_type_is_refused(
    queue: Queue, refused: Refused, option: str, value: Any
) -> None:
    with refused(option):
        queue.create_tube("x", "fifo", **{option: value})


@cases(capacity=[1], storage_mode=["ready_buffer"])
def test_create_tube_fifottl_with_an_option_of_another_type_is_refused(
    queue: Queue, refused: Refused, option: str, value: Any
) -> None:
    with refused(option):
        queue.create_tube("x", "fifottl", **{option: value})


def test_create_tube_with_an_unknown_keyword_is_a_type_error(
    queue: Queue, refused: Refused
) -> None:
    with refused("if_not_exist", error=TypeError):
        queue.create_tube("x", "fifo", if_not_exist=True)  # type: ignore[call-arg]


@pytest.mark.parametrize("name", ["FIFO"])
def test_create_tube_with_a_name_that_differs_only_in_case_is_refused(
    queue: Queue, refused: Refused, name: str
) -> None:
    with refused("fifo", error=TubeExistsError):
        queue.create_tube(name, "fifo")


@pytest.mark.parametrize("option", [{"ttl": -1}, {"capacity": 1}, {"on_task_change": 1}], ids=str)
def test_create_tube_if_not_exists_checks_its_options_all_the_same(
    queue: Queue, refused: Refused, option: dict[str, Any]
) -> None:
    with refused(next(iter(option))):
        queue.create_tube("fifottl", "fifottl", if_not_exists=True, **option)


def test_create_tube_temporary_when_in_replicaset_is_refused(
    session: Session, refused: Refused
) -> None:
    queue = session()
    queue.cfg(in_replicaset=True)

    with refused("temporary"):
        queue.create_tube("x", "fifo", temporary=True)


# -- put -------------------------------------------------------------------------------------------

PUT_OPTIONS: dict[str, list[Any]] = {
    "pri": NO_PRI,
    "ttl": NO_DURATION,
    "ttr": NO_LEASE,
    "delay": NO_DURATION,
}


@cases(**PUT_OPTIONS, utube=["a"], timeout=[1, *NO_DURATION])
def test_put_with_a_bad_option_is_refused(
    tubes: Tubes, refused: Refused, option: str, value: Any
) -> None:
    with refused(option):
        tubes.fifottl.put("x", **{option: value})


@cases(pri=[0], utube=["a"], timeout=[1])
def test_put_with_an_option_of_another_type_is_refused(
    tubes: Tubes, refused: Refused, option: str, value: Any
) -> None:
    with refused(option):
        tubes.fifo.put("x", **{option: value})


@cases(**PUT_OPTIONS, utube=["a"], timeout=[1])
def test_put_many_with_a_bad_option_of_all_is_refused(
    tubes: Tubes, refused: Refused, option: str, value: Any
) -> None:
    with refused(option):
        tubes.fifottl.put_many(["x"], **{option: value})


@cases(**PUT_OPTIONS, utube=["a"])
def test_put_many_with_a_bad_option_of_one_puts_none(
    tubes: Tubes, refused: Refused, option: str, value: Any
) -> None:
    with refused(option):
        tubes.fifottl.put_many(["good", PutItem("bad", **{option: value}), "good"])


@cases(pri=[0])
def test_put_many_with_an_items_option_of_another_type_puts_none(
    tubes: Tubes, refused: Refused, option: str, value: Any
) -> None:
    with refused(option):
        tubes.fifo.put_many(["good", PutItem("bad", **{option: value})])


@pytest.mark.parametrize("verb", ["put", "put_many"])
def test_put_with_an_unknown_keyword_is_a_type_error(
    tubes: Tubes, refused: Refused, verb: str
) -> None:
    with refused("priority", error=TypeError):
        getattr(tubes.fifottl, verb)(["x"], priority=1)


NO_PAYLOADS = {"number as key": {1: "a"}, "nan inside": {"a": [math.nan]}, "bytes": b"x"}


@pytest.mark.parametrize("kind", NO_PAYLOADS)
def test_put_of_what_is_no_json_value_is_refused(tubes: Tubes, refused: Refused, kind: str) -> None:
    with refused("data"):
        tubes.fifo.put(NO_PAYLOADS[kind])
    with refused("data"):
        tubes.fifo.put_many(["good", NO_PAYLOADS[kind]])
    with refused("data"):
        tubes.fifo.put_many([PutItem(NO_PAYLOADS[kind]), "good"])


@pytest.mark.parametrize("items", [None, "text", {"a": 1}], ids=repr)
def test_put_many_of_what_is_no_iterable_is_refused(
    tubes: Tubes, refused: Refused, items: Any
) -> None:
    with refused(error=(InvalidOptionError, TypeError)):
        tubes.fifo.put_many(items)


@pytest.mark.parametrize(
    ("type_name", "row"),
    [
        ("fifottl", "'1' AS data, -1 AS pri"),
        ("fifottl", "'1' AS data, 1 AS priority"),
        *thorough(
            ("fifottl", "'1' AS data, 2147483648L AS pri"),
            ("fifottl", "'1' AS data, -1.0D AS ttl"),
            ("fifottl", "'1' AS data, 0.0D AS ttr"),
            ("fifottl", "'1' AS data, double('NaN') AS delay"),
            ("fifottl", "'1' AS data, double('Infinity') AS ttl"),
            ("fifottl", "'1' AS data, 'a' AS utube"),
            ("fifo", "'1' AS data, 1 AS pri"),
        ),
        ("fifo", "1 AS pri"),
    ],
)
def test_put_df_with_bad_values_or_columns_is_refused(
    spark: SparkSession, tubes: Tubes, refused: Refused, type_name: str, row: str
) -> None:
    rows = spark.sql(f"SELECT {row}")

    with refused():
        tubes[type_name].put_df(rows)


def test_put_df_of_texts_that_are_no_json_is_refused_and_counts_them(
    spark: SparkSession, tubes: Tubes, refused: Refused
) -> None:
    bad = ["{", "1], [2", "", "{} and more", "1 2", "1, 2", '1}, {"d": 2', " "]
    rows = spark.createDataFrame([(text,) for text in [*bad, "1"]], "data STRING")

    says = f"^df column data='{len(bad)} bad rows': must be JSON text .*; one of them is '"
    with refused(says):
        tubes.fifo.put_df(rows)


def test_put_df_of_a_bad_value_names_it(
    spark: SparkSession, tubes: Tubes, refused: Refused
) -> None:
    rows = spark.sql("SELECT '1' AS data, pri FROM VALUES (1), (-7), (2) AS given(pri)")

    with refused("^df column pri='1 bad rows': must be a whole number .*; one of them is '-7'$"):
        tubes.fifottl.put_df(rows)


@pytest.mark.parametrize("df", [None, [1]], ids=repr)
def test_put_df_of_what_is_no_dataframe_is_refused(tubes: Tubes, refused: Refused, df: Any) -> None:
    with refused("df"):
        tubes.fifo.put_df(df)


# -- take ------------------------------------------------------------------------------------------


@cases(timeout=NO_DURATION)
def test_take_with_a_bad_timeout_is_refused(
    tubes: Tubes, refused: Refused, option: str, value: Any
) -> None:
    with refused(option):
        tubes.fifo.take(**{option: value})


@pytest.mark.parametrize("verb", ["take_many", "take_df"])
@cases(n=[*NO_COUNT, None], timeout=NO_DURATION, per_utube=[0, 2])
def test_take_of_several_with_a_bad_argument_is_refused(
    tubes: Tubes, refused: Refused, verb: str, option: str, value: Any
) -> None:
    with refused(option):
        getattr(tubes.fifottl, verb)(**{"n": 1, option: value})


@cases(
    ack=[1, None, "1", ["1"], [1, 1]],
    take=[*NO_COUNT, None],
    timeout=NO_DURATION,
    per_utube=[0, 2],
)
def test_exchange_with_a_bad_argument_is_refused(
    tubes: Tubes, refused: Refused, option: str, value: Any
) -> None:
    with refused(error=(InvalidOptionError, TypeError)):
        tubes.fifo.exchange(**{"ack": [], "take": 1, option: value})


def test_take_of_none_takes_nothing_without_a_commit(
    tubes: Tubes, versions: Callable[[], dict[str, int]]
) -> None:
    before = versions()

    assert tubes.fifo.take_many(0) == []
    assert tubes.fifo.exchange(ack=[], take=0) == []
    assert tubes.fifo.kick(0) == 0
    assert tubes.fifo.put_many([]) == []
    for verb in ("ack_many", "release_many", "bury_many", "delete_many"):
        assert getattr(tubes.fifo, verb)([]) == []
    assert versions() == before


# -- verbs on ids ----------------------------------------------------------------------------------

VERBS_ON_ONE = ("ack", "release", "bury", "delete", "peek")
VERBS_ON_SEVERAL = ("ack_many", "release_many", "bury_many", "delete_many")


@pytest.mark.parametrize("verb", VERBS_ON_ONE)
@pytest.mark.parametrize("task_id", NO_ID, ids=repr)
def test_verb_on_what_is_no_id_is_refused(
    tubes: Tubes, refused: Refused, verb: str, task_id: Any
) -> None:
    with refused("task_id"):
        getattr(tubes.fifo, verb)(task_id)


@pytest.mark.parametrize("task_id", NO_ID, ids=repr)
def test_touch_of_what_is_no_id_is_refused(tubes: Tubes, refused: Refused, task_id: Any) -> None:
    with refused("task_id"):
        tubes.fifottl.touch(task_id, 1)


@pytest.mark.parametrize("verb", VERBS_ON_SEVERAL)
@pytest.mark.parametrize("task_id", NO_ID, ids=repr)
def test_verb_on_several_with_one_that_is_no_id_is_refused(
    tubes: Tubes, refused: Refused, verb: str, task_id: Any
) -> None:
    with refused("task_id"):
        getattr(tubes.fifo, verb)([tubes.held["fifo"], task_id])


@pytest.mark.parametrize("verb", VERBS_ON_SEVERAL)
def test_verb_on_several_with_a_duplicate_or_no_list_is_refused(
    tubes: Tubes, refused: Refused, verb: str
) -> None:
    held = tubes.held["fifo"]

    with refused("task_ids"):
        getattr(tubes.fifo, verb)([held, held])
    for task_ids in (held, None, str(held)):
        with refused("task_ids"):
            getattr(tubes.fifo, verb)(task_ids)


@pytest.mark.parametrize("task_id", [-1, 42, 2**63, 10**30])
def test_verb_on_an_integer_that_is_no_tasks_id_finds_nothing(
    tubes: Tubes, refused: Refused, task_id: int
) -> None:
    for verb in ("ack", "release"):
        with refused(str(task_id), error=NotTakenError):
            getattr(tubes.fifo, verb)(task_id)
    for verb in ("bury", "delete", "peek"):
        with refused(str(task_id), error=TaskNotFoundError):
            getattr(tubes.fifo, verb)(task_id)


@pytest.mark.parametrize("verb", ["release", "release_many"])
@cases(delay=NO_DURATION)
def test_release_with_a_bad_delay_is_refused(
    tubes: Tubes, refused: Refused, verb: str, option: str, value: Any
) -> None:
    held = tubes.held["fifottl"]

    with refused(option):
        getattr(tubes.fifottl, verb)(held if verb == "release" else [held], **{option: value})


def test_release_with_a_delay_where_there_is_none_is_refused(
    tubes: Tubes, refused: Refused
) -> None:
    with refused("delay"):
        tubes.fifo.release(tubes.held["fifo"], delay=1)


@pytest.mark.parametrize("increment", NO_DURATION, ids=repr)
def test_touch_by_a_bad_increment_is_refused(
    tubes: Tubes, refused: Refused, increment: Any
) -> None:
    for tube in (tubes.fifo, tubes.fifottl):
        with refused("increment"):
            tube.touch(tubes.held[tube.type], increment)


def test_touch_where_there_is_no_ttr_is_refused(tubes: Tubes, refused: Refused) -> None:
    with refused("fifo"):
        tubes.fifo.touch(tubes.held["fifo"], 1)


@pytest.mark.parametrize("count", NO_COUNT, ids=repr)
def test_kick_of_a_bad_count_is_refused(tubes: Tubes, refused: Refused, count: Any) -> None:
    with refused("count"):
        tubes.fifo.kick(count)


@pytest.mark.parametrize("state", ["ready", None], ids=repr)
def test_tasks_by_state_of_no_state_is_refused(tubes: Tubes, refused: Refused, state: Any) -> None:
    with refused("state"):
        list(tubes.fifo.tasks_by_state(state))


@pytest.mark.parametrize("callback", ["print"], ids=repr)
def test_on_task_change_with_what_cannot_be_called_is_refused(
    tubes: Tubes, refused: Refused, callback: Any
) -> None:
    with refused("callback"):
        tubes.fifo.on_task_change(callback)


# -- the queue -------------------------------------------------------------------------------------


@cases(ttr=NO_LEASE, in_replicaset=[1], foo=[1, None])
def test_cfg_with_a_bad_setting_changes_nothing(
    queue: Queue, refused: Refused, option: str, value: Any
) -> None:
    before = queue.cfg()

    with refused(option):
        queue.cfg(**{"ttr": 5, option: value})
    assert queue.cfg() == before


@pytest.mark.parametrize("location", ["", None], ids=repr)
def test_queue_at_what_is_no_location_is_refused(spark: SparkSession, location: Any) -> None:
    with pytest.raises(InvalidOptionError, match="location"):
        Queue(spark, location)


@pytest.mark.parametrize("location", ["spark_catalog.no_such_schema", "a`b.c", "a.b.c.d"])
def test_queue_in_a_schema_that_does_not_exist_is_refused(
    spark: SparkSession, location: str
) -> None:
    with pytest.raises(TubeqError, match="location"):
        Queue(spark, location)


def test_closed_queue_refuses_bad_input_as_closed(session: Session, refused: Refused) -> None:
    closed = session()
    tube = closed["fifottl"]
    closed.close()

    with refused(error=QueueStateError):
        tube.put("x")
    with refused(error=QueueStateError):
        closed.cfg(ttr=5)
