"""The `tubeq` command line; typer and rich come with the extra `cli`."""

from __future__ import annotations

import gc
import sys
import warnings

__all__ = ["main"]


def main() -> None:
    """Run `tubeq` with the arguments of the process, and end it."""
    # Modules are no garbage: to look for some among them, now and at the end, is a fifth of a call.
    gc.disable()
    try:
        from tubeq_spark.cli.app import app  # noqa: PLC0415  the extra may be missing
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        sys.stderr.write(f"tubeq: {package} is not installed: pip install 'tubeq-spark[cli]'\n")
        sys.exit(2)
    gc.freeze()
    gc.enable()
    warnings.showwarning = _warn
    app(prog_name="tubeq")


def _warn(message: Warning | str, *_where: object, **_how: object) -> None:
    sys.stderr.write(f"tubeq: {message}\n")
