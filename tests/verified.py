"""Judges the logs of each location below a directory, as tests leave them: `python -m tests.verified DIRECTORY`.

Tasks that a test has written by statements of its own, with the operation "test", are left out.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tubeq_spark import TubeqError
from tubeq_spark.storage.check import on_local_files
from tubeq_spark.storage.location import TUBES
from tubeq_spark.verify.verify import verify

#: How a violation by a statement of a test begins.
_FORGED = "test: "


def main(directory: str) -> int:
    """Judge them; 1 if one has a violation."""
    commits = violations = 0
    registries = sorted(Path(directory).rglob(f"{TUBES}/_delta_log"))
    places = [registry.parents[1] for registry in registries]
    for place in places:
        opened = on_local_files(str(place))
        if opened is None:
            continue
        try:
            report = verify(opened)
        except (TubeqError, OSError) as error:
            print(f"{place}: {error!r}")
            continue
        commits += report.commits
        found = [each for each in report.violations if not each.text.startswith(_FORGED)]
        violations += len(found)
        for violation in found[:5]:
            print(f"{place}: {violation}")
    print(f"{len(places)} locations, {commits} commits: {violations} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
