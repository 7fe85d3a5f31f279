"""The `tubeq` command line; typer and rich come with the extra `cli`."""

from __future__ import annotations

import os
import signal
import sys
import threading

__all__ = ["main", "run_tubeq"]


def main() -> None:
    """Run `tubeq` with the arguments of the process, and end it."""
    code = run_tubeq(*sys.argv[1:])
    # From here on Ctrl-C ends the process without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(code)


def run_tubeq(*arguments: str) -> int:
    """Run `tubeq`; returns its exit code."""
    is_main = threading.current_thread() is threading.main_thread()
    is_usual = is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_usual:
        # While modules are imported, Ctrl-C ends the process without a traceback.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from tubeq_spark.cli.exit_codes import ExitCode  # noqa: PLC0415  after Ctrl-C is handled
    from tubeq_spark.cli.imports import leave_out, undisturbed  # noqa: PLC0415
    from tubeq_spark.model.error_text import missing  # noqa: PLC0415

    try:
        with undisturbed():
            from tubeq_spark.cli.app import app  # noqa: PLC0415  the extra may be missing
            from tubeq_spark.cli.call import Outside  # noqa: PLC0415
    except ModuleNotFoundError as error:
        sys.stderr.write(f"tubeq: {missing(error, 'cli')}\n")
        return ExitCode.BAD_USE
    finally:
        if is_usual:
            signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        app(args=arguments, prog_name="tubeq", obj=Outside(leave_out=leave_out))
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
