"""Parts of `jobs/sweeper.py`: its command line, and the passes it makes."""

from __future__ import annotations
