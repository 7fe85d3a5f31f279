"""`QueueConfig(traces=True)` makes a span for each verb and handler, and tasks carry their traces."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from tests.programs import ran
from tubeq_spark import NotTakenError, PutItem, Queue, QueueConfig
from tubeq_spark.otel import context_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.sdk.trace import ReadableSpan

    from tests.acceptance.support import Engine, NewTube, Session
    from tubeq_spark import Task, Tube

TRACED = QueueConfig(traces=True)


@pytest.fixture(scope="module")
def exporter() -> InMemorySpanExporter:
    """Keeps the spans of the process, which can have one provider only."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


class Spans:
    """The spans that have ended since they were asked for last."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter
        exporter.clear()

    def take(self) -> list[ReadableSpan]:
        """All of them, in the order of their ends."""
        found = list(self._exporter.get_finished_spans())
        self._exporter.clear()
        return found

    def named(self, name: str) -> list[ReadableSpan]:
        """Those of a verb or of a handler."""
        return [span for span in self.take() if span.name.partition(" ")[0] == name]


@pytest.fixture
def spans(exporter: InMemorySpanExporter) -> Spans:
    return Spans(exporter)


@pytest.fixture
def traced(session: Session) -> Queue:
    """A session whose verbs and handlers are traced."""
    return session(config=TRACED)


@pytest.fixture
def tube(new_tube: NewTube, traced: Queue, spans: Spans) -> Iterator[Tube]:
    """A new tube, as that session uses it."""
    yield traced[new_tube("fifottl").name]
    spans.take()


def attributes(span: ReadableSpan) -> dict[str, Any]:
    """What a span says beside what all of a tube's say."""
    found = dict(span.attributes or {})
    assert found.pop("messaging.system") == "tubeq"
    assert span.name == f"{found['messaging.operation.name']} {found['messaging.destination.name']}"
    left = ("messaging.operation.name", "messaging.destination.name")
    return {name: value for name, value in found.items() if name not in left}


def ids(span: ReadableSpan) -> tuple[int, int]:
    """The trace of a span, and its number."""
    return span.context.trace_id, span.context.span_id


def linked(span: ReadableSpan) -> set[tuple[int, int]]:
    return {(link.context.trace_id, link.context.span_id) for link in span.links}


def put_in_a_span(tube: Tube, *data: Any, **options: Any) -> tuple[list[Task], tuple[int, int]]:
    """Put tasks as they are within a span of the program; returns them, and its trace and number."""
    with trace.get_tracer("program").start_as_current_span("request") as span:
        tasks = tube.put_many(data, **options)
        context = span.get_span_context()
        return tasks, (context.trace_id, context.span_id)


# -- verbs --------------------------------------------------------------------------------------------


def test_verbs_when_traced_leave_a_span_each_with_counts_commits_and_conflicts(
    tube: Tube, spans: Spans
) -> None:
    # The first verbs of a session make commits for the session, too.
    tube.put("first")
    tube.take(0)
    tube.truncate()
    spans.take()

    tube.put_many(["a", "b"])
    taken = tube.take_many(5)
    tube.ack(taken[0].task_id)
    tube.release(taken[1].task_id)

    put, take, ack, release = spans.take()
    of_all = {"tubeq.tube.type": "fifottl", "tubeq.commits": 1, "tubeq.conflicts": 0}
    assert [span.kind for span in (put, take, ack, release)] == [SpanKind.CLIENT] * 4
    assert attributes(put) == of_all | {
        "messaging.operation.type": "send",
        "messaging.batch.message_count": 2,
    }
    assert attributes(take) == of_all | {
        "messaging.operation.type": "receive",
        "messaging.batch.message_count": 2,
    }
    assert attributes(ack) == of_all | {
        "messaging.operation.type": "settle",
        "messaging.message.id": str(taken[0].task_id),
    }
    assert attributes(release)["messaging.message.id"] == str(taken[1].task_id)
    tube.truncate()
    spans.take()
    assert tube.take(timeout=0) is None
    assert not tube.take_arrow(5).count
    assert spans.take() == []


def test_verb_when_it_is_called_in_a_span_is_its_child_in_each_thread(
    tube: Tube, spans: Spans
) -> None:
    def put() -> None:
        with trace.get_tracer("program").start_as_current_span("request"):
            tube.put("a")

    for call in (put, lambda: ThreadPoolExecutor(1).submit(put).result()):
        call()
        verb, request = spans.take()
        assert (verb.parent.trace_id, verb.parent.span_id) == ids(request)


def test_verb_when_it_is_refused_leaves_a_span_with_the_error(tube: Tube, spans: Spans) -> None:
    tube.put("a")
    task = tube.take(0)
    tube.ack(task.task_id)
    spans.take()

    with pytest.raises(NotTakenError):
        tube.ack(task.task_id)

    (span,) = spans.take()
    assert span.status.status_code is StatusCode.ERROR
    assert attributes(span)["error.type"] == "NotTakenError"
    assert "messaging.message.id" not in attributes(span)
    assert [event.name for event in span.events] == ["exception"]


def test_queue_when_it_is_not_traced_imports_nothing_of_opentelemetry() -> None:
    program = (
        "import sys; from tubeq_spark.testing import InMemoryQueue\n"
        "with InMemoryQueue() as queue:\n"
        "    tube = queue.create_tube('a'); tube.put(1); tube.work(lambda _: None, idle=0)\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    assert ran("-c", program).stdout == "[]\n"


def test_queue_when_opentelemetry_is_not_there_says_which_extra_brings_it(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.delitem(sys.modules, "tubeq_spark.runtime.traces")
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ModuleNotFoundError, match="otel"):
        engine.open(str(tmp_path), config=TRACED)


# -- handlers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_async", [False, True])
def test_work_when_a_task_carries_a_trace_makes_its_span_a_child_and_the_current_one(
    tube: Tube, spans: Spans, is_async: bool
) -> None:
    _, caller = put_in_a_span(tube, {"to": "ann"})
    inside = []

    def note(task: Task) -> None:
        span = trace.get_current_span().get_span_context()
        inside.append((span.trace_id, span.span_id))

    async def note_async(task: Task) -> None:
        note(task)

    tube.work(note_async if is_async else note, idle=0)

    ended = spans.take()
    (span,) = [span for span in ended if span.name.startswith("process")]
    assert span.kind is SpanKind.CONSUMER
    assert (span.parent.trace_id, span.parent.span_id) == caller
    assert inside == [ids(span)]
    assert attributes(span)["tubeq.attempts"] == 1
    assert attributes(span)["messaging.operation.type"] == "process"
    (take,) = [span for span in ended if span.name.startswith("take")]
    assert linked(take) == {caller}


def context_ids(task: Task) -> tuple[int, int]:
    """The trace and the number of the span that a task carries."""
    context = trace.get_current_span(context_of(task)).get_span_context()
    return context.trace_id, context.span_id


@pytest.mark.parametrize("options", [{}, {"schema": "url STRING"}, {"aging": 5}])
def test_put_when_it_is_called_in_a_span_makes_the_spans_of_handlers_its_children(
    new_tube: NewTube, traced: Queue, spans: Spans, options: dict[str, Any]
) -> None:
    tube = traced[new_tube("fifottl", **options).name]
    payload = {"url": "/a"} if "schema" in options else "a text"
    tasks, caller = put_in_a_span(tube, *[PutItem(payload, unique="once")] * 2)
    tube.put(payload)
    spans.take()

    tube.work(lambda _: None, idle=0)

    ended = spans.take()
    of_once, without = [span for span in ended if span.name.startswith("process")]
    assert (of_once.parent.trace_id, of_once.parent.span_id) == caller
    assert without.parent is None
    assert caller in {pair for span in ended for pair in linked(span)}
    assert tasks[0].data == payload
    assert [context_ids(task) for task in tasks] == [caller, caller]


def test_put_when_it_is_called_in_no_span_or_not_traced_keeps_and_leaves_none(
    new_tube: NewTube, traced: Queue, queue: Queue, spans: Spans
) -> None:
    name = new_tube("fifo").name
    rows = pa.table({"data": ["1"]})

    traced[name].put(1)
    traced[name].put_arrow(rows)
    spans.take()
    put_in_a_span(queue[name], 2)
    with trace.get_tracer("program").start_as_current_span("request"):
        queue[name].put_arrow(rows)

    assert [span.name for span in spans.take()] == ["request"] * 2
    assert [task.trace for task in queue[name].take_many(5)] == [None] * 4


@pytest.mark.parametrize(
    ("type_name", "options", "key", "unique"),
    [
        ("fifottl", {}, "once", False),
        ("limfifottl", {"capacity": 9}, None, False),
        ("utubettl", {"schema": "url STRING"}, None, True),
    ],
)
def test_put_arrow_when_it_is_called_in_a_span_keeps_it_with_each_row(
    new_tube: NewTube,
    traced: Queue,
    type_name: str,
    options: dict[str, Any],
    key: str | None,
    unique: bool,
) -> None:
    tube = traced[new_tube(type_name, **options).name]
    payload = "url" if "schema" in options else "data"
    rows = pa.table({payload: ['"a"', '"b"']} | ({"unique": ["a", "b"]} if unique else {}))

    with trace.get_tracer("program").start_as_current_span("request") as span:
        assert tube.put_arrow(rows, key=key).count == 2
        own = span.get_span_context()
    assert tube.put_arrow(rows).count == (0 if unique else 2)

    tasks = list(tube.tasks_by_state("r"))
    assert [context_ids(task) for task in tasks[:2]] == [(own.trace_id, own.span_id)] * 2
    assert [task.trace for task in tasks[2:]] == [None] * (0 if unique else 2)
