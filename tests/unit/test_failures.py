"""The backoff gives each failed task its delay, and each error becomes a text that can be stored."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tubeq_spark import Backoff, InvalidOptionError
from tubeq_spark.clock import FOREVER_US, US
from tubeq_spark.model.failures import (
    LEASE_ENDED,
    MOST_TEXT,
    error_text,
    error_texts,
    kind_of,
)
from tubeq_spark.storage.arrow.evaluate import column, of_table
from tubeq_spark.storage.tables.row_clauses import backoff_us

BACKOFFS = st.builds(
    lambda first, factor, more, jitter: Backoff(first, factor, first + more, jitter),
    st.floats(0, 1e10),
    st.floats(1, 1e6),
    st.floats(0, 1e12),
    st.floats(0, 1),
)


# -- delays ------------------------------------------------------------------------------------------


def test_delay_when_there_is_no_jitter_grows_up_to_the_longest() -> None:
    backoff = Backoff(first=0.5, factor=3, most=10, jitter=0)

    assert [backoff.delay_us(n, 1) / US for n in range(7)] == [0.5, 0.5, 1.5, 4.5, 10, 10, 10]


def test_delay_when_all_ids_are_seen_is_even_around_the_middle() -> None:
    delays = {Backoff(first=1, jitter=1).delay_us(1, number) for number in range(997)}

    assert (min(delays), max(delays), len(delays)) == (0, 2 * US, 997)


def test_delay_when_it_is_longer_than_all_measure_is_bounded() -> None:
    backoff = Backoff(first=1e300, factor=1e300, most=1e308, jitter=0)

    assert backoff.delay_us(5, 1) == FOREVER_US
    assert len(Backoff(first=1, factor=1.0001, most=1e9).steps()) == 100


@given(BACKOFFS, st.integers(0, 200), st.integers(0, 2**63 - 1))
def test_delay_when_computed_by_an_expression_is_the_same(
    backoff: Backoff, attempts: int, task_id: int
) -> None:
    import pyarrow as pa  # noqa: PLC0415  (quick to collect)

    expected = backoff.delay_us(attempts, task_id)
    expression = backoff_us(backoff)
    row = pa.table({"task_id": [task_id], "attempts": pa.array([attempts], pa.int32())})

    assert column(expression, of_table(row), None, 1).to_pylist() == [expected]
    delay, jitter = backoff.steps()[min(max(attempts, 1), len(backoff.steps())) - 1]
    assert abs(expected - delay) <= jitter


# -- errors as text ----------------------------------------------------------------------------------


def failed_at() -> ValueError:
    try:
        int("x" * 3)
    except ValueError as error:
        return error
    raise AssertionError


def test_error_when_it_is_an_exception_has_its_type_message_and_traceback() -> None:
    text = error_text(failed_at())

    first, *_, last = text.splitlines()
    assert first == "ValueError: invalid literal for int() with base 10: 'xxx'"
    assert "failed_at" in text
    assert 'int("x" * 3)' in last or "int(" in text


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (None, None),
        ("", ""),
        ("why", "why"),
        (KeyError(), "KeyError"),
        (KeyboardInterrupt("stop"), "KeyboardInterrupt: stop"),
        ("a\0b", "a\\x00b"),
        ("a\ud800b", "a\\ud800b"),
        ("漢 ${x} 'q'", "漢 ${x} 'q'"),
    ],
)
def test_error_when_given_is_storable_text(given: Any, text: str | None) -> None:
    assert error_text(given) == text


def test_error_when_it_is_too_long_keeps_its_first_line_and_its_end() -> None:
    lines = "\n".join(f"line {number}" for number in range(5_000))
    text = error_text("first\n" + lines)

    assert len(text) == MOST_TEXT
    assert text.startswith("first\n[…]\n")
    assert text.endswith("line 4998\nline 4999")


@given(st.text(st.characters(), max_size=5_000))
def test_error_when_it_is_any_text_can_be_stored(given: str) -> None:
    text = error_text(given)

    assert len(text) <= MOST_TEXT
    assert "\0" not in text
    text.encode()


@pytest.mark.parametrize("bad", [1, True, b"why", ["why"], ValueError, object()])
def test_error_when_it_is_neither_text_nor_exception_is_refused(bad: Any) -> None:
    with pytest.raises(InvalidOptionError, match="error"):
        error_text(bad)


def test_errors_when_they_are_by_id_are_those_of_the_tasks() -> None:
    assert error_texts({1: "a", 2: KeyError("b"), 3: "c"}, [2, 1]) == {2: "KeyError: 'b'", 1: "a"}
    assert error_texts("a", [1]) == "a"
    assert error_texts(None, [1]) is None


@pytest.mark.parametrize("bad", [{}, {2: "b"}, {1: None}, {1: 5}])
def test_errors_when_a_task_has_none_are_refused(bad: Any) -> None:
    with pytest.raises(InvalidOptionError, match="error"):
        error_texts(bad, [1])


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("ValueError: it broke\n  File 7", "ValueError"),
        ("NotThere\n  File 7", "NotThere"),
        ("KeyError", "KeyError"),
        (LEASE_ENDED, LEASE_ENDED),
        ("no such customer: ann", "no exception, but a text"),
        ("ann", "no exception, but a text"),
        ("", "no exception, but a text"),
        ("<b>: x", "no exception, but a text"),
    ],
)
def test_kind_of_an_error_is_its_class_and_nothing_else_of_its_text(text: str, kind: str) -> None:
    assert kind_of(text) == kind
