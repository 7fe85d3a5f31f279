"""What the package exports, though it imports it late."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import tubeq_spark


def test_package_when_a_name_is_used_gives_what_its_module_has() -> None:
    for module, names in tubeq_spark._MODULES.items():
        for name in names:
            home = importlib.import_module(f"tubeq_spark.{module}")
            assert getattr(tubeq_spark, name) is getattr(home, name)

    assert set(tubeq_spark.__all__) <= set(dir(tubeq_spark))


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


def test_package_when_a_name_is_unknown_refuses_it() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Quux'"):
        tubeq_spark.Quux  # noqa: B018


def test_package_when_what_needs_no_spark_is_imported_imports_none() -> None:
    modules = "tubeq_spark.queue, tubeq_spark.programs, tubeq_spark.cli.app, tubeq_spark.testing"
    code = f"import sys, {modules}; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
