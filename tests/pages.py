"""Reads the examples of README and of the pages in `docs`.

- A `python` block is run; what it prints stands in the `text` block that follows it. With
  `title="name.py"` it is a file instead, which later examples find.
- The commands of a `console` block, after `$ `, are run, too; what they print follows each.
- What cannot run has a line `<!-- not run here: reason -->` before it, and must compile.
- A `sh` block is for readers; it must be a shell's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
#: By their names.
PAGES = {
    str(path.relative_to(ROOT)): path for path in (ROOT / "README.md", *sorted(DOCS.rglob("*.md")))
}

_BLOCK = re.compile(
    r"^(?:<!-- not run here: (?P<reason>[^\n]+) -->\n)?"
    r"^```(?P<kind>\w*)(?: title=\"(?P<title>[^\n\"]+)\")?\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_OUTPUT = re.compile(r"\s*^```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Example:
    """A block of a page.

    Attributes:
        kind: Its language.
        text: What stands in it.
        line: Where, in the page.
        title: The file that it is, if it is one.
        reason: Why it is not run, if it is not.
        output: What stands below a `python` block.
    """

    kind: str
    text: str
    line: int
    title: str | None
    reason: str | None
    output: str


def examples(name: str) -> list[Example]:
    """The blocks of a page, in their order."""
    page = PAGES[name].read_text(encoding="utf-8")
    found = []
    for block in _BLOCK.finditer(page):
        below = _OUTPUT.match(page, block.end()) if block["kind"] == "python" else None
        found.append(
            Example(
                kind=block["kind"],
                text=block["text"],
                line=page.count("\n", 0, block.start("kind")) + 1,
                title=block["title"],
                reason=block["reason"],
                output="" if below is None else below[1],
            )
        )
    return found


def commands(console: str) -> list[tuple[str, str]]:
    """The commands of a `console` block, each with what it prints."""
    parts = re.split(r"^\$ (.*)\n", console, flags=re.MULTILINE)
    assert parts[0] == ""
    return list(zip(parts[1::2], parts[2::2], strict=True))
