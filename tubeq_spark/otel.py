"""Traces in the payloads of tasks; needs the extra `otel` (opentelemetry-api)."""

from __future__ import annotations

from tubeq_spark.model.error_text import missing

try:
    from tubeq_spark.runtime.traces import context_of, with_trace
except ModuleNotFoundError as error:
    raise missing(error, "otel") from None

__all__ = ["context_of", "with_trace"]
