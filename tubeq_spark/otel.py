"""The trace in which a task was put; needs the extra `otel` (opentelemetry-api)."""

from __future__ import annotations

from tubeq_spark.model.error_text import missing

try:
    from tubeq_spark.runtime.traces import context_of
except ModuleNotFoundError as error:
    raise missing(error, "otel") from None

__all__ = ["context_of"]
