"""What a queue looks like from outside: statistics, metrics, health. Reads only."""

from __future__ import annotations
