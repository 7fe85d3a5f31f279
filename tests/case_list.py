"""Writes the list of the tested cases, which is `CASES.md`.

Run `python -m tests.case_list` after a case has got a test, or a test another name.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

CASES = Path(__file__).with_name("CASES.md")
TESTS = Path(__file__).with_name("acceptance")
_SAID = re.compile(r"Cases? ((?:(?:\d{3}-|X-[A-H]|U)\d+(?:, | and )?)+)")
_CASE = re.compile(r"(\d{3}-|X-[A-H]|U)(\d+)")
_INTRO = """\
# The cases

What the queue does is compared, case by case, with the reference: tarantool/queue 1.5.0. A number such
as 010-4 is the fourth case of `t/010-fifo.t` there; X-A to X-H are what its suite leaves open, observed by
running it; U1 to U3 came after 1.5.0. A case that is tied to the inside of Tarantool, or to its leader and
replicas, has no line. This list is checked against the docstrings of the tests.

| Case | Test |
|---|---|
"""


def cases_of(docstring: str | None) -> list[str]:
    """The cases that a test's docstring names first."""
    said = _SAID.match(docstring or "")
    return [] if said is None else ["".join(case) for case in _CASE.findall(said[1])]


def cases_with_tests() -> dict[str, list[str]]:
    """Each case that is tested, in order, with its tests."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(TESTS.glob("test_case_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for case in cases_of(ast.get_docstring(node)):
                    found[case].append(f"{path.name}::{node.name}")
    return dict(sorted(found.items(), key=lambda item: _order(item[0])))


def case_list() -> str:
    """What the file holds."""
    lines = (
        f"| {case} | {'<br>'.join(f'`{test}`' for test in tests)} |"
        for case, tests in cases_with_tests().items()
    )
    return _INTRO + "\n".join(lines) + "\n"


def _order(case: str) -> tuple[str, int]:
    found = _CASE.fullmatch(case)
    assert found is not None
    # Those of the suite, then those that it leaves open, then the later ones.
    return {"U": "Y"}.get(found[1], found[1]), int(found[2])


if __name__ == "__main__":
    CASES.write_text(case_list(), encoding="utf-8")
