"""Answers with statistics have all that the OpenAPI document promises, and nothing else."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import Any

import pytest
from django.utils import timezone
from jsonschema import Draft202012Validator

from runs.api.documentation import build_schema
from runs.models import RunStatus
from tests.api.asking import Script
from tests.runs.builders import make_run, make_version
from tests.runs.pages.daily_rows import add_audit, add_issues, add_runs, add_steps, day_ago
from tests.runs.pages.history_builders import make_page_flow

pytestmark = pytest.mark.django_db

FLOW = "/flows/{name}/statistics"


@cache
def read_schema() -> Any:
    """The OpenAPI document, with objects that hold nothing which it doesn't name."""
    document: Any = deepcopy(build_schema())
    for component in document["components"]["schemas"].values():
        if "properties" in component:
            component["additionalProperties"] = False
    return document


@pytest.mark.parametrize("is_filled", [True, False])
@pytest.mark.parametrize(
    ("path", "query"),
    [
        (FLOW, ""),
        (FLOW, "?model=gpt-5-mini&version=1&group_by=week"),
        (FLOW, "?group_by=none&simulated=true"),
        (f"{FLOW}/audits", ""),
        ("/statistics/usage", ""),
        ("/statistics/usage", "?group_by=flow,version,model,day"),
        ("/statistics/overview", ""),
    ],
)
def test_an_answer_is_what_the_schema_says(viewer: Script, path: str, query: str, is_filled: bool) -> None:
    version = make_version(make_page_flow())
    if is_filled:
        for days in range(2):
            add_runs(version, day_ago(days), succeeded=2, failed=1, cost="0.12345678", unpriced=days)
            add_steps(version, day_ago(days), begun=3, passed=2, attempts=4, retries=1, total_tokens=10)
            add_steps(version, day_ago(days), step=2, model="", begun=3, passed=3, attempts=3)
            add_audit(version, day_ago(days), "Hex colours", fired=3, retried=2, fixed=1)
            add_audit(version, day_ago(days), "", code="schema_mismatch", step=3, fired=3)
            add_issues(version, day_ago(days), "hex_format", issues=2, runs=1)
        make_run(version, status=RunStatus.RUNNING, lease_until=timezone.now())
    answer: Any = viewer.get(path.replace("{name}", "colour-theme").removeprefix("/") + query)
    schema = read_schema()
    (said,) = schema["paths"][path]["get"]["responses"]["200"]["content"].values()
    errors = Draft202012Validator(said["schema"] | {"components": schema["components"]}).iter_errors(answer.json())
    assert [f"{error.json_path}: {error.message}" for error in errors] == []
