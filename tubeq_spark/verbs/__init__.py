"""The verbs, one file each: choose the tasks, change them by a statement, finish."""

from __future__ import annotations
