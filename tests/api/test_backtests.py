"""Backtests through the API: requesting, following and stopping one, and the runs that differ."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runs.backtests import requests
from runs.models import Backtest, TokenScope
from tests.api.asking import Script, create_token, make_user, read_problem
from tests.runs.backtest_rows import ask, backtest, finish, make_audited_flow, store_history
from tests.runs.builders import make_version

pytestmark = pytest.mark.django_db

YAML = """
name: texts
title: Texts
steps:
- name: Step 1
  tool_name: tool_1
  model: gpt-4.1
  output_schema: {type: object, properties: {text: {type: string}}, required: [text], additionalProperties: false}
  audits:
  - {name: Is long, rule: output.text.size() >= 5, severity: high}
"""


@pytest.fixture
def script(groups: None) -> Script:
    return Script(create_token(make_user("olga", "Editor"), TokenScope.RUN))


def read(answer: Any) -> Any:
    return json.loads(answer.content)


def post(script: Script, **body: Any) -> Any:
    return script.post("backtests", body)


class TestRequesting:
    def test_a_document_a_file_or_a_version(self, script: Script) -> None:
        version = store_history()[0].version
        bodies: list[dict[str, Any]] = [
            {"document": make_audited_flow(5).to_document()},
            {"document": YAML},
            {"flow": "texts", "version": 1},
        ]
        for body in bodies:
            answer = post(script, **body)
            assert answer.status_code == 202
            document = read(answer)
            assert answer["Location"] == document["url"]
            assert (document["flow"], document["status"], document["run_count"]) == ("texts", "waiting", 4)
        assert [one.version for one in Backtest.objects.order_by("pk")] == [None, None, version]

    @pytest.mark.parametrize("document", [YAML, {"name": "texts"}], ids=["file", "document"])
    def test_a_document_takes_the_right_to_edit_flows(self, groups: None, document: Any) -> None:
        store_history()
        operator = Script(create_token(make_user("otto", "Operator"), TokenScope.RUN))
        problem = read_problem(post(operator, document=document))
        assert (problem["status"], "flows.change_flow" in problem["detail"]) == (403, True)
        assert post(operator, flow="texts", version=1).status_code == 202

    def test_filters_and_a_limit_choose_the_runs_once_for_a_key(self, script: Script) -> None:
        runs = store_history()
        body = {"flow": "texts", "version": 1, "filters": {"status": ["failed"]}, "limit": 7}
        document, again = (read(script.post("backtests", body, Idempotency_Key="once")) for _ in range(2))
        assert document == again
        assert (document["run_count"], document["limit"]) == (1, 7)
        assert document["filters"] == {"flow": "texts", "status": ["failed"]}
        assert Backtest.objects.get().run_ids == [runs[3].pk]

    @pytest.mark.parametrize(
        ("body", "pointer"),
        [
            ({}, ""),
            ({"flow": "texts", "version": 1, "document": YAML}, ""),
            ({"flow": "texts", "version": 9}, "/version"),
            ({"flow": "nosuch", "version": 1}, "/flow"),
            ({"version": 1}, "/flow"),
            ({"flow": "texts", "version": 1, "limit": 10_001}, "/limit"),
            ({"flow": "texts", "version": 1, "filters": {"flow": "other"}}, "/filters/flow"),
            ({"flow": "texts", "version": 1, "filters": {"colour": "red"}}, "/filters/colour"),
            ({"document": {"name": "texts", "steps": [{"name": "S"}]}}, "/document/steps/0"),
            ({"document": {"name": "nosuch", "steps": [{"name": "S", "compute": "input"}]}}, "/document/name"),
            ({"document": "name: ["}, "/document"),
            ({"document": [YAML]}, "/document"),
        ],
    )
    def test_what_is_wrong_is_reported(self, script: Script, body: dict[str, Any], pointer: str) -> None:
        store_history()
        make_version(make_audited_flow(name="other", title="Other"))
        answer = post(script, **body)
        assert answer.status_code in (400, 422)
        assert any(error["pointer"].startswith(pointer) for error in read_problem(answer)["errors"])
        assert not Backtest.objects.exists()

    def test_hostile_candidates_are_refused(self, script: Script) -> None:
        store_history()
        deep = json.dumps({"document": {**make_audited_flow().to_document(), "input_schema": {}}})
        for body in (
            json.dumps({"document": make_audited_flow(description="x" * 10_000_000).to_document()}).encode(),
            json.dumps({"document": "x" * 10_000_000}).encode(),
            (deep[:-3] + '{"a":' * 5_000 + "1" + "}" * 5_000 + "}}").encode(),
            b'{"document": "\\ud800"}',
            b'{"document": {"name": "texts", "steps": [[[[]]]]}}',
        ):
            assert 400 <= read_problem(script.ask("POST", "backtests", body))["status"] < 500, body[:80]
        assert not Backtest.objects.exists()

    def test_without_runs_or_with_too_many_at_a_time_it_is_a_conflict(
        self, script: Script, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        make_version(make_audited_flow())
        assert read_problem(post(script, flow="texts", version=1))["type"].endswith("no-runs")
        store_history()
        monkeypatch.setattr(requests, "MAX_UNFINISHED", 0)
        assert read_problem(post(script, flow="texts", version=1))["type"].endswith("too-many-backtests")


class TestReading:
    def test_it_has_totals_audits_and_runs_by_kind_page_by_page(self, script: Script) -> None:
        runs = store_history()
        found = backtest(make_audited_flow(5))
        document = read(script.get(f"backtests/{found.pk}"))
        totals = document["totals"]
        assert (document["status"], document["percent"], document["version"]) == ("done", 100, None)
        assert [totals[name] for name in ("runs", "same", "sooner", "refused", "unknown")] == [4, 2, 2, 0, 0]
        assert [totals[name] for name in ("retries", "retries_saved", "cost_saved")] == [6, 3, "0.03000000"]
        (audit,) = (one for one in document["audits"] if one["audit"] == "Is long")
        assert audit == {"step": 1, "audit": "Is long", "fired_before": 6, "fired_after": 4, "gone": 2, "new": 0}
        page = read(script.get(f"backtests/{found.pk}/runs?kind=sooner&limit=1"))
        assert [item["run"] for item in page["items"]] == [runs[2].pk]
        assert page["items"][0]["gone"][0]["audit"] == "Is long"
        assert [item["run"] for item in read(script.get(page["next"]))["items"]] == [runs[1].pk]
        assert read(script.get(f"backtests/{found.pk}/runs?kind=refused"))["items"] == []
        assert script.get(f"backtests/{found.pk}/runs?kind=same").status_code == 400

    def test_one_that_leaves_out_each_audit_is_not_found(self, script: Script) -> None:
        found = ask(store_history()[0].version, leaves_out_each=True)
        assert script.get(f"backtests/{found.pk}").status_code == 404

    def test_it_is_stopped_once(self, script: Script) -> None:
        store_history()
        found = ask(make_audited_flow(5))
        assert read(script.post(f"backtests/{found.pk}/stop", {}))["status"] == "stopped"
        assert finish(found).position == 0
        assert read_problem(script.post(f"backtests/{found.pk}/stop", {}))["type"].endswith("backtest-ended")
