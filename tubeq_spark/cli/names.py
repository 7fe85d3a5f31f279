"""Completes names of tubes in a shell, after `tubeq --install-completion`."""

from __future__ import annotations

from typing import Annotated

import typer

from tubeq_spark.cli.exit_codes import ExitCode
from tubeq_spark.cli.imports import undisturbed
from tubeq_spark.cli.settings_file import read_defaults


def names(ctx: typer.Context, incomplete: str) -> list[str]:
    """The names that begin with `incomplete`; none if that needs Spark, or there is no queue."""
    given = ctx.find_root().params
    try:
        settings = read_defaults(
            given.get("config"), location=given.get("location"), engine=given.get("engine")
        )
        with undisturbed():
            from tubeq_spark.queue import Queue  # noqa: PLC0415  as in call
            from tubeq_spark.storage.location import local_directory  # noqa: PLC0415

        location = settings.queue_location()
        if local_directory(location) is None or settings.needs_spark():
            return []
        with Queue(None, location, engine="native", create=False) as queue:
            return [name for name in queue.tubes() if name.startswith(incomplete)]
    except Exception:  # noqa: BLE001  a shell shows no error while a line is typed
        return []


def fail_if_strict(failures: int, *, strict: bool) -> None:
    """End a call with `--strict` if tasks failed."""
    if strict and failures:
        raise typer.Exit(ExitCode.TASKS_FAILED)


#: The option of the commands that process tasks.
Strict = Annotated[
    bool, typer.Option("--strict", help="Exit with 4 if tasks failed or were buried")
]
#: The option of the commands that ask first.
Yes = Annotated[bool, typer.Option("--yes", help="Do it without asking")]
#: The option of the commands for tasks of a condition.
Where = Annotated[
    str | None,
    typer.Option(metavar="SQL", help='Only tasks of this condition, such as "attempts > 3"'),
]
#: The argument of commands for one tube.
TubeName = Annotated[str, typer.Argument(autocompletion=names)]
#: The option of the commands that take from given sub-queues.
TakenUtubes = Annotated[
    list[str] | None,
    typer.Option(
        "--utube",
        metavar="NAME",
        help="Take only from this sub-queue; may be repeated",
        show_default=False,
    ),
]
