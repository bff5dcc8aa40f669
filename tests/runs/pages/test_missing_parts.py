"""Runs of which something is missing: a version that this release can read, texts that retention removed."""

from __future__ import annotations

import csv
import io
from datetime import timedelta
from typing import Any

import pytest
from django.db.models import QuerySet
from django.test import Client

from flows.models import FlowVersion
from runs.models import Run, RunStatus
from runs.models.run import in_future
from runs.retention.purging import remove_outputs
from tests.engine.builders import make_attempt, make_issue, make_usage
from tests.runs.builders import make_version
from tests.runs.pages.history_builders import begin_attempt, make_page_flow, make_stored_run
from tests.runs.pages.reading import HTMX, attempt_address, get_page, read_words, run_address

pytestmark = pytest.mark.django_db

FIRST, SECOND, THIRD = (
    make_issue("high", f"Colour {place} is wrong.", audit="Hex colours", code="hex_format", path=f"/{name}")
    for place, name in enumerate(("accent", "ground", "text"))
)
CLAIMS = ("Fixed", "fixed", "Persisted", "persisted", "Still there", "New here", "Returned", "returned")
"""What only the texts of issues could tell."""


class TestUnreadableVersions:
    """Made by a later release, or changed by hand."""

    SPECS = ({"steps": 7}, 7, {"steps": [{"name": 3}]}, {"name": "x", "steps": [], "new": 1})

    @pytest.fixture
    def run(self) -> Run:
        run = make_stored_run(
            make_attempt(1, 1, "failed", output={"accent": "red"}, issues=(FIRST,), usage=make_usage(100)),
            make_attempt(1, 2, request={"messages": [{"role": "user", "content": "Say tea."}]}, usage=make_usage(200)),
            make_attempt(2, 1, "failed"),
            status=RunStatus.FAILED,
            end_sentence="Step 2 “Step 2” did not pass in 1 attempt.",
            blocking_step=2,
            blocking_attempt=1,
            token_budget=5_000,
            model_settings={"temperature": "warm", "mood": 3},
        )
        self.set_spec(run, self.SPECS[0])
        return run

    def set_spec(self, run: Run, spec: Any) -> None:
        """Versions never change; one that can't be read was stored by another release."""
        QuerySet.update(FlowVersion.objects.filter(pk=run.version_id), spec=spec)

    def test_pages_show_what_is_stored_and_say_what_is_not_known(self, viewer: Client, run: Run) -> None:
        for spec in self.SPECS:
            self.set_spec(run, spec)
            words = read_words(get_page(viewer, run_address(run)))
            for shown in ("can’t read version 1 of the flow", "1 issue: fixed by attempt 2", "3 Step 3 : Not begun"):
                assert shown in words
        page = get_page(viewer, attempt_address(run, 1, 1))
        assert "Colour 0 is wrong." in page and "300 tokens" in read_words(page)
        assert "Say tea." in get_page(viewer, f"{attempt_address(run, 1, 2)}request/")
        get_page(viewer, f"{attempt_address(run, 1, 2)}input/")
        Run.objects.update(status=RunStatus.RUNNING, ended_at=None, lease_until=in_future(timedelta(minutes=1)))
        begin_attempt(run, 2, 2)
        assert 'id="s2a2"' in get_page(viewer, f"{run_address(run)}live?revision=1&seen=2.1&at=s2a1", headers=HTMX)

    def test_documents_have_the_steps_that_have_begun(self, admin_client: Client, run: Run) -> None:
        for address in (f"/runs/{run.pk}.json", f"/api/v1/runs/{run.pk}"):
            steps = admin_client.get(address).json()["steps"]
            assert [(step["index"], step["name"], len(step["attempts"])) for step in steps] == [
                (0, "Input", 1),
                (1, "Step 1", 2),
                (2, "Step 2", 1),
            ]
        address = f"/api/v1/runs/{run.pk}/steps"
        assert [step["index"] for step in admin_client.get(address).json()["items"]] == [0, 1, 2]
        assert admin_client.get(f"{address}/3").status_code == 404

    def test_its_runs_can_be_run_again_with_a_version_that_can_be_read(self, operator: Client, run: Run) -> None:
        address = f"/runs/new/{run.flow.name}/?from={run.pk}"
        assert operator.get(address).status_code == 409
        make_version(make_page_flow())
        page = get_page(operator, address)
        assert "tea" in page and 'value="5000"' in page
        assert operator.get(f"{address}&version=1").status_code == 409


def make_removed(**fields: Any) -> Run:
    run = make_stored_run(make_attempt(1, 1, output={"text": "Private words."}), **fields)
    remove_outputs([run.pk])
    return run


def read_comparison(client: Client, left: Run, right: Run) -> str:
    return read_words(get_page(client, f"/runs/compare/?a={left.pk}&b={right.pk}"))


class TestRemovedInputs:
    def test_they_are_not_called_the_same_as_others(self, viewer: Client) -> None:
        left, right, there = make_removed(), make_removed(), make_stored_run(make_attempt(1, 1))
        words = read_comparison(viewer, left, right)
        assert f"Removed by the retention policy: the inputs of #{left.pk} and #{right.pk}." in words
        assert "Same input" not in words
        for pair in ((left, there), (there, left)):
            words = read_comparison(viewer, *pair)
            assert f"Removed by the retention policy: the input of #{left.pk}." in words
            assert f"Removed by the retention policy: the output of #{left.pk}." in words
            assert "Same input" not in words

    def test_they_are_distinguished_from_empty_ones_in_exports_and_downloads(self, viewer: Client) -> None:
        removed, empty = make_removed(), make_stored_run(input={})
        answer: Any = viewer.get("/runs/export/csv")
        text = answer.getvalue().decode().removeprefix("\ufeff")
        assert [row["input"] for row in csv.DictReader(io.StringIO(text, newline=""))] == ["{}", ""]
        assert viewer.get(f"{attempt_address(removed, 0, 1)}?download").status_code == 404
        assert viewer.get(f"{attempt_address(empty, 0, 1)}?download").content == b"{}"


class TestRemovedIssues:
    @staticmethod
    def remove(run: Run) -> None:
        remove_outputs([run.pk])
        run.refresh_from_db()

    def test_they_are_counted_and_nothing_is_claimed_of_what_became_of_them(self, viewer: Client) -> None:
        run = make_stored_run(
            make_attempt(1, 1, "failed", issues=(FIRST, SECOND)),
            make_attempt(1, 2, "failed", issues=(THIRD,)),
            make_attempt(1, 3),
        )
        assert "3 issues: 2 fixed by attempt 2 , 1 fixed by attempt 3" in read_words(get_page(viewer, run_address(run)))
        self.remove(run)
        pages = [
            get_page(viewer, run_address(run)),
            get_page(viewer, f"{run_address(run)}live?revision=1&seen=1.2&at=s1a1"),
        ]
        for page in pages:
            assert "3 issues. Their later state is unknown" in read_words(page)
            assert "Attempt 1 : Failed 2 high" in read_words(page)
        pages += [get_page(viewer, attempt_address(run, 1, number)) for number in (1, 2, 3)]
        assert [read_words(page).count("Hex colours High") for page in pages[2:]] == [2, 1, 0]
        assert [claim for claim in CLAIMS for page in pages if claim in read_words(page)] == []

    def test_which_two_runs_share_can_not_be_known(self, viewer: Client) -> None:
        runs = [make_stored_run(make_attempt(1, 1, "failed", issues=(FIRST,))) for _ in range(2)]
        assert "Persisted 1" in read_comparison(viewer, *runs)
        for gone in (f"#{runs[0].pk}", f"#{runs[0].pk} and #{runs[1].pk}"):
            self.remove(runs[gone.count("and")])
            for pair in (runs, runs[::-1]):
                words = read_comparison(viewer, *pair)
                assert f"is not known: the texts of {gone} were removed." in words or "and" in gone
                assert not [claim for claim in ("Persisted 1", "Fixed 1", "New 1") if claim in words]
        # What the other run had no issue for is still known.
        assert "Fixed 1" in read_comparison(viewer, runs[0], make_stored_run(make_attempt(1, 1)))
