"""Parts of `tubeq consume`: the handler it calls, the loop of batches, the table of results."""

from __future__ import annotations
