"""Names of tables for the engines: in a catalog, or by a path."""

from __future__ import annotations

__all__ = ["identifier", "path_of", "path_table"]


def identifier(*parts: str) -> str:
    """A (dotted) name, each part quoted."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


def path_table(path: str) -> str:
    """The Delta table at a path."""
    return "delta." + identifier(path)


def path_of(table: str) -> str | None:
    """The path in a name of `path_table`; `None` for a name in a catalog."""
    prefix = "delta.`"
    return table[len(prefix) : -1].replace("``", "`") if table.startswith(prefix) else None
