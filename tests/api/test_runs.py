"""Reading one run over the API: with all its history, or the part that is asked for."""

from __future__ import annotations

import json
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from flows.engine.history import TokenUsage
from runs.models import Priority, RunStatus
from runs.stored_history import load_history
from tests.api.asking import Script, read_problem
from tests.api.documents import SIGN_IN_QUERIES, read, settle
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


def list_tries(run: Any) -> list[list[tuple[int, str | None]]]:
    return [[(attempt["number"], attempt["outcome"]) for attempt in step["attempts"]] for step in run["steps"]]


class TestWholeRun:
    def test_every_attempt_comes_with_its_own_output_issues_and_usage(self, viewer: Script) -> None:
        run = make_retried_run()
        document = read(viewer, f"runs/{run.pk}")
        assert list_tries(document) == [
            [(1, "passed")],
            [(1, "failed"), (2, "passed")],
            [(1, "passed")],
            [(1, "passed")],
        ]
        failed, passed = document["steps"][1]["attempts"]
        assert failed["output"] == {"colours": ["#ff0000", "red"]}
        assert [(issue["code"], issue["path"], issue["vendor_id"]) for issue in failed["issues"]] == [
            ("hex_format", "/colours/1", 4711)
        ]
        assert passed["issues"] == []
        assert (failed["usage"]["total"], passed["usage"]["total"], document["usage"]["total"]) == (300, 600, 990)

    def test_step_0_is_the_input(self, viewer: Script) -> None:
        document = read(viewer, f"runs/{make_retried_run().pk}")
        (attempt,) = document["steps"][0]["attempts"]
        assert document["input"] == attempt["output"] == {"topic": "tea"}
        assert attempt["usage"]["total"] == 0

    def test_it_says_all_that_is_known_of_the_run(self, viewer: Script) -> None:
        run = make_run(
            make_version(make_page_flow()),
            status=RunStatus.ERRORED,
            end_reason="budget_exceeded",
            end_sentence="The budget is used up.",
            blocking_step=2,
            blocking_attempt=1,
            labels=["nightly"],
            metadata={"ticket": "T-7", "b": 1, "a": 2},
            priority=Priority.HIGH,
            token_budget=5_000,
            cost_budget=Decimal("0.5"),
            time_limit=timedelta(minutes=10),
            webhook_url="https://example.com/hook",
            started_by=User.objects.create(username="grace"),
            created_at=BEGIN,
            started_at=BEGIN,
            ended_at=NOON,
            cost=Decimal("0.00000002"),
            prompt_tokens=20,
            completion_tokens=10,
            total_tokens=30,
            unpriced_count=1,
            steps_passed=1,
            attempt_count=4,
            retry_count=2,
            issues_high=3,
        )
        document = read(viewer, f"runs/{run.pk}?attempts=none")
        assert document == {
            "id": run.pk,
            "flow": "colour-theme",
            "version": 1,
            "again_of": None,
            "status": "errored",
            "end_reason": "budget_exceeded",
            "end_sentence": "The budget is used up.",
            "blocking": {"step": 2, "attempt": 1},
            "waiting_for": None,
            "cancel_requested": False,
            "labels": ["nightly"],
            "metadata": {"ticket": "T-7", "b": 1, "a": 2},
            "priority": "high",
            "is_simulated": False,
            "model_settings": {"model": "gpt-5-mini"},
            "token_budget": 5_000,
            "cost_budget": "0.50000000",
            "time_limit": 600,
            # To whoever may only read.
            "webhook_url": "https://example.com/…",
            "started_by": "grace",
            "created_at": "2026-11-21T11:55:00Z",
            "started_at": "2026-11-21T11:55:00Z",
            "ended_at": "2026-11-21T12:00:00Z",
            "outputs_removed_at": None,
            "duration": 300.0,
            "input": {"topic": "tea"},
            "step_count": 3,
            "steps_passed": 1,
            "attempt_count": 4,
            "retry_count": 2,
            "issue_counts": {"low": 0, "medium": 0, "high": 3, "critical": 0},
            "usage": {
                "prompt": 20,
                "completion": 10,
                "total": 30,
                "cached": 0,
                "reasoning": 0,
                "cost": "0.00000002",
                "unpriced": 1,
            },
            "url": f"http://testserver/api/v1/runs/{run.pk}",
            "page_url": f"http://testserver/runs/{run.pk}/",
        }
        assert list(document["metadata"]) == ["ticket", "b", "a"]

    def test_what_is_not_there_is_null(self, viewer: Script) -> None:
        run = make_run()
        document = read(viewer, f"runs/{run.pk}")
        absent = (
            "end_reason", "end_sentence", "blocking", "waiting_for", "token_budget", "cost_budget", "time_limit",
            "webhook_url", "started_by", "started_at", "ended_at", "duration",
        )  # fmt: skip
        assert {name: document[name] for name in absent} == dict.fromkeys(absent)
        assert document["usage"]["cost"] is None
        assert (document["priority"], document["metadata"], document["labels"]) == ("normal", {}, [])

    def test_an_attempt_that_runs_has_all_fields_and_no_outcome(self, viewer: Script) -> None:
        run = make_stored_run(make_attempt(1, 1), status=RunStatus.RUNNING)
        begin_attempt(run, 2, 1)
        ended, running = (step["attempts"][0] for step in read(viewer, f"runs/{run.pk}")["steps"][1:3])
        assert running.keys() == ended.keys()
        assert (running["outcome"], running["output"], running["usage"]) == (None, None, None)
        assert (running["issues"], running["started_at"]) == ([], "2026-11-21T11:55:00Z")

    def test_the_page_gives_the_same_document_but_for_addresses(self, viewer: Script, client: Client) -> None:
        run = make_retried_run()
        document = read(viewer, f"runs/{run.pk}")
        for part in (document, *document["steps"], *(it for step in document["steps"] for it in step["attempts"])):
            part.pop("url"), part.pop("page_url", None)
        assert sign_in(client, "view_run").get(f"/runs/{run.pk}.json").json() == document

    def test_its_addresses_lead_to_its_parts_and_to_its_pages(self, viewer: Script, client: Client) -> None:
        run = make_retried_run()
        document = read(viewer, f"runs/{run.pk}")
        step = document["steps"][1]
        attempt = step["attempts"][1]
        assert read(viewer, document["url"].removeprefix("http://testserver")) == document
        assert read(viewer, step["url"].removeprefix("http://testserver")) == step
        assert read(viewer, attempt["url"].removeprefix("http://testserver")) == attempt
        page, _, anchor = attempt["page_url"].partition("#")
        assert page == document["page_url"]
        assert f'id="{anchor}"' in sign_in(client, "view_run").get(page).content.decode()

    def test_amounts_are_written_out(self, viewer: Script) -> None:
        usage = TokenUsage(prompt=1, completion=1, total=2, cost=Decimal(0))
        document = read(viewer, f"runs/{make_stored_run(make_attempt(1, 1, usage=usage)).pk}")
        assert document["usage"]["cost"] == document["steps"][1]["attempts"][0]["usage"]["cost"] == "0.00000000"

    def test_numbers_of_queries_don_t_grow(self, viewer: Script, django_assert_num_queries: Any) -> None:
        few = make_stored_run(make_attempt(1, 1, "failed"))
        many = make_stored_run(*(make_attempt(1, number, "failed") for number in range(1, 30)))
        settle(viewer)
        # The run, the names of its steps, its attempts, their issues.
        for run in (few, many):
            with django_assert_num_queries(SIGN_IN_QUERIES + 4):
                read(viewer, f"runs/{run.pk}")
        with django_assert_num_queries(SIGN_IN_QUERIES + 1):
            read(viewer, f"runs/{many.pk}?attempts=none")


class TestPartOfIt:
    def test_only_final_attempts(self, viewer: Script) -> None:
        run = make_retried_run()
        whole, final = (read(viewer, f"runs/{run.pk}?attempts={choice}") for choice in ("all", "final"))
        assert list_tries(final) == [[(1, "passed")], [(2, "passed")], [(1, "passed")], [(1, "passed")]]
        assert final["usage"] == whole["usage"]

    def test_an_interrupted_attempt_is_not_final_unless_there_is_no_other(self, viewer: Script) -> None:
        run = make_stored_run(
            make_attempt(1, 1, "failed"), make_attempt(1, 2, "interrupted"), make_attempt(2, 1, "interrupted")
        )
        document = read(viewer, f"runs/{run.pk}?attempts=final")
        assert list_tries(document) == [[(1, "passed")], [(1, "failed")], [(1, "interrupted")], []]
        assert [step["outcome"] for step in document["steps"]] == ["passed", "failed", None, None]
        assert load_history(run).final(1) == load_history(run).attempts(1)[0]

    def test_without_attempts_it_has_no_steps(self, viewer: Script) -> None:
        assert "steps" not in read(viewer, f"runs/{make_retried_run().pk}?attempts=none")

    @pytest.mark.parametrize("attempts", ["all", "final", "none"])
    def test_without_usage_nothing_says_what_it_used(self, viewer: Script, attempts: str) -> None:
        text = json.dumps(read(viewer, f"runs/{make_retried_run().pk}?usage=false&attempts={attempts}"))
        assert '"usage"' not in text and '"prompt"' not in text

    @pytest.mark.parametrize(
        ("severity", "shown"),
        [
            ("low", ["low", "medium", "high", "critical"]),
            ("medium", ["medium", "high", "critical"]),
            ("critical", ["critical"]),
        ],
    )
    def test_issues_below_a_severity_are_left_out_but_counted(
        self, viewer: Script, severity: str, shown: list[str]
    ) -> None:
        issues = tuple(make_issue(name) for name in ("low", "medium", "high", "critical"))
        run = make_stored_run(make_attempt(1, 1, "failed", issues=issues))
        document = read(viewer, f"runs/{run.pk}?min_severity={severity}")
        assert [issue["severity"] for issue in document["steps"][1]["attempts"][0]["issues"]] == shown
        assert document["issue_counts"] == {"low": 1, "medium": 1, "high": 1, "critical": 1}

    def test_each_parameter_that_is_not_valid_is_named(self, viewer: Script) -> None:
        run = make_retried_run()
        problem = read_problem(viewer.get(f"runs/{run.pk}?attempts=last&usage=1&min_severity=High"))
        assert problem["status"] == 400
        assert {error["parameter"] for error in problem["errors"]} == {"attempts", "usage", "min_severity"}

    def test_a_misspelt_parameter_is_not_passed_over(self, viewer: Script) -> None:
        problem = read_problem(viewer.get(f"runs/{make_retried_run().pk}?severity=high"))
        assert problem["errors"][0]["parameter"] == "severity"


@pytest.mark.parametrize(
    "part",
    [
        "",
        "/steps",
        "/steps/1",
        "/steps/0",
        "/steps/1/attempts/1",
        "/steps/0/attempts/1",
        "/attempts",
        "/issues",
        "/usage",
    ],
)
@pytest.mark.parametrize("number", ["0", "4711", "abc", "-1", "1.5", str(2**63 - 1), str(2**63), "9" * 40, "9" * 5_000])
def test_where_there_is_no_run_there_is_nothing(viewer: Script, number: str, part: str) -> None:
    assert read_problem(viewer.get(f"runs/{number}{part}"))["status"] == 404


def test_strangers_learn_nothing_of_runs(groups: None) -> None:
    run = make_retried_run()
    answers = [read_problem(Script().get(f"runs/{number}")) for number in (run.pk, run.pk + 1)]
    assert [answer["status"] for answer in answers] == [401, 401]


def test_a_run_can_be_asked_for_without_its_body(viewer: Script) -> None:
    answer = viewer.ask("HEAD", f"runs/{make_retried_run().pk}")
    assert (answer.status_code, answer.content) == (200, b"")


def test_times_are_in_utc_whatever_the_zone_of_the_installation_is(viewer: Script, settings: Any) -> None:
    settings.TIME_ZONE = "Asia/Tokyo"
    document = read(viewer, f"runs/{make_retried_run().pk}")
    assert (document["started_at"], document["steps"][1]["attempts"][0]["started_at"]) == ("2026-11-21T11:55:00Z",) * 2


def test_text_that_no_file_could_hold_comes_through(viewer: Script) -> None:
    nasty = "\u2028 \u202e 🍵 </script> \x7f"
    run = make_stored_run(make_attempt(1, 1, output={nasty: [nasty, None, 1.5, 10**30]}))
    document = read(viewer, f"runs/{run.pk}")
    assert document["steps"][1]["attempts"][0]["output"] == {nasty: [nasty, None, 1.5, 10**30]}


def test_usage_that_was_not_reported_is_told_apart_from_none(viewer: Script) -> None:
    run = make_stored_run(
        make_attempt(1, 1, "errored", usage=TokenUsage(reported=False)), make_attempt(1, 2, usage=make_usage(30))
    )
    document = read(viewer, f"runs/{run.pk}")
    first, second = document["steps"][1]["attempts"]
    assert (first["usage"]["reported"], second["usage"]["reported"], document["usage"]["reported"]) == (
        False,
        True,
        False,
    )
    assert first["error"]["code"] == "server_error"
