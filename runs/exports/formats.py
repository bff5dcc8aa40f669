"""What exports of runs hold: CSV for spreadsheets, JSON Lines for programs.

Runs hold what models wrote. A spreadsheet takes a cell that begins with certain signs for a formula and runs it, which
could send other cells somewhere or start a program: cells are written so that it does not.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal

from django.contrib.auth import get_user_model
from django.core.serializers.json import DjangoJSONEncoder

from flows.engine.json_values import dump_json
from runs.documents.loading import dump_without_addresses, load_runs
from runs.documents.run import RunParts
from runs.history.texts import show_invisible
from runs.models import Run
from runs.statistics.counting import fetch_asked_models

Format = Literal["csv", "jsonl"]
CONTENT_TYPES: dict[Format, str] = {
    "csv": "text/csv; charset=utf-8",
    "jsonl": "application/x-ndjson; charset=utf-8",
}

# ---------------------------------------------------------------------------------------------------------------------
# Cells

_SIGNS = "=+\\-@\N{FULLWIDTH EQUALS SIGN}\N{FULLWIDTH PLUS SIGN}\N{FULLWIDTH HYPHEN-MINUS}\N{FULLWIDTH COMMERCIAL AT}"
_LEADING = re.compile(rf"""[\t\r\n]|[\s"']*[{_SIGNS}]""")
# Where a semicolon separates cells, as it does in much of Europe, one begins behind it, and behind a line break too.
_INNER = re.compile(rf"""([;\t\r\n][\s"']*)(?=[{_SIGNS}])""")
_INNER_JSON = re.compile(rf"""([;\t\r\n][\s"']*)([{_SIGNS}])""")


def format_text_cell(text: str) -> str:
    """``text`` for a cell: an apostrophe goes before what would begin a formula.

    Characters that would change how the text around them looks are written as ``\\u202e``.
    """
    text = _INNER.sub(r"\1'", show_invisible(text))
    return f"'{text}" if _LEADING.match(text) else text


def format_json_cell(value: Any) -> str:
    """A JSON object or list for a cell. It reads back as the same value: signs of formulas are escaped."""
    text = show_invisible(dump_json(value))
    return _INNER_JSON.sub(lambda match: f"{match[1]}\\u{ord(match[2]):04x}", text)


def format_time_cell(time: datetime | None) -> str:
    """A time in UTC, to the millisecond."""
    return "" if time is None else time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def format_rows(rows: Iterable[Sequence[Any]]) -> str:
    """Rows as RFC 4180 has them."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerows(rows)
    return text.getvalue()


def _format_amount(amount: Decimal | None) -> str:
    # Exact, and without the zeros and exponents of a column.
    return "" if amount is None else f"{amount.normalize():f}"


def _format_list(texts: list[str]) -> str:
    return format_text_cell("; ".join(texts))


# ---------------------------------------------------------------------------------------------------------------------
# CSV

_COLUMNS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "run": ("pk", int),
    "flow": ("flow__name", format_text_cell),
    "version": ("version__number", int),
    "status": ("status", str),
    "end_reason": ("end_reason", str),
    "end_sentence": ("end_sentence", format_text_cell),
    "started_by": (f"started_by__{get_user_model().USERNAME_FIELD}", lambda name: format_text_cell(name or "")),
    "labels": ("labels", _format_list),
    "created_at": ("created_at", format_time_cell),
    "started_at": ("started_at", format_time_cell),
    "ended_at": ("ended_at", format_time_cell),
    "duration_seconds": ("duration", lambda length: "" if length is None else f"{length.total_seconds():.3f}"),
    "attempts": ("attempt_count", int),
    "retries": ("retry_count", int),
    "steps_passed": ("steps_passed", int),
    "steps": ("step_count", int),
    "issues_critical": ("issues_critical", int),
    "issues_high": ("issues_high", int),
    "issues_medium": ("issues_medium", int),
    "issues_low": ("issues_low", int),
    "prompt_tokens": ("prompt_tokens", int),
    "cached_tokens": ("cached_tokens", int),
    "completion_tokens": ("completion_tokens", int),
    "reasoning_tokens": ("reasoning_tokens", int),
    "total_tokens": ("total_tokens", int),
    "cost_usd": ("cost", _format_amount),
    "unpriced_attempts": ("unpriced_count", int),
    "simulated": ("is_simulated", lambda flag: "yes" if flag else "no"),
    "model": ("models", _format_list),
    "input": ("input", lambda value: "" if value is None else format_json_cell(value)),
}
"""By header: the value of a row, and how it is written."""
_COMPUTED = {"duration", "models"}
_STORED = (
    *(name for name, _ in _COLUMNS.values() if name not in _COMPUTED),
    *("model_settings", "outputs_removed_at", "version_id", "version__digest"),
)

CSV_MARK = "\ufeff"
"""Begins a file: without it Excel takes UTF-8 for the code page of its computer, and “é” for “Ã©”."""
CSV_HEAD = CSV_MARK + format_rows([list(_COLUMNS)])


def render_csv(run_ids: Collection[int]) -> str:
    """A row for each of these runs, the newest first, to follow ``CSV_HEAD``."""
    rows = Run.objects.filter(pk__in=run_ids).order_by("-created_at", "-pk").values(*_STORED)
    return format_rows(map(_list_cells, rows))


def _list_cells(row: dict[str, Any]) -> list[Any]:
    begin, end = row["started_at"], row["ended_at"]
    row["duration"] = None if begin is None or end is None else end - begin
    # The model of the settings is asked only where a step names none.
    row["models"] = fetch_asked_models(row["version_id"], row["version__digest"]).list_models(row["model_settings"])
    if row["outputs_removed_at"] is not None:
        row["input"] = None  # what is stored then is an empty object, which may have been an input too
    return [format(row[name]) for name, format in _COLUMNS.values()]


# ---------------------------------------------------------------------------------------------------------------------
# JSON Lines


def render_json_lines(run_ids: Collection[int], *, has_attempts: bool) -> str:
    """A JSON document in a line for each of these runs, the newest first; with ``has_attempts`` its whole history."""
    parts = RunParts(attempts="all" if has_attempts else "none")
    documents = (dump_without_addresses(run) for run in load_runs(run_ids, None, parts))
    lines = (json.dumps(one, ensure_ascii=False, separators=(",", ":"), cls=DjangoJSONEncoder) for one in documents)
    # The same values without characters that end a line, reverse it or are not UTF-8.
    return "".join(f"{show_invisible(line)}\n" for line in lines)
