"""One task in a session with Spark's own settings, beside the recommended session, in one run.

`PYTHONPATH=jobs python -m bench.defaults`: both in turns, each begins every other round.
"""

from __future__ import annotations

import argparse
import sys
import tempfile

from bench.measure import VERBS, Progress, interleave
from bench.plan import Form, Series, Session
from bench.spark.side import SparkSide, default_settings
from tubeq_spark import local_session

__all__ = ["main"]

_WARM_UP = 4
_TARGET = 1.3


def main() -> int:
    """Measure, and print a line for each verb; returns the exit code."""
    parse = argparse.ArgumentParser(prog="bench.defaults", description=__doc__)
    parse.add_argument("--n", type=int, default=15, help="rounds (%(default)s)")
    rounds = parse.parse_args().n
    spark = local_session("tubeq-bench")
    sessions = {Session.RECOMMENDED: spark, Session.DEFAULT: default_settings(spark)}
    with tempfile.TemporaryDirectory(prefix="tubeq-bench-", ignore_cleanup_errors=True) as place:
        sides = {
            name.value: SparkSide(session, name, f"{place}/{name.value}")
            for name, session in sessions.items()
        }
        subjects = {
            name: side.subject(side.queue.create_tube("tube"), Form.MANY, 1)
            for name, side in sides.items()
        }
        series = Series(Form.MANY, 1, rounds, _WARM_UP)
        found = interleave("one task in both sessions", series, subjects, Progress(sys.stderr))
        for side in sides.values():
            side.queue.close()
    spark.stop()
    for verb in VERBS:
        times = "  ".join(
            f"{name} {of.median(verb):.3f} s ({min(of.seconds[verb]):.3f} to "
            f"{max(of.seconds[verb]):.3f})"
            for name, of in found.items()
        )
        ratio = found["default"].ratio_to(found["recommended"], verb)
        medians = found["default"].median(verb) / found["recommended"].median(verb)
        sys.stdout.write(
            f"{verb:5} n={rounds}  {times}  ratio of medians {medians:.2f}, median of each "
            f"round's ratio {ratio:.2f}, wanted at most {_TARGET}\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
