"""Making texts harmless for spreadsheets, which take a cell that begins with certain signs for a formula and run it.

Runs hold what models wrote. A formula among it could send the sheet's other cells somewhere, or start a program.
"""

from __future__ import annotations

import re
from typing import Any

from flows.engine.json_values import dump_json
from runs.pages.json_lines import show_invisible

_SIGNS = "=+\\-@\N{FULLWIDTH EQUALS SIGN}\N{FULLWIDTH PLUS SIGN}\N{FULLWIDTH HYPHEN-MINUS}\N{FULLWIDTH COMMERCIAL AT}"
_LEADING = re.compile(rf"""[\t\r\n]|[\s"']*[{_SIGNS}]""")
# Where a semicolon parts cells, as it does in much of Europe, a new one begins behind it, and behind a line break too.
_INNER = re.compile(rf"""([;\t\r\n][\s"']*)(?=[{_SIGNS}])""")
_INNER_JSON = re.compile(rf"""([;\t\r\n][\s"']*)([{_SIGNS}])""")


def write_text_cell(text: str) -> str:
    """``text`` as it can stand in a cell: an apostrophe goes before what would begin a formula.

    Characters that would change how the text around them looks are written as ``\\u202e``.
    """
    text = _INNER.sub(r"\1'", show_invisible(text))
    return f"'{text}" if _LEADING.match(text) else text


def write_json_cell(value: Any) -> str:
    """A JSON object or list as text in one cell. It reads back as the same value: what must change is escaped."""
    text = show_invisible(dump_json(value))
    return _INNER_JSON.sub(lambda match: f"{match[1]}\\u{ord(match[2]):04x}", text)
