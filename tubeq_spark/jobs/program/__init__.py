"""What the programs of this folder share: options, how they start, run on a queue, and stop."""

from __future__ import annotations
