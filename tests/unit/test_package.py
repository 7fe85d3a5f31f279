"""What the package exports, though it imports it late."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import tubeq_spark


def test_package_when_a_name_is_used_gives_what_its_module_has() -> None:
    for module, names in tubeq_spark._MODULES.items():
        for name in names:
            home = importlib.import_module(f"tubeq_spark.{module}")
            assert getattr(tubeq_spark, name) is getattr(home, name)

    listed = {name for names in tubeq_spark._MODULES.values() for name in names}
    assert listed | {"__version__"} == set(tubeq_spark.__all__) <= set(dir(tubeq_spark))


def test_package_when_a_name_is_unknown_refuses_it() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Quux'"):
        tubeq_spark.Quux  # noqa: B018


def test_package_when_what_needs_no_spark_is_imported_imports_none() -> None:
    modules = "tubeq_spark.queue, tubeq_spark.programs, tubeq_spark.cli.app, tubeq_spark.testing"
    code = f"import sys, {modules}; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
