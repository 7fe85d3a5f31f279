"""Parts of `tubeq enqueue`: what it reads, and the tasks that it makes of it."""

from __future__ import annotations
