"""Reading one run over the API: whole, the part that is asked for, and its steps, attempts, issues and usage."""

from __future__ import annotations

import json
from datetime import timedelta
from decimal import Decimal
from itertools import product
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from flows.engine.history import TokenUsage
from runs.models import Attempt, Priority, Run, RunStatus
from tests.api.asking import Script, read, read_problem, walk
from tests.engine.builders import NOON, make_attempt, make_issue, make_usage
from tests.runs.builders import make_run, make_version
from tests.runs.pages.history_builders import (
    BEGIN,
    begin_attempt,
    make_page_flow,
    make_retried_run,
    make_stored_run,
)
from tests.runs.pages.reading import sign_in

pytestmark = pytest.mark.django_db

HOST = "http://testserver"


def list_tries(run: Any) -> list[list[tuple[int, str | None]]]:
    return [[(attempt["number"], attempt["outcome"]) for attempt in step["attempts"]] for step in run["steps"]]


@pytest.fixture
def run() -> Run:
    """A run that ended when its second step had used up its tries; one attempt was interrupted."""
    first = (make_issue("critical", code="a", audit="One"), make_issue("low", code="b"))
    return make_stored_run(
        make_attempt(1, 1, "failed", issues=first),
        make_attempt(1, 2, issues=(make_issue("medium", code="a", audit="One"),)),
        make_attempt(2, 1, "failed", issues=(make_issue("high", code="c"), make_issue("critical", code="a"))),
        make_attempt(2, 2, "interrupted"),
        make_attempt(2, 3, "invalid"),
        status=RunStatus.FAILED,
    )


class TestRun:
    def test_it_says_all_that_is_known_of_the_run(self, viewer: Script, settings: Any) -> None:
        settings.TIME_ZONE = "Asia/Tokyo"
        same = {
            "end_reason": "budget_exceeded", "end_sentence": "The budget is used up.", "waiting_for": "",
            "cancel_requested": False, "labels": ["nightly"], "metadata": {"ticket": "T-7", "b": 1, "a": 2},
            "token_budget": 5_000, "steps_passed": 1, "accepted_count": 1, "attempt_count": 4, "retry_count": 2,
        }  # fmt: skip
        tokens = {"prompt": 20, "completion": 10, "total": 30, "cached": 8, "reasoning": 9}
        run = make_run(
            make_version(make_page_flow()),
            **same,
            **{f"{name}_tokens": count for name, count in tokens.items()},
            status=RunStatus.ERRORED,
            blocking_step=2,
            blocking_attempt=1,
            priority=Priority.HIGH,
            cost_budget=Decimal("0.5"),
            time_limit=timedelta(minutes=10),
            webhook_url="https://example.com/hook",
            started_by=User.objects.create(username="grace"),
            created_at=BEGIN,
            started_at=BEGIN,
            ended_at=NOON,
            cost=Decimal("0.00000002"),
            unpriced_count=1,
            issues_high=3,
        )
        document = read(viewer, f"runs/{run.pk}?attempts=none")
        assert document == {
            **same, "waiting_for": None, "id": run.pk, "flow": "colour-theme", "version": 1, "again_of": None,
            "status": "errored", "blocking": {"step": 2, "attempt": 1}, "priority": "high", "is_simulated": False,
            "model_settings": {"model": "gpt-5-mini"}, "cost_budget": "0.50000000", "time_limit": 600,
            # For a user who may only read.
            "webhook_url": "https://example.com/…", "started_by": "grace", "created_at": "2026-11-21T11:55:00Z",
            "started_at": "2026-11-21T11:55:00Z", "ended_at": "2026-11-21T12:00:00Z", "outputs_removed_at": None,
            "duration": 300.0, "input": {"topic": "tea"}, "step_count": 3,
            "issue_counts": {"low": 0, "medium": 0, "high": 3, "critical": 0},
            "usage": {**tokens, "cost": "0.00000002", "unpriced": 1},
            "url": f"{HOST}/api/v1/runs/{run.pk}", "page_url": f"{HOST}/runs/{run.pk}/",
        }  # fmt: skip
        assert list(document["metadata"]) == ["ticket", "b", "a"]

    def test_every_attempt_comes_with_its_own_output_issues_and_usage(self, viewer: Script, client: Client) -> None:
        run = make_retried_run()
        document = read(viewer, f"runs/{run.pk}")
        assert list_tries(document) == [
            [(1, "passed")], [(1, "failed"), (2, "passed")], [(1, "passed")], [(1, "passed")],
        ]  # fmt: skip
        failed, passed = document["steps"][1]["attempts"]
        assert failed["output"] == {"colours": ["#ff0000", "red"]}
        assert [(issue["code"], issue["path"], issue["vendor_id"]) for issue in failed["issues"]] == [
            ("hex_format", "/colours/1", 4711)
        ]
        assert passed["issues"] == []
        assert (failed["usage"]["total"], passed["usage"]["total"], document["usage"]["total"]) == (300, 600, 990)
        (first,) = document["steps"][0]["attempts"]
        assert document["input"] == first["output"] == {"topic": "tea"}
        # Its addresses lead to its parts and to its pages.
        for part in (document, document["steps"][1], passed):
            assert read(viewer, part["url"]) == part
        assert passed["page_url"] == f"{document['page_url']}steps/1/attempts/2/"
        browser = sign_in(client, "view_run")
        assert 'id="pane" data-entry="s1a2"' in browser.get(passed["page_url"]).content.decode()
        # The page gives the same document but for addresses.
        for part in (document, *document["steps"], *(it for step in document["steps"] for it in step["attempts"])):
            part.pop("url"), part.pop("page_url", None)
        assert browser.get(f"/runs/{run.pk}.json").json() == document

    def test_its_tag_stands_for_what_was_answered(self, viewer: Script, run: Run) -> None:
        tag = viewer.get(f"runs/{run.pk}")["ETag"]
        assert viewer.get(f"runs/{run.pk}", If_None_Match=tag).status_code == 304
        Run.objects.update(cancel_requested=True)
        assert viewer.get(f"runs/{run.pk}", If_None_Match=tag).status_code == 200


class TestPartOfIt:
    def test_an_interrupted_attempt_is_not_final_unless_there_is_no_other(self, viewer: Script) -> None:
        run = make_stored_run(
            make_attempt(1, 1, "failed"), make_attempt(1, 2, "interrupted"), make_attempt(2, 1, "interrupted")
        )
        document = read(viewer, f"runs/{run.pk}?attempts=final")
        assert list_tries(document) == [[(1, "passed")], [(1, "failed")], [(1, "interrupted")], []]
        assert [step["outcome"] for step in document["steps"]] == ["passed", "failed", None, None]

    def test_an_accepted_attempt_is_final_whatever_came_after_it(self, viewer: Script) -> None:
        run = make_stored_run(make_attempt(1, 1, "failed"), make_attempt(1, 2, "invalid"))
        Attempt.objects.filter(step__run=run, number=1, outcome="failed").update(is_accepted=True)
        step = read(viewer, f"runs/{run.pk}?attempts=final")["steps"][1]
        assert (step["outcome"], [attempt["number"] for attempt in step["attempts"]]) == ("failed", [1])

    def test_usage_and_issues_below_a_severity_can_be_left_out(self, viewer: Script, run: Run) -> None:
        for attempts in ("all", "final", "none"):
            document = read(viewer, f"runs/{run.pk}?usage=false&attempts={attempts}")
            assert '"usage"' not in json.dumps(document)
            assert ("steps" in document) == (attempts != "none")
        for severity, shown in (("low", 2), ("medium", 1), ("critical", 1)):
            document = read(viewer, f"runs/{run.pk}?min_severity={severity}")
            assert len(document["steps"][1]["attempts"][0]["issues"]) == shown
            assert document["issue_counts"] == {"low": 1, "medium": 1, "high": 1, "critical": 2}

    @pytest.mark.parametrize("query", ["", "?attempts=final&usage=false&min_severity=high"])
    def test_steps_and_attempts_have_addresses_of_their_own(self, viewer: Script, run: Run, query: str) -> None:
        make_stored_run(make_attempt(3, 1))
        steps = read(viewer, f"runs/{run.pk}{query}")["steps"]
        assert [(step["index"], step["name"], step["outcome"]) for step in steps] == [
            (0, "Input", "passed"), (1, "Step 1", "passed"), (2, "Step 2", "invalid"), (3, "Step 3", None),
        ]  # fmt: skip
        page = read(viewer, f"runs/{run.pk}/steps{query}")
        assert (page["items"], page["next"], page["previous"]) == (steps, None, None)
        for step in steps:
            assert read(viewer, f"runs/{run.pk}/steps/{step['index']}{query}") == step
        attempts = [attempt for step in read(viewer, f"runs/{run.pk}")["steps"][1:] for attempt in step["attempts"]]
        assert read(viewer, f"runs/{run.pk}/attempts")["items"] == attempts


class TestAttempts:
    @pytest.mark.parametrize(
        ("query", "places"),
        [
            ("", ["1.1", "1.2", "2.1", "2.2", "2.3"]),
            ("step=2", ["2.1", "2.2", "2.3"]),
            ("step=7", []),
            ("outcome=failed,invalid", ["1.1", "2.1", "2.3"]),
            ("outcome=passed&outcome=interrupted", ["1.2", "2.2"]),
            ("outcome=passed&step=2", []),
        ],
    )
    def test_they_are_filtered_and_paged(self, viewer: Script, run: Run, query: str, places: list[str]) -> None:
        pages = list(walk(viewer, f"runs/{run.pk}/attempts?limit=2&{query}"))
        assert [f"{item['step']}.{item['number']}" for page in pages for item in page] == places

    def test_pages_lead_back_and_ten_comes_after_nine(self, viewer: Script) -> None:
        run = make_stored_run(*(make_attempt(1, number, "failed") for number in range(1, 12)), make_attempt(2, 1))
        back = walk(viewer, f"runs/{run.pk}/attempts?limit=5&before=1.11", "previous")
        assert [[item["number"] for item in page] for page in back] == [[6, 7, 8, 9, 10], [1, 2, 3, 4, 5]]

    def test_one_comes_whole_and_one_that_runs_without_an_outcome(self, viewer: Script) -> None:
        request = {"model": "gpt-5", "messages": [{"role": "user", "content": "Tea?"}], "z": 1, "a": 2}
        output = {"value": ["\u2028 \u202e 🍵 </script> \x7f", 10**30, 1.5, None]}
        issue = make_issue("high", "Too short.", path="/text", suggestions=("Longer.",), context={"least": 9})
        same = {
            "input": {"seed": 7}, "output": output, "raw_output": {"text": " tea "}, "request": request,
            "model": "gpt-5", "failure_reason": "It is too short.", "plugins": {"check": "abc"},
        }  # fmt: skip
        attempt = make_attempt(1, 1, "failed", issues=(issue,), usage=make_usage(90), **same)
        run = make_stored_run(attempt, status=RunStatus.RUNNING)
        begin_attempt(run, 1, 2)
        document = read(viewer, f"runs/{run.pk}/steps/1/attempts/1")
        (described,) = document.pop("issues")
        found = {"code": "too_short", "severity": "high", "description": "Too short.", "audit": "", "path": "/text"}
        assert described == {**found, "context": {"least": 9}, "suggestions": ["Longer."]}
        tokens = {"prompt": 60, "completion": 30, "total": 90, "cached": 0, "reasoning": 0}
        assert document.pop("usage") == {**tokens, "reported": True, "cost": None, "unpriced": 0}
        place = f"runs/{run.pk}/steps/1/attempts/1"
        assert document == {
            **same, "step": 1, "number": 1, "outcome": "failed", "is_accepted": False,
            "response_id": None, "finish_reason": None, "error": None, "duration": 1.0,
            "started_at": "2026-11-21T11:55:00Z", "ended_at": "2026-11-21T11:55:01Z",
            "url": f"{HOST}/api/v1/{place}", "page_url": f"{HOST}/{place}/",
        }  # fmt: skip
        assert list(document["request"]) == list(request)
        running = read(viewer, f"runs/{run.pk}/steps/1/attempts/2")
        assert running.keys() == {*document, "issues", "usage"}
        assert (running["outcome"], running["output"], running["usage"], running["issues"]) == (None, None, None, [])


class TestIssues:
    ALL = ("1.1 critical", "1.1 low", "1.2 medium", "2.1 high", "2.1 critical")

    @pytest.mark.parametrize(
        ("query", "found"),
        [
            ("", ALL),
            ("min_severity=high", (ALL[0], ALL[3], ALL[4])),
            ("code=a", (ALL[0], ALL[2], ALL[4])),
            ("audit=One&min_severity=high", (ALL[0],)),
            ("step=2&code=a", (ALL[4],)),
            ("code=a'%20OR%201=1", ()),
        ],
    )
    def test_they_are_filtered_and_paged(self, viewer: Script, run: Run, query: str, found: tuple[str, ...]) -> None:
        make_retried_run()
        pages = list(walk(viewer, f"runs/{run.pk}/issues?limit=2&{query}"))
        places = [(item["attempt"], item["severity"]) for page in pages for item in page]
        assert tuple(f"{place['step']}.{place['number']} {severity}" for place, severity in places) == found

    def test_each_is_that_of_its_attempt(self, viewer: Script) -> None:
        issue = make_issue(
            "high", "Bad.", path="/a/0", context={"b": 1}, suggestions=("Good.",), vendor_id=7, attempt="x"
        )
        run = make_stored_run(make_attempt(1, 1, "failed", issues=(issue,)))
        (item,) = read(viewer, f"runs/{run.pk}/issues")["items"]
        place = item.pop("attempt")
        assert (place["step"], place["number"]) == (1, 1)
        # A field of an audit's own doesn't hide the attempt.
        assert read(viewer, place["url"])["issues"] == [{**item, "attempt": "x"}]


def test_the_parts_of_usage_add_up(viewer: Script) -> None:
    run = make_stored_run(
        make_attempt(1, 1, "failed", usage=make_usage(100, cost=Decimal("0.1")), model="gpt-5"),
        make_attempt(1, 2, usage=make_usage(200, cost=Decimal("0.2"))),
        make_attempt(2, 1, "interrupted", usage=TokenUsage(reported=False)),
        make_attempt(2, 2, "failed", usage=make_usage(30, cost=Decimal("0.03"))),
        make_attempt(2, 3, "failed", usage=make_usage(40, unpriced=1)),
        status=RunStatus.FAILED,
    )
    begin_attempt(run, 2, 4)
    document = read(viewer, f"runs/{run.pk}/usage")
    parts = [it["part"] for it in document["attempts"]]
    assert parts == ["first", "useful", "first", "first", "wasted", "wasted"]
    assert [it["usage"] and it["usage"]["total"] for it in document["attempts"]] == [100, 200, 0, 30, 40, None]
    sums = {name: (usage["total"], usage["cost"]) for name, usage in document["parts"].items()}
    assert sums == {"first": (130, "0.13000000"), "useful": (200, "0.20000000"), "wasted": (40, None)}
    assert [(step["index"], step["usage"]["total"]) for step in document["steps"]] == [(1, 300), (2, 70)]
    total = document["total"]
    assert (total["total"], total["cost"], total["unpriced"], total["reported"]) == (370, "0.33000000", 1, False)
    assert total == read(viewer, f"runs/{run.pk}")["usage"]
    first = document["attempts"][0]
    assert (first["model"], read(viewer, first["url"])["usage"]) == ("gpt-5", first["usage"])


def test_there_are_no_other_runs_steps_and_attempts(viewer: Script, run: Run) -> None:
    # Another run has such an attempt.
    make_stored_run(make_attempt(1, 1), make_attempt(1, 2), make_attempt(1, 3))
    nines = "9" * 30
    for place in ("4", nines, "one", "1/attempts/3", "0/attempts/2", "1/attempts/0", f"2/attempts/{nines}"):
        assert read_problem(viewer.get(f"runs/{run.pk}/steps/{place}"))["status"] == 404, place
    parts = ("", "/steps", "/steps/1", "/steps/1/attempts/1", "/steps/0/attempts/1", "/attempts", "/issues", "/usage")
    for number, part in product(("0", "4711", "abc", "1.5", str(2**63), "9" * 5_000), parts):
        assert read_problem(viewer.get(f"runs/{number}{part}"))["status"] == 404, (number, part)
