"""The `tubeq` command line; typer and rich come with the extra `cli`."""

from __future__ import annotations

import os
import sys
import warnings

from tubeq_spark.cli.imports import NOT_NEEDED, leave_out, undisturbed
from tubeq_spark.model.error_text import missing

__all__ = ["main"]

#: The variable that a shell sets when it asks for completions of a command line.
_COMPLETING = "_TUBEQ_COMPLETE"


def main() -> None:
    """Run `tubeq` with the arguments of the process, and end it."""
    try:
        with undisturbed():
            from tubeq_spark.cli.app import app  # noqa: PLC0415  the extra may be missing
            from tubeq_spark.cli.call import Outside  # noqa: PLC0415
    except ModuleNotFoundError as error:
        sys.stderr.write(f"tubeq: {missing(error, 'cli')}\n")
        sys.exit(2)
    warnings.showwarning = _warn
    if _COMPLETING in os.environ:
        leave_out(*NOT_NEEDED)  # as a call without Spark does, and it waits for less
    app(prog_name="tubeq", obj=Outside(leave_out=leave_out))


def _warn(message: Warning | str, *_where: object, **_how: object) -> None:
    from tubeq_spark.cli.call import NAME  # noqa: PLC0415  as above
    from tubeq_spark.cli.program import note, note_json  # noqa: PLC0415

    if "--json" in sys.argv:
        note_json({"note": str(message)})
    else:
        note(NAME, str(message))
