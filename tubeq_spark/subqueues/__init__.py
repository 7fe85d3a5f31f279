"""Sub-queues: which take holds which, and how a take distributes them."""

from __future__ import annotations
