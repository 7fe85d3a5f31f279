"""Parts of `tubeq enqueue`: its sources, and the tasks that it makes from their rows."""

from __future__ import annotations
