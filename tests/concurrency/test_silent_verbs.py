"""Each verb on an object store that is silent or busy ends after few failed requests, and loses or doubles nothing."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import pytest

from tests.concurrency.lost_answers import CASES, Bench
from tests.concurrency.s3_store import served
from tests.concurrency.silent_verbs import SILENT, tried
from tests.concurrency.support import FOR_EVER, end_heartbeat
from tests.thorough import one_in
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest.importorskip("moto", reason="the emulated S3")
pytestmark = [pytest.mark.processes]

#: One request, and all that failed and was repeated.
SHORT = {"timeout": "300ms", "connect_timeout": "300ms", "retry_timeout": "500ms"}
#: Requests of a verb that gets no answer at all.
FEW = 6
_QUICK = ("put", "take", "ack")
_OTHERS = tuple(case.name for case in CASES if case.name not in _QUICK)


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    """A queue on a store whose client waits for moments only, and whose heart does not beat."""
    with (
        served() as store,
        store.open("s3://bucket/queue", ManualClock(), SHORT) as queue,
    ):
        end_heartbeat(queue)
        queue.cfg(ttr=FOR_EVER)
        yield Bench(store, queue)


@pytest.mark.parametrize(
    ("name", "way"), [*product(_QUICK, SILENT), *one_in(5, product(_OTHERS, SILENT))]
)
def test_verb_when_the_store_is_silent_or_busy_loses_and_doubles_nothing(
    bench: Bench, name: str, way: str
) -> None:
    case = next(case for case in CASES if case.name == name)

    found = tried(bench, case, way, seed=1)

    assert found.wrong is None
    if way == "every request hangs":
        assert found.outcome == "refused"
        assert 0 < found.failed <= FEW
