"""The documented line of spark-submit that needs no cluster runs unchanged with `conf/`, and prints little."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pages import PAGES, ROOT, examples
from tests.programs import environment
from tubeq_spark import Queue, delta_package

if TYPE_CHECKING:
    from tests.pages import Example

pytestmark = [pytest.mark.thorough, pytest.mark.processes, pytest.mark.slow]

#: Of Spark's start, the jars, and the end: without conf/ there are a thousand.
MOST_LINES = 120


def submits() -> list[Example]:
    """The examples that need no cluster and no server."""
    found = [example for name in PAGES for example in examples(name) if example.kind == "sh"]
    return [each for each in found if "spark-submit" in each.text and "./nightly" in each.text]


def test_documented_submit_when_run_as_it_stands_does_its_work_and_says_little(
    tmp_path: Path,
) -> None:
    [example] = submits()
    if delta_package() not in example.text:
        pytest.skip("the line is for another version of Spark")
    for name in ("conf", "jobs"):
        (tmp_path / name).symlink_to(ROOT / name)
    with Queue(None, tmp_path / "nightly", engine="native") as queue:
        queue.create_tube("letters", "fifottl").put("x", ttl=0)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    result = subprocess.run(
        ["bash", "-c", example.text],
        cwd=tmp_path,
        env=environment(PATH=path, PYSPARK_PYTHON=sys.executable),
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )

    assert result.returncode == 0, result.stderr
    assert "letters" in result.stdout
    assert len(result.stderr.splitlines()) < MOST_LINES, result.stderr
    with Queue(None, tmp_path / "nightly", engine="native") as queue:
        assert queue.statistics("letters")["tasks"]["done"] == 1
