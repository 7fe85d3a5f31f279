"""The `tubeq` command line; typer and rich come with the extra `cli`."""

from __future__ import annotations

import gc
import os
import signal
import sys

__all__ = ["NOT_NEEDED", "main", "run_tubeq"]

#: Packages that Arrow imports if they are installed.
NOT_NEEDED = ("numpy", "pandas")


def main() -> None:
    """Run `tubeq` with the arguments of the process, and end it."""
    # Modules are no garbage: with the usual threshold collections take a fifth of the time of a short call.
    gc.set_threshold(100_000)
    if "work" not in sys.argv:  # functions of the user may need all packages
        # Arrow takes long to import these if they are installed, and needs them for nothing that a call does.
        sys.modules.update(dict.fromkeys(NOT_NEEDED))  # type: ignore[arg-type]
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Before and after a command Ctrl-C ends the process without a traceback.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(run_tubeq(*sys.argv[1:]))


def run_tubeq(*arguments: str) -> int:
    """Run `tubeq`; returns its exit code."""
    from tubeq_spark.cli.exit_codes import ExitCode  # noqa: PLC0415  after Ctrl-C is handled
    from tubeq_spark.model.error_text import missing  # noqa: PLC0415

    try:
        from tubeq_spark.cli.app import app  # noqa: PLC0415  the extra may be missing
    except ModuleNotFoundError as error:
        sys.stderr.write(f"tubeq: {missing(error, 'cli')}\n")
        return ExitCode.BAD_USE
    try:
        app(args=arguments, prog_name="tubeq")
    except SystemExit as end:
        if isinstance(end.code, str):
            sys.stderr.write(f"tubeq: {end.code}\n")
            return ExitCode.FAILED
        return end.code if isinstance(end.code, int) else 0
    except KeyboardInterrupt:
        # typer reads the commands before it handles Ctrl-C.
        return ExitCode.INTERRUPTED
    finally:
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            # Python would try again at its end, and print an error.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
