"""Storage on Spark and Delta: the only place that speaks SQL."""

from __future__ import annotations
