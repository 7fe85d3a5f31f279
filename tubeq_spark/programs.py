"""What programs around a queue share: their settings, a clock of Spark's, a sentence for an error.

- `read_defaults` reads `tubeq.toml` and the environment, as `tubeq` and the programs of `jobs/` do;
- `start_ticking` starts a streaming query that calls a function at each tick, on a session of which
  `is_classic` is true (a Spark Connect server runs it in a process of its own);
- `reason_of` says in one line what an error is, of Spark's with its cause.
"""

from __future__ import annotations

from tubeq_spark.cli.settings_file import Defaults, read_defaults
from tubeq_spark.rules.error_text import reason_of
from tubeq_spark.storage.spark.jvm import is_classic
from tubeq_spark.streams.ticks import start_ticking

__all__ = ["Defaults", "is_classic", "read_defaults", "reason_of", "start_ticking"]
