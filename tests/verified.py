"""Judges the logs of every location below a directory, such as those that a run of the tests has left: `python -m tests.verified DIRECTORY`.

Locations whose paths have one of the words of `FORGED` are left out: their tests damage or forge logs.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tubeq_spark import TubeqError
from tubeq_spark.config import QueueConfig
from tubeq_spark.storage.check import on_local_files
from tubeq_spark.storage.location import TUBES
from tubeq_spark.verify.verify import verify

#: Words in the names of directories of tests that damage or forge logs.
FORGED = ("planted",)


def main(directory: str) -> int:
    """Judge them; 1 if one has a violation."""
    commits = violations = 0
    registries = sorted(Path(directory).rglob(f"{TUBES}/_delta_log"))
    places = [registry.parents[1] for registry in registries]
    for place in places:
        if any(word in str(place) for word in FORGED):
            continue
        opened = on_local_files(str(place), QueueConfig())
        if opened is None:
            continue
        try:
            report = verify(opened)
        except (TubeqError, OSError) as error:
            print(f"{place}: {error!r}")
            continue
        commits += report.commits
        violations += len(report.violations)
        for found in report.violations[:5]:
            print(f"{place}: {found}")
    print(f"{len(places)} locations, {commits} commits: {violations} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
