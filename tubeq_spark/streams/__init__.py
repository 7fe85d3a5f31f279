"""Streams that put tasks into a tube, process its tasks, or show its changes."""

from __future__ import annotations
