"""Adds the links to the metadata of the wheel, from the address of the repository in TUBEQ_REPOSITORY; hatchling calls it."""

from __future__ import annotations

import os
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class Links(MetadataHookInterface):
    """The links; without an address there are none."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add `urls`, which pyproject.toml declares as dynamic."""
        repository = os.environ.get("TUBEQ_REPOSITORY", "").rstrip("/")
        if repository:
            metadata["urls"] = {
                "Repository": repository,
                "Documentation": f"{repository}/tree/main/docs",
                "Changelog": f"{repository}/blob/main/CHANGELOG.md",
                "Issues": f"{repository}/issues",
            }
