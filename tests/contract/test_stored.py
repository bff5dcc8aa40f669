"""What runs leave in the database: the columns and JSON names that exports, backups and later releases read."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
import yaml

from tests.contract.golden import check_golden
from tests.contract.site import ASK_FLOW, YAML, Api, run_local_flow, select_rows, work_off_queue
from tests.contract.test_documents import EXAMPLES

pytestmark = pytest.mark.django_db(transaction=True)

VALUES = {
    "run": "status end_reason blocking_step blocking_attempt is_simulated priority step_count steps_passed "
    "attempt_count retry_count issues_low issues_medium issues_high issues_critical unpriced_count labels",
    "attempt": "number outcome model finish_reason failure_reason",
    "issue": "position code severity audit path",
    "tokenusage": "reported unpriced",
}
"""Columns by their values, in each row."""
KINDS = {
    "run": "input model_settings metadata end_sentence created_at started_at ended_at prompt_tokens completion_tokens "
    "total_tokens cached_tokens reasoning_tokens cost token_budget cost_budget time_limit webhook_url again_of",
    "attempt": "input output raw_output request received error plugins response_id started_at ended_at",
    "issue": "description context suggestions added_fields",
    "tokenusage": "prompt completion total cached reasoning cost",
}
"""Columns by the kinds of their values in all rows, JSON by its names."""
OPAQUE = {"input", "output", "raw_output", "added_fields"}
"""JSON whose names are those of the flow."""
SOURCES = {
    "run": "runs_run t WHERE t.id = %s",
    "attempt": "(SELECT a.*, r.body AS request FROM runs_attempt a LEFT JOIN runs_attemptrequest r "
    "ON r.attempt_id = a.id) t "
    'JOIN runs_step s ON s.id = t.step_id WHERE s.run_id = %s ORDER BY s."index", t.number',
    "issue": "runs_issue t JOIN runs_attempt a ON a.id = t.attempt_id JOIN runs_step s ON s.id = a.step_id "
    'WHERE s.run_id = %s ORDER BY s."index", a.number, t.position',
    "tokenusage": "runs_tokenusage t JOIN runs_attempt a ON a.id = t.attempt_id JOIN runs_step s ON s.id = a.step_id "
    'WHERE s.run_id = %s ORDER BY s."index", a.number',
}
MAX_DEPTH = 4


def _parse(value: Any) -> Any:
    """The JSON value of a column, or the value of one that holds none."""
    if isinstance(value, bytes | memoryview):
        return json.loads(zlib.decompress(bytes(value)))
    if isinstance(value, str) and value[:1] in ("{", "["):
        return json.loads(value)
    return value


def _describe(value: Any, depth: int = 0) -> Any:
    """The names in a JSON value down to ``MAX_DEPTH``, with the kinds of values."""
    if isinstance(value, dict | list) and value and depth >= MAX_DEPTH:
        return type(value).__name__
    if isinstance(value, dict):
        return {name: _describe(part, depth + 1) for name, part in value.items()}
    if isinstance(value, list):
        return _list_once(_describe(part, depth + 1) for part in value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return "text" if value else ""
    # PostgreSQL has a type for lengths of time, SQLite stores microseconds.
    return "number" if isinstance(value, int | float | Decimal | timedelta) else "time"


def _list_once(values: Iterable[Any]) -> list[Any]:
    listed = list(values)
    return [value for index, value in enumerate(listed) if value not in listed[:index]]


def _collect(runs: dict[str, int]) -> dict[str, Any]:
    """What is stored of each run, and what kinds of values the columns of all of them hold."""
    found: dict[str, Any] = {name: {} for name in runs}
    kinds: dict[str, Any] = {table: {} for table in SOURCES}
    for table, source in SOURCES.items():
        exact, described = VALUES[table].split(), KINDS[table].split()
        columns = ", ".join(f"t.{name}" for name in (*exact, *described))
        for run, number in runs.items():
            rows = select_rows(f"SELECT {columns} FROM {source}", number)  # noqa: S608  # names of our own
            found[run][table] = [" ".join(f"{name}={_parse(row[name])}" for name in exact) for row in rows]
            for name in described:
                depth = MAX_DEPTH if name in OPAQUE else 0
                kinds[table].setdefault(name, []).extend(_describe(_parse(row[name]), depth) for row in rows)
    merged = {
        table: {name: sorted(_list_once(values), key=repr) for name, values in columns.items()}
        for table, columns in kinds.items()
    }
    return {"columns": merged, "runs": found}


def test_runs_of_the_examples_are_stored_with_the_same_names_and_verdicts() -> None:
    api = Api()
    runs = {}
    for path in EXAMPLES:
        text = path.read_text("utf-8")
        api.fetch("POST", "flows", text, kind=YAML)
        sample = yaml.safe_load(text)["input_schema"]["examples"][0]
        runs[path.stem] = api.fetch("POST", "runs", {"flow": path.stem, "input": sample})["id"]
    work_off_queue()
    check_golden("golden/stored_examples.yaml", _collect(runs))


def test_what_failed_and_what_got_no_answer_is_stored_with_the_same_names(no_provider: None) -> None:
    api = Api()
    options = {"labels": ["nightly"], "metadata": {"a": 1}, "token_budget": 10, "cost_budget": "0.5", "time_limit": 60}
    failed = run_local_flow(api, "ab", **options)
    again = api.fetch("POST", f"runs/{failed}/run-again", {})["id"]
    api.fetch("POST", "flows", ASK_FLOW)
    errored = api.fetch("POST", "runs", {"flow": "ask", "input": {}})["id"]
    work_off_queue()
    runs = {"failed": failed, "again": again, "errored": errored}
    check_golden("golden/stored_failures.yaml", _collect(runs))
