"""Other people's text on a terminal: nothing of it controls the terminal, and JSON keeps its value."""

from __future__ import annotations

import json

import pytest

from tubeq_spark.markup import printable, printable_json


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, é, 漢字 and 👩\u200d👧", "plain, é, 漢字 and 👩\u200d👧"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\x9b2J\x7f\x00", "\\x9b2J\\x7f\\x00"),
        ("a\nb\rc\td", "a\\nb\\rc\\td"),
        ("\u202eevil\u2066", "\\u202eevil\\u2066"),
        ("half \ud800", "half \\ud800"),
    ],
)
def test_text_when_it_controls_a_terminal_has_escapes(text: str, shown: str) -> None:
    assert printable(text) == shown
    as_json = printable_json(json.dumps(text, ensure_ascii=False))
    assert json.loads(as_json) == text
    assert printable(as_json) == as_json


def test_text_when_characters_are_kept_has_no_escapes_for_them() -> None:
    assert printable("a\nb\x1b\t", "\n\t") == "a\nb\\x1b\t"
