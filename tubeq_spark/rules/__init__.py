"""Pure rules: states, options, numbers, order, times, payloads and their checks. No Spark."""

from __future__ import annotations
