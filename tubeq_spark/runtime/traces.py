"""Spans of verbs and of handlers, by OpenTelemetry; imported only for `QueueConfig(traces=True)`.

Names and attributes are those of OpenTelemetry's semantic conventions for messaging. The span of a verb is made
at the end of the verb: a take that has found nothing needs none, and the links of a take lead to the traces of
the tasks that it has found.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tubeq_spark.model import validation
from tubeq_spark.model.times import to_us
from tubeq_spark.storage.commit_loop import CallCounts, call_counts
from tubeq_spark.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from opentelemetry.trace import Span
    from opentelemetry.util.types import AttributeValue

    from tubeq_spark.clock import Clock

T = TypeVar("T")

_FIELDS = ("traceparent", "tracestate")
_W3C = TraceContextTextMapPropagator()
#: The operation types of the conventions.
_TYPES = {
    "put": "send",
    "urgent": "send",
    "take": "receive",
    "exchange": "receive",
    **dict.fromkeys(("ack", "release", "bury", "delete", "requeue", "done"), "settle"),
}
#: The most links of a span, which is the SDK's own limit.
_LINKS = 128


def with_trace(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a payload with the trace of the current span, for whoever works on the task.

    Args:
        data: A payload that is an object: a dict with texts as keys.

    Returns:
        A copy with `traceparent`, and `tracestate` where there is one, as in the headers of W3C Trace
        Context. Without a current span a copy as it is.

    Raises:
        InvalidOptionError: `data` is no mapping.
    """
    if not hasattr(data, "keys"):
        validation.refuse("data", type(data), "a dict, which can carry a trace")
    found: dict[str, Any] = {}
    _W3C.inject(found)
    return {**({k: v for k, v in data.items() if k not in _FIELDS} if found else data), **found}


def context_of(task: object) -> Context:
    """Return the trace that a task carries, as a context for spans of your own.

    Args:
        task: A task, or any payload such as `task.data`.

    Returns:
        A context with the span that `with_trace` has found, else with that in which the task was put; an
        empty one if there is none.
    """
    data = task.data if isinstance(task, Task) else task
    fields = data if isinstance(data, Mapping) else {}
    carrier = {name: fields[name] for name in _FIELDS if isinstance(fields.get(name), str)}
    if _FIELDS[0] not in carrier and isinstance(task, Task) and task.trace is not None:
        carrier = dict(zip(_FIELDS, task.trace.split("\n"), strict=False))
    return _W3C.extract(carrier, Context()) if carrier else Context()


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

    def of_verb(
        self, name: str, tube: str, type_name: str, verb: Callable[[], T], acked: int | None = None
    ) -> Callable[[], T]:
        """Wrap a verb so that it leaves a span.

        Args:
            name: The name of the verb.
            tube: The tube.
            type_name: The tube's type.
            verb: The verb.
            acked: How many tasks an exchange acks.
        """
        attributes = _attributes(name, tube, type_name, _TYPES.get(name))
        if acked is not None:
            attributes["tubeq.acked"] = acked

        def traced() -> T:
            began, counts = self._now(), CallCounts()
            token = call_counts.set(counts)
            try:
                result = verb()
            except BaseException as error:
                self._tell(name, attributes, began, counts, error=error)
                raise
            finally:
                call_counts.reset(token)
            self._tell(name, attributes, began, counts, result)
            return result

        return traced

    @contextmanager
    def of_handler(self, tube: str, type_name: str, tasks: Sequence[Task] | Any) -> Iterator[Span]:
        """Make a span, the current one of a block that works on tasks.

        The span of a single task is a child of the span whose trace the task carries. The span of several tasks
        has links to their traces. An error of the block is recorded in the span. An error of the tracer does not
        fail a task.

        Args:
            tube: The tube of the tasks.
            type_name: The tube's type.
            tasks: The tasks: a list, an Arrow table, or a DataFrame, which is not read.
        """
        span: Span = trace.INVALID_SPAN
        with contextlib.suppress(Exception):
            span = self._begin(tube, type_name, tasks)
        try:
            with trace.use_span(span):
                yield span
        except Exception as error:
            span.set_attribute("error.type", type(error).__qualname__)
            raise
        finally:
            with contextlib.suppress(Exception):
                span.end()

    def _begin(self, tube: str, type_name: str, tasks: Sequence[Task] | Any) -> Span:
        attributes = _attributes("process", tube, type_name, "process")
        if isinstance(tasks, (list, pa.Table)):
            attributes |= _counted(tasks)
        parent, links = None, _links(tasks)
        if isinstance(tasks, list) and len(tasks) == 1:
            # For a task without a trace the current trace is the parent.
            parent, links = context_of(tasks[0]) or None, []
            attributes["tubeq.attempts"] = tasks[0].attempts
        return self._tracer.start_span(
            f"process {tube}", parent, SpanKind.CONSUMER, attributes, links
        )

    def _now(self) -> int:
        return to_us(self._clock.now()) * 1_000

    def _tell(
        self,
        name: str,
        attributes: Mapping[str, AttributeValue],
        began: int,
        counts: CallCounts,
        result: object = None,
        error: BaseException | None = None,
    ) -> None:
        """Make the span of a verb that has ended. No failure here loses the verb's result."""
        with contextlib.suppress(Exception):
            found = dict(attributes)
            kind = found.get("messaging.operation.type")
            if error is None and (kind or result is not None):
                found |= _counted(result)
            if name == "take" and found.get("messaging.batch.message_count") == 0:
                return
            found |= {"tubeq.commits": counts.commits, "tubeq.conflicts": counts.conflicts}
            span = self._tracer.start_span(
                f"{name} {found['messaging.destination.name']}",
                kind=SpanKind.CLIENT,
                attributes=found,
                links=_links(result) if kind == "receive" else (),
                start_time=began,
            )
            if error is not None:
                span.set_attribute("error.type", type(error).__qualname__)
                span.record_exception(error, timestamp=self._now())
                span.set_status(Status(StatusCode.ERROR, str(error)))
            span.end(self._now())


def _attributes(
    name: str, tube: str, type_name: str, kind: str | None
) -> dict[str, AttributeValue]:
    found: dict[str, AttributeValue] = {
        "messaging.system": "tubeq",
        "messaging.operation.name": name,
        "messaging.destination.name": tube,
        "tubeq.tube.type": type_name,
    }
    return found if kind is None else found | {"messaging.operation.type": kind}


def _counted(result: object) -> dict[str, AttributeValue]:
    """The number of tasks of a verb, or the id of a single task."""
    tasks = [result] if isinstance(result, Task) else result
    if isinstance(tasks, list):
        if len(tasks) == 1:
            return {"messaging.message.id": str(tasks[0].task_id)}
        return {"messaging.batch.message_count": len(tasks)}
    if isinstance(tasks, pa.Table):
        return {"messaging.batch.message_count": tasks.num_rows}
    # The count of a batch, or of a put of rows. A verb without a result has found nothing.
    count = result if isinstance(result, int) else getattr(result, "count", 0)
    return {"messaging.batch.message_count": count}


def _links(tasks: object) -> list[Link]:
    """Links to the traces that tasks carry, to each span once."""
    found: dict[tuple[int, int], Link] = {}
    for carrier in _carriers(tasks):
        span = trace.get_current_span(context_of(carrier)).get_span_context()
        if span.is_valid:
            found.setdefault((span.trace_id, span.span_id), Link(span))
        if len(found) == _LINKS:
            break
    return list(found.values())


def _carriers(tasks: object) -> Iterable[object]:
    """The tasks, or the payloads of a table of tasks."""
    if isinstance(tasks, Task):
        return [tasks]
    if isinstance(tasks, list):
        return tasks
    if not isinstance(tasks, pa.Table):
        return ()
    if "traceparent" in tasks.column_names:
        rows = tasks.select([name for name in _FIELDS if name in tasks.column_names])
        return (row for batch in rows.to_batches(1_000) for row in batch.to_pylist())
    if "data" not in tasks.column_names or not pa.types.is_string(tasks.schema.field("data").type):
        return ()
    texts = (text.as_py() for text in tasks.column("data"))
    return (_read(text) for text in texts if text is not None and _FIELDS[0] in text)


def _read(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
