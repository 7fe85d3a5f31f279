"""Spans of verbs and of handlers, by OpenTelemetry; imported only for `QueueConfig(traces=True)`.

Names and attributes are those of OpenTelemetry's semantic conventions for messaging. The span of a verb is made
at the end of the verb: a take that has found nothing needs none, and the links of a take lead to the traces of
the tasks that it has found.
"""

from __future__ import annotations

import contextlib
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tubeq_spark.clock import Clock, to_us
from tubeq_spark.storage.commit_loop import CallCounts, call_counts
from tubeq_spark.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tubeq_spark.storage.tables.registry import TubeRecord

T = TypeVar("T")

_FIELDS = ("traceparent", "tracestate")
_W3C = TraceContextTextMapPropagator()
#: The operation types of the conventions.
_TYPES = {
    "put": "send",
    "urgent": "send",
    "take": "receive",
    "exchange": "receive",
    "process": "process",
    **dict.fromkeys(("ack", "release", "bury", "delete", "requeue", "done"), "settle"),
}
_TYPE, _COUNT = "messaging.operation.type", "messaging.batch.message_count"
#: The most links of a span, which is the SDK's own limit.
_LINKS = 128


def context_of(task: Task) -> Context:
    """Return the span in which a task was put, as a context for spans of your own; an empty one if there is none."""
    return _W3C.extract(dict(zip(_FIELDS, (task.trace or "").split("\n"), strict=False)), Context())


class Traces:
    """Makes the spans of a queue object."""

    def __init__(self, clock: Clock) -> None:
        """Make spans with the times of `clock`, by the program's tracer provider."""
        self._clock = clock
        self._tracer = trace.get_tracer("tubeq_spark")

    def current(self) -> str | None:
        """The current span, as text for a task's row; `None` if there is none."""
        found: dict[str, str] = {}
        with contextlib.suppress(Exception):
            _W3C.inject(found)
        return "\n".join(found[name] for name in _FIELDS if name in found) or None

    def of_verb(self, record: TubeRecord, name: str, verb: Callable[[], T]) -> Callable[[], T]:
        """Wrap a verb of a tube so that it leaves a span of this name."""

        def traced() -> T:
            began, counts = self._now(), CallCounts()
            token = call_counts.set(counts)
            result: T | None = None
            error: BaseException | None = None
            try:
                result = verb()
            except BaseException as raised:
                error = raised
                raise
            finally:
                call_counts.reset(token)
                # No failure here loses the verb's result.
                with contextlib.suppress(Exception):
                    tasks = [result] if isinstance(result, Task) else result
                    self._tell(_attributes(record, name), began, counts, tasks, error)
            return result

        return traced

    @contextmanager
    def of_handler(self, record: TubeRecord, tasks: Sequence[Task] | Any) -> Iterator[Span]:
        """Make a span, the current one of a block that works on tasks.

        The span of a single task is a child of the span in which the task was put. The span of several tasks
        has links to these. An error of the block is recorded in the span. An error of the tracer does not
        fail a task.

        Args:
            record: The tube of the tasks.
            tasks: The tasks: a list, an Arrow table, or a DataFrame, which is not read.
        """
        span: Span = trace.INVALID_SPAN
        with contextlib.suppress(Exception):
            span = self._begin(record, tasks)
        try:
            with trace.use_span(span):
                yield span
        except Exception as error:
            span.set_attribute("error.type", type(error).__qualname__)
            raise
        finally:
            with contextlib.suppress(Exception):
                span.end()

    def _begin(self, record: TubeRecord, tasks: Sequence[Task] | Any) -> Span:
        attributes = _attributes(record, "process")
        if isinstance(tasks, (list, pa.Table)):
            attributes |= _counted(tasks)
        parent, links = None, _links(tasks)
        if isinstance(tasks, list) and len(tasks) == 1:
            # For a task without a trace the current trace is the parent.
            parent, links = context_of(tasks[0]) or None, []
            attributes["tubeq.attempts"] = tasks[0].attempts
        name, kind = f"process {record.name}", SpanKind.CONSUMER
        return self._tracer.start_span(name, parent, kind, attributes, links)

    def _now(self) -> int:
        return to_us(self._clock.now()) * 1_000

    def _tell(
        self,
        attributes: dict[str, Any],
        began: int,
        counts: CallCounts,
        result: object,
        error: BaseException | None,
    ) -> None:
        """Make the span of a verb that has ended."""
        name, kind = attributes["messaging.operation.name"], attributes.get(_TYPE)
        if error is None and (kind or result is not None):
            attributes |= _counted(result)
        if name == "take" and attributes.get(_COUNT) == 0:
            return
        attributes |= {"tubeq.commits": counts.commits, "tubeq.conflicts": counts.conflicts}
        span = self._tracer.start_span(
            f"{name} {attributes['messaging.destination.name']}",
            kind=SpanKind.CLIENT,
            attributes=attributes,
            links=_links(result) if kind == "receive" else (),
            start_time=began,
        )
        if error is not None:
            span.set_attribute("error.type", type(error).__qualname__)
            span.record_exception(error, timestamp=self._now())
            span.set_status(Status(StatusCode.ERROR, str(error)))
        span.end(self._now())


def _attributes(record: TubeRecord, name: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "messaging.system": "tubeq",
        "messaging.operation.name": name,
        "messaging.destination.name": record.name,
        "tubeq.tube.type": record.type,
    }
    return found | {_TYPE: _TYPES[name]} if name in _TYPES else found


def _counted(result: object) -> dict[str, Any]:
    """The number of tasks of a verb, or the id of a single task."""
    if isinstance(result, list) and len(result) == 1:
        return {"messaging.message.id": str(result[0].task_id)}
    if isinstance(result, (list, pa.Table)):
        return {_COUNT: len(result)}
    # The count of a batch, or of a put of rows. A verb without a result has found nothing.
    return {_COUNT: result if isinstance(result, int) else getattr(result, "count", 0)}


def _links(tasks: object) -> list[Link]:
    """Links to the spans in which tasks were put, to each span once."""
    listed = tasks if isinstance(tasks, list) else []
    traces = {task.trace: task for task in listed if task.trace is not None}
    contexts = (context_of(task) for task in islice(traces.values(), _LINKS))
    return [Link(trace.get_current_span(context).get_span_context()) for context in contexts]
