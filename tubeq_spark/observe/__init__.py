"""The state of a queue for operators: statistics, metrics, health. Reads only."""

from __future__ import annotations
