"""Streams into a tube, out of it, and of its changes."""

from __future__ import annotations
