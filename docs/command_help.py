"""Puts what the programs say by `--help` into the pages, when the documentation is built.

A line `<!-- help: tubeq -->` becomes the help of `tubeq` and of each of its commands, and
`<!-- help: jobs/enqueue.py -->` that of a program. `<!-- errors -->` becomes a table of all errors.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from typer.main import get_command

from tubeq_spark.cli.app import app
from tubeq_spark.cli.exit_codes import ENDINGS

ROOT = Path(__file__).parents[1]
WIDTH = 100
_WANTED = re.compile(r"^<!-- help: (\S+) -->$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill in a page; mkdocs calls it for each."""
    filled = _WANTED.sub(lambda wanted: _help_of(wanted[1]), markdown)
    return filled.replace("<!-- errors -->", _table_of_errors())


def _table_of_errors() -> str:
    rows = [
        f"| `{ending.error.__name__}` | {ending.code.value} | {ending.meaning} | {ending.help} |"
        for ending in ENDINGS
    ]
    return "\n".join(
        ["| error | exit code | what it means | what to do |", "|---|---|---|---|", *rows]
    )


def _help_of(program: str) -> str:
    return _of_tubeq() if program == "tubeq" else _shown(_of_job(program))


def _shown(text: str) -> str:
    return f"```text\n{text.strip()}\n```"


def _of_job(path: str) -> str:
    ran = subprocess.run(  # noqa: S603  (a program of this repository)
        [sys.executable, path, "--help"],
        cwd=ROOT,
        env=os.environ | {"COLUMNS": str(WIDTH)},
        capture_output=True,
        check=True,
        text=True,
    )
    return ran.stdout


def _of_tubeq() -> str:
    group: Any = get_command(app)
    pages = []
    with group.make_context("tubeq", ["tubes"], terminal_width=WIDTH) as called:
        pages.append(f"## tubeq\n\n{_shown(group.get_help(called))}")
        for name, command in group.commands.items():
            context = command.context_class(
                command, info_name=name, parent=called, terminal_width=WIDTH
            )
            pages.append(f"## tubeq {name}\n\n{_shown(command.get_help(context))}")
    return "\n\n".join(pages)
