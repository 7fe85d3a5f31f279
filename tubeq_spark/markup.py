"""Shows values to people, escapes foreign text for HTML and for terminals, and makes small HTML tables.

Every text that `tag` has not made is escaped, so that no caller can forget it.

Payloads, names of sub-queues and hosts, and texts of errors may have characters that move the cursor, hide lines or
reverse the direction of text.
"""

from __future__ import annotations

import datetime as dt
import re
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

#: Controls (C0, DEL, C1), characters that end lines or reverse the direction of text, and surrogates.
_CONTROL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
#: The escapes of `html.escape`. Its module is not used, because it loads a table of all character names.
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400


class Age(float):
    """A duration in seconds that is shown to people as `5s`, `12m`, `3h`, `4d`."""

    __slots__ = ()

    @classmethod
    def of(cls, seconds: float | None) -> Age | None:
        """The age of so many seconds; `None` if there is none."""
        return None if seconds is None else cls(seconds)

    def __str__(self) -> str:
        for size, unit in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "m")):
            if self >= 2 * size:
                return f"{int(self / size)}{unit}"
        return f"{float(self):.0f}s"


def shown(value: object) -> str:
    """A value as people read it: numbers with separators, moments to the second in UTC, `None` as nothing."""
    if value is None:
        return ""
    if type(value) is int:
        return f"{value:,}"
    if type(value) is float:
        return f"{round(value, 3):,}"
    return f"{value:%Y-%m-%dT%H:%M:%SZ}" if isinstance(value, dt.datetime) else str(value)


def printable(text: str, keep: str = "") -> str:
    r"""A text that a terminal can show safely: ESC becomes `\x1b`, and so on.

    Args:
        text: Any text.
        keep: Control characters that stay, such as `"\n"`.
    """
    return _CONTROL.sub(lambda found: _escape_of(found[0], keep), text)


def _escape_of(character: str, keep: str) -> str:
    if character in keep:
        return character
    return character.encode("unicode_escape").decode("ascii")


def printable_json(text: str) -> str:
    r"""The same JSON value on one line; characters that control a terminal, such as C1 controls, are escaped, too."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()

    def __html__(self) -> str:
        # Templates ask for this.
        return self


def tag(name: str, /, *children: object, **attributes: str | None) -> Html:
    """An element.

    Args:
        name: Its name.
        *children: Its contents. All but `Html` is escaped, numbers get separators, `None` is empty.
        **attributes: Its attributes, with `class_` for `class`. `None` leaves an attribute out.
    """
    given = {key.rstrip("_"): value for key, value in attributes.items() if value is not None}
    start = "".join(f' {key}="{_escaped(value)}"' for key, value in given.items())
    return Html(f"<{name}{start}>{joined(children)}</{name}>")


def joined(parts: Iterable[object]) -> Html:
    """Pieces of HTML, one after the other. Other values are escaped."""
    return Html("".join(map(as_html, parts)))


def as_html(value: object) -> Html:
    """A value as HTML."""
    return value if isinstance(value, Html) else Html(_escaped(shown(value)))


def _escaped(text: str) -> str:
    return printable(text, "\n\t").translate(_ESCAPES)


def table(
    heads: Sequence[object],
    rows: Collection[Sequence[object]],
    *,
    limit: int | None = None,
    class_: str | None = None,
) -> Html:
    """A table with a row of headings, and the number of rows beyond the limit.

    Args:
        heads: The headings.
        rows: The rows, each as long as the headings.
        limit: The most rows to show; all by default.
        class_: The class of the table.
    """
    first = next(iter(rows), [None] * len(heads))
    names = [
        tag("th", name, scope="col", class_=_class_of(value))
        for name, value in zip(heads, first, strict=True)
    ]
    head = tag("thead", tag("tr", *names))
    body = tag("tbody", *[tag("tr", *map(_cell, row)) for row in islice(rows, limit)])
    shown = tag("table", head, body, class_=class_)
    if limit is None or len(rows) <= limit:
        return shown
    return joined([shown, tag("p", f"… and {len(rows) - limit:,} more")])


def _cell(value: object) -> Html:
    return tag("td", value, class_=_class_of(value))


def _class_of(value: object) -> str | None:
    """The class of the cells of a column, by one of its values: numbers stand to the right."""
    return "n" if isinstance(value, int | float) else None


def with_code(text: str) -> Html:
    """A text whose parts between backticks are code."""
    parts = text.split("`")
    return joined(tag("code", part) if place % 2 else part for place, part in enumerate(parts))


def fields(caption: object, pairs: Iterable[tuple[str, object]]) -> Html:
    """A table of names and values."""
    rows = [tag("tr", tag("th", name, scope="row"), _cell(value)) for name, value in pairs]
    return tag("table", tag("caption", caption), tag("tbody", *rows))


def plural(count: int, noun: str) -> str:
    """A number of things: `1 task`, `2 tasks`."""
    return f"{count:,} {noun}{'s' * (count != 1)}"
