"""The formats in which runs are exported: what a file begins with, and what stands in it for each run."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Protocol

from django.contrib.auth import get_user_model

from runs.api.run_documents import dump_without_addresses, load_runs
from runs.api.schemas.runs import RunParts
from runs.models import Run
from runs.pages.export_cells import write_json_cell, write_text_cell
from runs.pages.json_lines import show_invisible
from runs.statistics.counting import fetch_asked_models


class ExportFile(Protocol):
    """One format. ``head`` is what a file begins with."""

    content_type: str
    head: str

    def write(self, run_ids: Collection[int]) -> str:
        """The part of the file for these runs, the newest first."""


def _write_time(moment: datetime | None) -> str:
    return "" if moment is None else moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _write_amount(amount: Decimal | None) -> str:
    # Exact, and without the zeros and exponents of a column.
    return "" if amount is None else f"{amount.normalize():f}"


def _write_length(length: timedelta | None) -> str:
    return "" if length is None else f"{length.total_seconds():.3f}"


def _write_list(texts: list[str]) -> str:
    return write_text_cell("; ".join(texts))


def _write_flag(flag: bool) -> str:
    return "yes" if flag else "no"


_USER = f"started_by__{get_user_model().USERNAME_FIELD}"
_COLUMNS: tuple[tuple[str, str, Callable[[Any], Any]], ...] = (
    ("run", "pk", int),
    ("flow", "flow__name", write_text_cell),
    ("version", "version__number", int),
    ("status", "status", str),
    ("end_reason", "end_reason", str),
    ("end_sentence", "end_sentence", write_text_cell),
    ("started_by", _USER, lambda name: write_text_cell(name or "")),
    ("labels", "labels", _write_list),
    ("created_at", "created_at", _write_time),
    ("started_at", "started_at", _write_time),
    ("ended_at", "ended_at", _write_time),
    ("duration_seconds", "duration", _write_length),
    ("attempts", "attempt_count", int),
    ("retries", "retry_count", int),
    ("steps_passed", "steps_passed", int),
    ("steps", "step_count", int),
    ("issues_critical", "issues_critical", int),
    ("issues_high", "issues_high", int),
    ("issues_medium", "issues_medium", int),
    ("issues_low", "issues_low", int),
    ("prompt_tokens", "prompt_tokens", int),
    ("cached_tokens", "cached_tokens", int),
    ("completion_tokens", "completion_tokens", int),
    ("reasoning_tokens", "reasoning_tokens", int),
    ("total_tokens", "total_tokens", int),
    ("cost_usd", "cost", _write_amount),
    ("unpriced_attempts", "unpriced_count", int),
    ("simulated", "is_simulated", _write_flag),
    ("model", "model_settings", _write_list),
    ("input", "input", write_json_cell),
)
"""Header, column of the run, and how it is written. The length of a run is that of one that has begun and ended.

The models are those that its steps ask: the model of its settings only where a step names none.
"""

_STORED = (
    *("ended_at" if column == "duration" else column for _, column, _ in _COLUMNS),
    *("outputs_removed_at", "version_id", "version__digest"),
)
_DURATION, _INPUT, _MODEL = (
    [column for _, column, _ in _COLUMNS].index(column) for column in ("duration", "input", "model_settings")
)
_STARTED, _ENDED = _STORED.index("started_at"), _STORED.index("ended_at")


class CsvFile:
    """A row a run, for spreadsheets: RFC 4180, in UTF-8. It begins with a byte order mark.

    Without one Excel takes the file for the code page of its computer, and “é” for “Ã©”. Who reads CSV by a program
    says “utf-8-sig”, or takes JSON Lines, which have none.
    """

    content_type = "text/csv; charset=utf-8"

    def __init__(self) -> None:
        self.head = "\ufeff" + _write_rows([[header for header, _, _ in _COLUMNS]])

    def write(self, run_ids: Collection[int]) -> str:
        """The rows of these runs."""
        found = list(Run.objects.filter(pk__in=run_ids).order_by("-created_at", "-pk").values_list(*_STORED))
        rows = []
        for row in found:
            *values, removed_at, version_id, digest = row
            begun, ended = row[_STARTED], row[_ENDED]
            values[_DURATION] = None if begun is None or ended is None else ended - begun
            values[_MODEL] = fetch_asked_models(version_id, digest).list_models(values[_MODEL])
            cells = [write(value) for (_, _, write), value in zip(_COLUMNS, values, strict=True)]
            if removed_at is not None:
                cells[_INPUT] = ""  # what is stored then is an empty object, which may have been an input too
            rows.append(cells)
        return _write_rows(rows)


def _write_rows(rows: list[list[Any]]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\r\n").writerows(rows)
    return buffer.getvalue()


class JsonLinesFile:
    """A JSON document a line for each run, for programs; with ``has_attempts`` all of its history."""

    content_type = "application/x-ndjson; charset=utf-8"
    head = ""

    def __init__(self, *, has_attempts: bool) -> None:
        self._parts = RunParts(attempts="all" if has_attempts else "none")

    def write(self, run_ids: Collection[int]) -> str:
        """The lines of these runs."""
        return "".join(_write_line(dump_without_addresses(run)) for run in load_runs(run_ids, None, self._parts))


def _write_line(document: Mapping[str, Any]) -> str:
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    # The same values, and nothing in them that ends a line, turns it round or is no UTF-8.
    return f"{show_invisible(text)}\n"
