"""The common parts of the programs of this folder: options, start, run on a queue, and stop."""

from __future__ import annotations
