"""What `make test-compat` chooses is there: it runs in an environment where nobody looks at each change."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CHOSEN = (ROOT / "tests" / "compat.txt").read_text(encoding="utf-8").splitlines()


def test_choice_for_old_sparks_when_read_has_no_line_twice() -> None:
    assert len(set(CHOSEN)) == len(CHOSEN) > 0


def test_choice_for_old_sparks_when_read_names_tests_that_are_collected() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--collect-only"]

    found = subprocess.run(
        [*command, "--engine", "spark", "@tests/compat.txt"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert found.returncode == 0, found.stdout
    assert f"\n{len(CHOSEN)} tests collected" in found.stdout


def test_pairs_that_readme_tells_of_when_read_are_those_that_can_be_run() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    pairs = re.search(r"^PAIRS \?= (.*)$", makefile, re.MULTILINE)

    assert pairs is not None
    told = re.findall(r"^\| (4\.\d\.\d) \| (4\.\d\.\d) \|", readme, re.MULTILINE)
    assert {"-".join(pair) for pair in told} == {"4.2.0-4.4.0", *pairs[1].split()}
