"""The package exports the same names to programs and to type checkers, and our programs use no others."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tubeq_spark

if TYPE_CHECKING:
    from collections.abc import Iterable


def test_package_when_a_name_is_used_gives_what_its_module_has() -> None:
    for module, names in tubeq_spark._MODULES.items():
        for name in names:
            home = importlib.import_module(f"tubeq_spark.{module}")
            assert getattr(tubeq_spark, name) is getattr(home, name)

    assert set(tubeq_spark.__all__) <= set(dir(tubeq_spark))
    with pytest.raises(AttributeError, match="no attribute 'Quux'"):
        tubeq_spark.Quux  # noqa: B018


def test_package_when_a_type_checker_reads_it_exports_the_same_names_of_the_same_modules() -> None:
    code = ast.parse(Path(tubeq_spark.__file__).read_text(encoding="utf-8"))
    shown = {
        (found.module, name.name)
        for block in code.body
        if isinstance(block, ast.If)
        for found in block.body
        if isinstance(found, ast.ImportFrom)
        for name in found.names
        if name.asname == name.name
    }
    assert shown == {
        (f"tubeq_spark.{module}", name)
        for module, names in tubeq_spark._MODULES.items()
        for name in names
    }


def test_package_when_what_needs_no_spark_is_imported_imports_none() -> None:
    modules = "tubeq_spark.queue, tubeq_spark.programs, tubeq_spark.cli.app, tubeq_spark.testing"
    code = f"import sys, {modules}; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# -- what programs import ----------------------------------------------------------------------------


ROOT = Path(__file__).parents[2]
#: What README and docs speak of; the import rules allow programs these, and no folder.
PUBLIC = (
    "tubeq_spark",
    "tubeq_spark.errors",
    "tubeq_spark.otel",
    "tubeq_spark.programs",
    "tubeq_spark.prometheus",
    "tubeq_spark.tarantool15",
    "tubeq_spark.testing",
)


def imported(file: Path) -> list[tuple[str, str]]:
    """What a file imports from the package: modules and names."""
    return [
        (node.module, alias.name)
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tubeq_spark")
        for alias in node.names
    ]


def not_public(files: Iterable[Path]) -> dict[str, list[str]]:
    """What these files import that is not public."""
    found = {
        str(file.relative_to(ROOT)): [
            f"{module}.{name}"
            for module, name in imported(file)
            if module not in PUBLIC or name not in importlib.import_module(module).__all__
        ]
        for file in files
    }
    return {file: names for file, names in found.items() if names}


def test_programs_when_they_import_names_import_public_ones_only() -> None:
    assert not_public((ROOT / "jobs").rglob("*.py")) == {}
    assert any((ROOT / "jobs").rglob("*.py"))


def test_cases_when_they_import_names_import_public_ones_with_two_exceptions() -> None:
    cases = ROOT / "tests" / "acceptance"

    assert not_public(cases.glob("test_case_*.py")) == {
        # All types, also those that come later.
        "tests/acceptance/test_case_001_drivers.py": ["tubeq_spark.model.tube_types.BUILT_IN"],
        # Lowers a limit that takes more tubes than a test can have.
        "tests/acceptance/test_case_x_cd_counts.py": ["tubeq_spark.storage.tables.counts"],
    }


@pytest.mark.parametrize("module", PUBLIC)
def test_public_module_when_all_of_it_is_imported_has_every_name(module: str) -> None:
    found = importlib.import_module(module)
    assert [name for name in found.__all__ if not hasattr(found, name)] == []
