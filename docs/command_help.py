"""Puts what the programs say by `--help` into the pages, when the documentation is built.

A line `<!-- help: tubeq -->` becomes the help of `tubeq` and of each of its commands, and
`<!-- help: bench -->` that of a module that is a program.
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

ROOT = Path(__file__).parents[1]
WIDTH = 100
_WANTED = re.compile(r"^<!-- help: (\S+) -->$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill in a page; mkdocs calls it for each."""
    return _WANTED.sub(lambda wanted: _help_of(wanted[1]), markdown)


def _help_of(program: str) -> str:
    return _of_tubeq() if program == "tubeq" else _shown(_of_program(sys.executable, "-m", program))


def _shown(text: str) -> str:
    return f"```text\n{text.strip()}\n```"


def _of_program(*words: str) -> str:
    ran = subprocess.run(  # noqa: S603  (a program of this repository)
        [*words, "--help"],
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
        for name in group.list_commands(called):
            command = group.get_command(called, name)
            context = command.context_class(
                command, info_name=name, parent=called, terminal_width=WIDTH
            )
            pages.append(f"## tubeq {name}\n\n{_shown(command.get_help(context))}")
    return "\n\n".join(pages)
