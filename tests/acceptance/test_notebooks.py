"""Each notebook runs from top to bottom, and its file has the outputs of such a run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import nbformat
import pytest
from matplotlib import pyplot as plt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.figure import Figure
    from pyspark.sql import SparkSession

NOTEBOOKS = sorted(Path(__file__).parents[2].joinpath("notebooks").glob("*.ipynb"))


@pytest.fixture
def figures() -> Iterator[None]:
    """Plots that nobody looks at, drawn all the same."""
    mpl.use("Agg")
    yield
    for number in plt.get_fignums():
        plt.figure(number).canvas.draw()
    plt.close("all")


def cells(path: Path, kind: str) -> list[Any]:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return [cell for cell in notebook.cells if cell.cell_type == kind]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_when_stored_has_outputs_of_one_run_and_says_what_it_shows(path: Path) -> None:
    code = cells(path, "code")
    outputs = [output for cell in code for output in cell.outputs]
    shown = [str(output) for output in outputs]

    assert cells(path, "markdown")[0].source.startswith("# ")
    assert [cell.execution_count for cell in code] == [*range(1, len(code) + 1)]
    assert {output.output_type for output in outputs} <= {
        "display_data",
        "execute_result",
        "stream",
    }
    assert {output.name for output in outputs if output.output_type == "stream"} <= {"stdout"}
    assert any("<table>" in text for text in shown)
    assert not [text for text in shown if "/home/" in text or "/root/" in text]


class Widgets:
    """Answers like `dbutils.widgets` on Databricks."""

    def __init__(self, **values: str) -> None:
        self.values = values
        self.asked: list[str] = []

    def text(self, name: str, default: str, label: str) -> None:
        """Show a field with a label, empty unless somebody has written into it."""
        assert label
        self.asked.append(name)
        self.values.setdefault(name, default)

    def get(self, name: str) -> str:
        """What is in it."""
        return self.values[name]


def run_cell(path: Path, text: str, names: dict[str, Any]) -> None:
    """Run the one cell that mentions something first."""
    source = next(cell.source for cell in cells(path, "code") if text in cell.source)
    exec(compile(source, path.name, "exec"), names)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_on_databricks_works_where_its_widget_names_a_schema(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUBEQ_LOCATION", "/data/q")
    for said in ("", "  ", "tubeq", "/Volumes/main/tubeq/files"):
        widgets = Widgets(TUBEQ_LOCATION=said)
        with pytest.raises(ValueError, match=r"catalog\.schema into the widget TUBEQ_LOCATION"):
            run_cell(path, "TUBEQ_LOCATION", {"dbutils": SimpleNamespace(widgets=widgets)})
        assert widgets.asked == ["TUBEQ_LOCATION"]
    names: dict[str, Any] = {"dbutils": SimpleNamespace(widgets=Widgets(TUBEQ_LOCATION=" a.b "))}

    run_cell(path, "TUBEQ_LOCATION", names)

    assert names["location"] == "a.b"


@pytest.mark.thorough
@pytest.mark.usefixtures("figures")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_when_run_from_top_to_bottom_works(
    path: Path, spark: SparkSession, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUBEQ_LOCATION", location)
    names: dict[str, Any] = {"spark": spark}

    for number, cell in enumerate(cells(path, "code"), start=1):
        exec(compile(cell.source, f"{path.name} [{number}]", "exec"), names)

    assert names["location"] == location
    assert names["queue"].state() == "WAITING"
    assert [shows_something(plt.figure(number)) for number in plt.get_fignums()] == [True] * (
        2 if path.stem == "04_operating" else 0
    )


def shows_something(figure: Figure) -> bool:
    """Whether a plot has bars or areas with a height, or a line of more than one point."""
    axes = figure.axes[0]
    return (
        any(bar.get_height() for bar in axes.patches)
        or any(len(area.get_paths()) for area in axes.collections)
        or any(len(line.get_xdata()) > 1 for line in axes.lines)
    )
