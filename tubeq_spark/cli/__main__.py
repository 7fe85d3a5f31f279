"""`python -m tubeq_spark.cli`, for when the script `tubeq` is not on the path."""

from __future__ import annotations

from tubeq_spark.cli import main

if __name__ == "__main__":
    main()
