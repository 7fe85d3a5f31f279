"""The program `tubeq sweeper`."""

from __future__ import annotations
