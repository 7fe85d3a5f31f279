"""The log of a Delta table on local files, read and written without the library."""

from __future__ import annotations
