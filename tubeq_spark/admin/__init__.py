"""Whole tubes: creates, drops and sweeps them, and keeps their tables small."""

from __future__ import annotations
