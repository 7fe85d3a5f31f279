"""Parts of `tubeq sweeper`: its command line, and the passes it makes."""

from __future__ import annotations
