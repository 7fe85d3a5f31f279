"""Ready-made programs around a queue: `tubeq enqueue`, `consume` and `sweeper`.

The scripts of the same names in the folder `jobs/` of the repository run them by spark-submit.
"""

from __future__ import annotations
