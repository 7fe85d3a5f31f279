"""What `tubeq consume` does. The script `jobs/consume.py` of the repository runs it by spark-submit."""

from __future__ import annotations
