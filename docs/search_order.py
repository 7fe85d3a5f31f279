"""What the search of the documentation finds first, which version the pages are of, and where their sources are."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

#: Names the address of the repository, for links to it and to the source of each page.
REPOSITORY = "TUBEQ_REPOSITORY"
#: Reasons are for those who ask for them; the same words stand in pages that say what to do.
LAST = ("decisions/", "measurements.md")


def on_config(config: Any) -> None:
    """Put the version below each page, and link the repository that is named; mkdocs calls it once."""
    project = Path(config.config_file_path).with_name("pyproject.toml")
    version = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["version"]
    config.copyright = f"tubeq_spark {version}"
    repository = os.environ.get(REPOSITORY, "").rstrip("/")
    if repository:
        config.repo_url = repository
        config.repo_name = repository.rpartition("/")[2]
        config.edit_uri = f"{repository}/edit/main/docs/"


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Have the search show what answers a question before what explains the answer."""
    if page.file.src_uri.startswith(LAST):
        page.meta["search"] = {"boost": 0.25}
    return markdown
