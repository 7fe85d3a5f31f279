"""Sub-queues: who holds which, and how a take shares them out."""

from __future__ import annotations
