"""README shows what was run: its Python runs here, its diagram is the table's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from tubeq_spark import lifecycle

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import SparkSession

README = Path(__file__).parents[2].joinpath("README.md").read_text(encoding="utf-8")


def test_readme_python_when_run_in_order_prints_what_it_says(
    spark: SparkSession, location: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = "\n".join(re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL))
    names: dict[str, object] = {}

    exec(code.replace('"/data/q', f'"{location}'), names)

    out = capsys.readouterr().out.splitlines()
    put, batch, left, two_hosts, next_page, work, told, *seen, old = out
    assert put == "1000000"
    assert batch == "100000 1000"
    assert "'delayed': 1000," in left
    assert "'total': 901000" in left
    assert (two_hosts, next_page) == ("['/1', '/2'] /a", "/3")
    assert (work, told) == ("3 tasks", "[('ack', 3), ('put', 3), ('take', 3)]")
    assert seen == [
        "0 ready, 2 taken, 0 conflicts",
        "[]",
        'tubeq_tasks{state="taken",tube="hosts"} 2.0',
        "take 1",
    ]
    assert old == "('mail', 'taken', 'to ann') ['sent'] 127"


def test_readme_diagram_when_compared_is_that_of_the_transitions() -> None:
    shown = re.findall(r"```mermaid\n(.*?)\n```", README, flags=re.DOTALL)

    assert shown == [lifecycle.diagram()]
