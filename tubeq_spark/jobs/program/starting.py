"""Starts a program whose packages may be missing, with one clear sentence then; ends any program."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

from tubeq_spark.programs import ExitCode, how_to_install

if TYPE_CHECKING:
    from collections.abc import Sequence


def start(command: str, extra: str, argv: Sequence[str] | None) -> int:
    """Run a program; returns its exit code.

    Args:
        command: The module whose `main` it is.
        extra: What brings its packages.
        argv: Its arguments; those of the process if not given.
    """
    try:
        module = importlib.import_module(command)
    except ModuleNotFoundError as exc:
        package = (exc.name or "").partition(".")[0]
        sys.stderr.write(f"{package} is not installed: {how_to_install(extra)}\n")
        return ExitCode.BAD_USE
    code: int = module.main(argv)
    return code


def end(code: int) -> None:
    """End the process with an exit code, and return where it is 0.

    On Databricks `sys.exit(0)`, too, is an exception that fails the run.
    """
    if code:
        sys.exit(code)
