"""Whole tubes: creating and dropping them, sweeping, keeping their tables small."""

from __future__ import annotations
