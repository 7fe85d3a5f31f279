"""Each verb on an object store that is silent or busy ends after few failed requests, and loses or doubles nothing."""

from __future__ import annotations

import contextlib
from itertools import product
from typing import TYPE_CHECKING

import pytest

from tests.concurrency.imagined_time import Hanging
from tests.concurrency.lost_answers import CASES, Bench
from tests.concurrency.silent_verbs import SILENT, came_to, limit, timed_verbs, tried, wrong_of
from tests.concurrency.support import FOR_EVER, end_heartbeat
from tests.thorough import one_in
from tubeq_spark import CommitUnknownError
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.concurrency.s3_store import Store
    from tubeq_spark import Queue

pytest.importorskip("moto", reason="the emulated S3")
pytestmark = [pytest.mark.processes]

#: One request, and all that failed and was repeated.
SHORT = {"timeout": "300ms", "connect_timeout": "300ms", "retry_timeout": "500ms"}
#: Requests of a verb that gets no answer at all.
FEW = 6
_QUICK = ("put", "take", "ack")
_OTHERS = tuple(case.name for case in CASES if case.name not in _QUICK)


@pytest.fixture(scope="module")
def bench(store: Store) -> Iterator[Bench]:
    """A queue on a store whose client waits for moments only, and whose heart does not beat."""
    with quiet(store, "queue", SHORT) as queue:
        yield Bench(store, queue)


@contextlib.contextmanager
def quiet(store: Store, place: str, options: dict[str, str]) -> Iterator[Queue]:
    """A queue that does nothing by itself."""
    with store.open(f"s3://bucket/{place}", ManualClock(), options) as queue:
        end_heartbeat(queue)
        queue.cfg(ttr=FOR_EVER)
        yield queue


@pytest.mark.parametrize(
    ("name", "way"), [*product(_QUICK, SILENT), *one_in(11, product(_OTHERS, SILENT))]
)
def test_verb_when_the_store_is_silent_or_busy_loses_and_doubles_nothing(
    bench: Bench, name: str, way: str
) -> None:
    case = next(case for case in CASES if case.name == name)

    found = tried(bench, case, way, seed=1)

    assert found.wrong is None
    if way == "every request hangs":
        # An ack begins with its commit, all others with a look.
        assert found.outcome == ("unknown" if name == "ack" else "refused")
        assert 0 < found.failed <= FEW


# -- in imagined time -----------------------------------------------------------------------------

#: Seconds of one request, and of all that failed and was repeated.
REQUEST, LOST = 5, 30
#: Which part of the requests hangs, and how many random choices of them are tried.
SHARES = (1 / 3, 0.15, 0.6)
CHOICES = 2


@pytest.fixture(scope="module")
def patient(store: Store) -> Iterator[Bench]:
    """A queue on the same store with the limits by default, whose real requests are answered at once."""
    with quiet(store, "patient", {"timeout": "60s"}) as queue:
        yield Bench(store, queue)


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Hanging:
    """Requests that hang in imagined time."""
    return Hanging(monkeypatch, REQUEST)


@pytest.mark.parametrize(
    ("name", "share"),
    [*product(_QUICK, [SHARES[0]]), *one_in(11, product(_OTHERS, SHARES))],
)
def test_verb_when_some_of_its_requests_hang_ends_within_its_limit(
    patient: Bench, hanging: Hanging, name: str, share: float
) -> None:
    case = next(case for case in CASES if case.name == name)
    for seed in range(CHOICES):
        patient.tubes.clear()
        patient.kind = case.kind
        given = case.given(patient)
        before = patient.stored().split()
        with hanging.some(share, seed), timed_verbs(lambda: hanging.clock.passed) as took:
            outcome, result = came_to(case, patient, given)

        assert max(took) <= limit(REQUEST, LOST)
        assert wrong_of(patient, case, outcome, result, before) is None


@pytest.fixture
def plain(patient: Bench) -> Bench:
    """An empty tube of type `fifo`."""
    tube = patient.queue.create_tube("plain", if_not_exists=True)
    tube.truncate()
    patient.tubes = {"fifottl": tube}
    patient.kind = "fifottl"
    return patient


def test_put_when_no_answer_tells_of_its_commit_looks_for_it(
    plain: Bench, hanging: Hanging
) -> None:
    plain.put("a")
    with hanging.some(names=["put_if_absent"]), pytest.raises(CommitUnknownError):
        plain.put("b")
    # Each was sent once more after its time.
    assert 0 < hanging.failed <= LOST // REQUEST + 2
    assert plain.stored() == "ar"
