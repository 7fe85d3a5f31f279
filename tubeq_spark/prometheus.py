"""`Queue.metrics` for Prometheus; needs the extra `prometheus` (prometheus-client)."""

from __future__ import annotations

from tubeq_spark.model.error_text import missing

try:
    from tubeq_spark.observe.prometheus import QueueCollector, text
except ModuleNotFoundError as error:
    raise missing(error, "prometheus") from None

__all__ = ["QueueCollector", "text"]
