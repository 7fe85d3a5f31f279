"""`Queue.metrics` for Prometheus; needs the extra `prometheus` (prometheus-client)."""

from __future__ import annotations

from tubeq_spark.observe.prometheus import QueueCollector, text

__all__ = ["QueueCollector", "text"]
