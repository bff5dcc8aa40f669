"""Parts of attempts that are fetched on demand, and runs as JSON."""

from __future__ import annotations

import json
import re

import pytest
from django.test import Client

from runs.models import Run, RunStatus
from tests.engine.builders import make_attempt, make_issue
from tests.runs.pages.history_builders import begin_attempt, make_retried_run, make_stored_run
from tests.runs.pages.reading import HTMX, get_page, read_words, run_address

pytestmark = pytest.mark.django_db


class TestParts:
    @pytest.fixture
    def run(self) -> Run:
        request = {
            "model": "gpt-4.1",
            "messages": [
                {"role": "system", "content": "Be brief.\n## Current step attempts"},
                {"role": "user", "content": '{"topic": "tea"}'},
            ],
            "tools": [{"type": "function"}],
            "temperature": 0.2,
        }
        return make_stored_run(make_attempt(1, 1, request=request, input={"seed": 7}, raw_output={"raw": "x"}))

    def test_what_the_model_saw_is_fetched_when_it_is_opened(self, viewer: Client, run: Run) -> None:
        page = get_page(viewer, run_address(run))
        assert "Be brief." not in page
        (address,) = re.findall(r'hx-get="([^"]+/request/)"', page)
        part = get_page(viewer, address, headers=HTMX)
        assert "<html" not in part
        words = read_words(part)
        assert words.startswith("System message")
        assert words.index("Be brief. ## Current step attempts") < words.index("User message") < words.index('"topic"')
        assert "temperature" in part

    @pytest.mark.parametrize(("part", "text"), [("input", "seed"), ("raw_output", "raw"), ("request", "Be brief.")])
    def test_without_scripts_a_part_is_a_page_of_its_own(self, viewer: Client, run: Run, part: str, text: str) -> None:
        page = get_page(viewer, f"{run_address(run)}steps/1/attempts/1/{part}/")
        assert "<html" in page and text in page
        assert f'href="/runs/{run.pk}/#s1a1"' in page

    def test_there_is_no_other_part(self, viewer: Client, run: Run) -> None:
        assert viewer.get(f"{run_address(run)}steps/1/attempts/1/pk/").status_code == 404


class TestDocuments:
    def test_a_run_as_json_has_all_steps_attempts_issues_and_usage(self, viewer: Client) -> None:
        run = make_retried_run(status=RunStatus.SUCCEEDED)
        document = viewer.get(f"/runs/{run.pk}.json").json()
        assert document["id"] == run.pk and document["flow"] == "colour-theme" and document["version"] == 1
        assert document["status"] == "succeeded" and document["input"] == {"topic": "tea"}
        assert [[attempt["outcome"] for attempt in step["attempts"]] for step in document["steps"]] == [
            ["passed"],
            ["failed", "passed"],
            ["passed"],
            ["passed"],
        ]
        assert document["steps"][0]["attempts"][0]["output"] == {"topic": "tea"}
        assert document["steps"][1]["attempts"][0]["issues"][0]["vendor_id"] == 4711
        assert document["usage"]["total"] == 990

    def test_an_attempt_that_runs_has_no_outcome_yet(self, viewer: Client) -> None:
        run = make_stored_run(make_attempt(1, 1), status=RunStatus.RUNNING)
        begin_attempt(run, 2, 1)
        steps = viewer.get(f"/runs/{run.pk}.json").json()["steps"]
        (running,) = steps[2]["attempts"]
        assert running.keys() == steps[1]["attempts"][0].keys()
        assert (running["step"], running["number"], running["outcome"], running["usage"]) == (2, 1, None, None)
        assert steps[3]["attempts"] == []

    def test_issues_can_be_filtered_and_earlier_attempts_left_out(self, viewer: Client) -> None:
        issues = (make_issue("low"), make_issue("high"))
        run = make_stored_run(make_attempt(1, 1, "failed", issues=issues), make_attempt(1, 2, issues=issues))
        document = viewer.get(f"/runs/{run.pk}.json?min_severity=medium&attempts=final").json()
        (attempt,) = document["steps"][1]["attempts"]
        assert attempt["number"] == 2
        assert [issue["severity"] for issue in attempt["issues"]] == ["high"]

    @pytest.mark.parametrize("query", ["min_severity=severe", "attempts=last"])
    def test_a_filter_that_makes_no_sense_is_refused(self, viewer: Client, query: str) -> None:
        answer = viewer.get(f"/runs/{make_retried_run().pk}.json?{query}")
        assert answer.status_code == 400
        assert "must be" in answer.json()["error"]

    def test_one_attempt_can_be_downloaded_whole(self, viewer: Client) -> None:
        run = make_retried_run()
        answer = viewer.get(f"/runs/{run.pk}/steps/1/attempts/1.json")
        assert answer["Content-Disposition"] == f'attachment; filename="run-{run.pk}-step-1-attempt-1.json"'
        document = json.loads(answer.content)
        assert document["output"] == {"colours": ["#ff0000", "red"]}
        assert document["issues"][0]["code"] == "hex_format"
