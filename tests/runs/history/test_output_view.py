"""An output as text, tables and JSON: where its parts are, with which marks, and how little of a huge one."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any

import pytest
from django.template.loader import render_to_string
from hypothesis import given

from runs.history import json_lines
from runs.history.json_lines import Mark
from runs.history.output_view import (
    MAX_COLUMNS,
    MAX_LINES,
    MAX_ROWS,
    MAX_VALUES,
    TextLine,
    View,
    parse_view,
    view_output,
)
from tests.runs.history.test_json_lines import ANY_JSON, list_parts

LONG = "Εφαρμοστέο είναι το ελληνικό δίκαιο (قانون اليونان)."
RISKS = [
    {"clause": "1.1", "level": "low", "score": 1, "quote": LONG, "reason": "ok"},
    {
        "clause": "2.1",
        "level": "high",
        "score": 5,
        "quote": "يتحمل البائع المسؤولية الكاملة وغير المحدودة",
        "reason": "",
    },
]
OUTPUT = {"party": "seller", "text": "one\n\nthree", "tags": ["a", "b"], "empty": [], "risks": RISKS}


def mark(pointer: str | None, id: str = "i0", severity: str = "low") -> Mark:
    return Mark(severity, "Title", id, pointer, 1)


def draw(line: TextLine) -> str:
    """A text line as ``label| key value``; a marked value in square brackets."""
    label = line["label"]["text"] if "label" in line else ""
    fields = ""
    for one in line.get("fields", ()):
        text = f"[{one['text']}]" if "is_marked" in one else one["text"]
        fields += f"{one.get('separator', '')}{one['key']} {text}" if "key" in one else one.get("separator", "") + text
    return f"{'.' * line['depth']}{label}| {fields}".rstrip()


def render(view: dict[str, Any]) -> str:
    return render_to_string("runs/output.html", {"output": view})


class TestText:
    def test_short_fields_share_lines_and_texts_keep_theirs(self) -> None:
        view = view_output(OUTPUT, [mark("/risks/1/score"), mark("/risks/0/clause", "i1"), mark("/party/x", "i2")])
        assert [draw(line) for line in view["lines"]] == [
            *("party| seller", "text| one", "|", "| three", "tags| a, b", "empty| []", "risks|"),
            *(".1.1| level low  score 1", f".quote| {LONG}", ".reason| ok"),
            *(".2.1| level high  score [5]", f".quote| {RISKS[1]['quote']}", '.reason| ""'),
        ]
        first, *_ = (line for line in view["lines"] if line.get("starts"))
        assert first["is_head"] and first["label"]["is_marked"] and first["label"]["text"] == "1.1"
        assert [number for number, line in enumerate(view["lines"], 1) if "marks" in line] == [1, 8, 11]
        assert view["anchors"] == {"i0": "i0-at", "i1": "i1-at", "i2": "i2-at"}

    def test_a_single_list_needs_no_heading_and_values_have_their_direction(self) -> None:
        view = view_output({"risks": RISKS}, [mark("/risks")])
        first = view["lines"][0]
        assert first["depth"] == 0 and first["marks"] and first["label"]["text"] == "1.1"
        directions = {one["text"].direction for line in view["lines"] for one in line["fields"] if one["text"]}
        assert directions == {"", "ltr", "rtl"}

    @pytest.mark.parametrize(
        ("value", "lines"),
        [
            ("a\tb\r\nc", ["| a   b", "| c"]),
            (None, ["| null"]),
            ([], ["| []"]),
            ([1, "x"], ["1.| 1", "2.| x"]),
            ([[1, 2], {"a": 1}], ["1.| 1, 2", "2.| a 1"]),
            ([{"id": 1}, {"id": 1}], ["1.| id 1", "2.| id 1"]),
            (
                {"a": "four words share lines", "b": "but five have their own"},
                ["a| four words share lines", "b| but five have their own"],
            ),
            (
                {"a": {"b": {"c": {"d": {"e": {"f": {"g": 1}}}}}}},
                [*("a|", ".b|", "..c|", "...d|", "....e|"), '.....f| {"g": 1}'],
            ),
        ],
    )
    def test_shapes(self, value: Any, lines: list[str]) -> None:
        assert [draw(line) for line in view_output(value)["lines"]] == lines

    @given(ANY_JSON)
    def test_every_part_is_there_and_can_be_marked(self, value: Any) -> None:
        pointers = {pointer for pointer, _ in list_parts(value)}
        for name in View:
            view = view_output(value, [mark(pointer, pointer) for pointer in pointers], view=name)
            assert not view["is_cut"] and view["anchors"].keys() == pointers


class TestTable:
    def test_lists_of_objects_are_tables_and_the_other_fields_one_before_them(self) -> None:
        view = view_output(OUTPUT, view=View.TABLE)
        fields, risks = view["tables"]
        assert [row["cells"][0]["text"] for row in fields["rows"]] == ["party", "text", "tags", "empty"]
        assert risks["columns"] == ["clause", "level", "score", "quote", "reason"]
        assert (risks["title"], len(risks["rows"]), risks["rows"][0]["cells"][2]["is_number"]) == ("risks", 2, True)

    @pytest.mark.parametrize(
        ("pointer", "spot"),
        [
            ("/1/a", (1, 0)),
            ("/0/b", (0, 1)),  # missing there
            ("/1/b/0/deep", (1, 1)),
            ("/1", (1, None)),
            ("/1/c", (1, None)),
            ("/7", None),
        ],
    )
    def test_marks_stand_in_their_cell_row_or_table(self, pointer: str, spot: tuple[int, int | None] | None) -> None:
        (table,) = view_output([{"a": 1}, {"a": 2, "b": [{}]}], [mark(pointer)], view=View.TABLE)["tables"]
        if spot is None:
            assert "marks" in table
            return
        row = table["rows"][spot[0]]
        assert "marks" in (row if spot[1] is None else row["cells"][spot[1]])

    @pytest.mark.parametrize("value", [1, "x", [], [1], [{}], {"a": [1]}, [{"a": [1], "b": {"c": 1}}]])
    def test_what_has_no_list_of_objects_has_no_table(self, value: Any) -> None:
        view = view_output(value, view=View.TABLE)
        assert view["view"] is View.TEXT and View.TABLE not in [name for name, _, _ in view["tabs"]]


def nest(depth: int) -> Any:
    value: Any = "the innermost"
    for level in range(depth):
        value = {"level": value} if level % 2 else [value]
    return value


HOSTILE = '<script>alert(1)</script></bdi></details>\u202e\0\x1b[31m{{ 7 }}<a href="javascript:alert(1)">'
HUGE: dict[str, Any] = {
    "objects of 5 MB": [{"id": n, "name": f"n{n}", "text": "word " * 20} for n in range(40_000)],
    "100,000 items": list(range(100_000)),
    "100,000 keys": {f"k{n}": n for n in range(100_000)},
    "one line": {"text": "x" * 1_000_000},
    "lines": "\n" * 1_000_000,
    "columns": [{f"c{n}": n for n in range(3_000)}] * 300,
    "5,000 levels": nest(5_000),
}


@pytest.mark.parametrize("view", View)
class TestBounds:
    @pytest.mark.parametrize("name", HUGE)
    def test_a_huge_output_is_bounded_and_says_what_is_left_out(self, name: str, view: View) -> None:
        shown = view_output(HUGE[name], view=view, download_url="/all")
        lines = shown.get("lines", ())
        assert len(lines) <= MAX_LINES
        assert len(shown["json"].lines if "json" in shown else ()) <= json_lines.MAX_LINES
        assert sum(len(line.get("fields", ())) for line in lines) <= MAX_VALUES + 100
        assert all(
            len(table["rows"]) <= MAX_ROWS and len(table["columns"]) <= MAX_COLUMNS for table in shown.get("tables", ())
        )
        html = render(shown)
        assert len(html) < 250_000
        if name != "5,000 levels" or view is View.JSON:
            assert shown["is_cut"] and 'href="/all"' in html and "data-copies" not in html

    @pytest.mark.parametrize("value", [{HOSTILE: HOSTILE}, [{HOSTILE: HOSTILE, "a": [HOSTILE]}], HOSTILE, nest(100)])
    def test_a_hostile_output_is_inert(self, value: Any, view: View) -> None:
        html = render(view_output(value, [mark(f"/{HOSTILE.replace('/', '~1')}")], view=view))
        assert not re.search("<script|<a href=.javascript|[\u202e\0\x1b]", html)
        assert html.startswith('<div class="output"') and "hx-disable>" in html.partition("\n")[0]
        for tag in ("details", "div", "bdi", "span", "table"):
            assert html.count(f"<{tag}") == html.count(f"</{tag}>")


class TestPage:
    @pytest.mark.parametrize("view", View)
    def test_badges_have_the_same_id_in_every_view(self, view: View) -> None:
        shown = view_output({"risks": RISKS}, [mark("/risks/1/score", "s1a1-i4", "high")], view=view, prefix="s1a1")
        html = render(shown)
        assert shown["anchors"] == {"s1a1-i4": "s1a1-i4-at"}
        assert re.findall(r'data-marks="(\w+)"', html) == ["high"]
        badge = html[html.index('<a class="line-issue') :].partition("</a>")[0]
        assert 'id="s1a1-i4-at" href="#s1a1-i4"' in badge and 'data-n="1"' in badge and badge.endswith(">")

    def test_the_json_that_is_copied_is_the_output(self) -> None:
        html = render(view_output(OUTPUT, [mark("/party"), mark("/risks", "i1")], view=View.JSON))
        assert not re.search("<summary(?:(?!</summary>).)*<a ", html, re.DOTALL)
        code = html[html.index('<div class="listing') : html.rindex("</details>")]
        assert json.loads(unescape(re.sub("<[^>]*>", "", code))) == OUTPUT

    @pytest.mark.parametrize(
        ("texts", "view"),
        [
            ((None, None), View.TEXT),
            (("json", "table"), View.JSON),
            (("<b>", "table"), View.TABLE),
            (("", "x"), View.TEXT),
        ],
    )
    def test_the_address_wins_over_what_the_browser_remembers(self, texts: tuple[str | None, ...], view: View) -> None:
        assert parse_view(*texts) is view
