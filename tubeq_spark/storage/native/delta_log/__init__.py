"""The log of a Delta table on local files, read and written in this process."""

from __future__ import annotations
