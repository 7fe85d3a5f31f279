"""HTML of values that other people have chosen."""

from __future__ import annotations

import pytest

from tubeq_spark.markup import Html, fields, joined, table, tag

SCRIPT = "<script>alert('1')</script>"


def test_tag_given_text_and_attributes_escapes_them() -> None:
    made = tag("a", SCRIPT, href='"><script>', class_="x", hidden=None, open=False, required=True)

    assert made == (
        '<a href="&quot;&gt;&lt;script&gt;" class="x" required>'
        "&lt;script&gt;alert(&#x27;1&#x27;)&lt;/script&gt;</a>"
    )


def test_tag_given_html_keeps_it_and_joined_escapes_what_is_none() -> None:
    assert tag("p", tag("b", 1234567), None, 0.5, True) == "<p><b>1,234,567</b>0.5True</p>"
    assert joined(["<", Html("<br>"), tag("input", name="x")]) == '&lt;<br><input name="x">'


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("\x1b[2J\x9b31m", r"\x1b[2J\x9b31m"),
        ("a\rb\x08\x7f", r"a\rb\x08\x7f"),
        ("\u202egpj.exe\u2066", r"\u202egpj.exe\u2066"),
        ("half \ud800", r"half \ud800"),
        ("tab\tline\nß 🦀 日本", "tab\tline\nß 🦀 日本"),
    ],
)
def test_tag_given_commands_of_terminals_shows_them_as_escapes(given: str, shown: str) -> None:
    assert tag("i", given) == f"<i>{shown}</i>"
    assert tag("i", title=given) == f'<i title="{shown}"></i>'


def test_table_given_more_rows_than_its_limit_says_how_many_are_left_out() -> None:
    made = table(["<", "n"], [["<", 1], ["b", 2], ["c", 3]], limit=1)

    assert made.count("<tr>") == 2
    assert '<th scope="col">&lt;</th>' in made
    assert '<td>&lt;</td><td class="n">1</td>' in made
    assert made.endswith("<p>… and 2 more</p>")
    assert "more" not in table(["a"], [["b"]], limit=1)


def test_fields_given_pairs_are_rows_below_a_caption() -> None:
    made = fields("<b>", [("a", "<"), ("n", None)])

    assert made.startswith("<table><caption>&lt;b&gt;</caption><tbody><tr>")
    assert '<th scope="row">a</th><td>&lt;</td>' in made
