"""Pages and API of a run whose outputs were removed: they say so, and nothing breaks."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from runs.models import Run
from runs.retention.policy import Part, PurgeTask
from runs.retention.purging import purge
from tests.runs.retention.aged_runs import NOW, keep, store_aged_runs

pytestmark = pytest.mark.django_db


@pytest.fixture
def removed() -> Run:
    """A run with several attempts that lost its outputs."""
    run = store_aged_runs(8)[0]
    keep(run.flow, outputs_days=30)
    list(purge(PurgeTask(run.flow, Part.OUTPUTS, NOW)))
    run.refresh_from_db()
    return run


def test_its_page_says_what_was_removed_and_does_not_offer_to_run_it_again(admin_client: Client, removed: Run) -> None:
    page = admin_client.get(reverse("runs:page", args=[removed.pk])).content.decode()
    assert "by the retention policy (outputs are kept 30 days)." in page
    assert "Removed by the retention policy." in page
    assert "Run again" not in page and "Copy as curl" not in page
    assert "Private words" not in page


def test_its_other_pages_open(admin_client: Client, removed: Run) -> None:
    other = Run.objects.filter(flow=removed.flow).exclude(pk=removed.pk)[0]
    step = removed.steps.first()
    assert step is not None
    attempt = reverse("runs:attempt", args=[removed.pk, step.index, 1])
    for address in (
        attempt,
        attempt.removesuffix("/") + ".json",
        attempt + "request/",
        attempt + "input/",
        reverse("runs:document", args=[removed.pk]),
        reverse("runs:compare") + f"?a={removed.pk}&b={other.pk}",
        reverse("runs:list"),
        reverse("admin:runs_run_change", args=[removed.pk]),
    ):
        assert admin_client.get(address).status_code == 200, address


def test_the_start_page_says_that_its_input_cannot_be_filled_in(admin_client: Client, removed: Run) -> None:
    address = reverse("runs:start", args=[removed.flow.name])
    page = admin_client.get(f"{address}?from={removed.pk}").content.decode()
    assert f"Run #{removed.pk} can’t be filled in. Its input was removed by the retention policy." in page


def test_the_api_gives_nulls_and_refuses_to_run_it_again(admin_client: Client, removed: Run) -> None:
    answer: Any = admin_client.get(f"/api/v1/runs/{removed.pk}")
    document = answer.json()
    assert document["outputs_removed_at"] and document["input"] is None and document["metadata"] == {}
    assert {attempt["output"] and 1 for step in document["steps"] for attempt in step["attempts"]} == {None}
    again: Any = admin_client.post(f"/api/v1/runs/{removed.pk}/run-again", {}, content_type="application/json")
    assert again.status_code == 409
    assert again.json()["detail"] == (
        f"Run {removed.pk} can’t be run again: Its input was removed by the retention policy. Give an input."
    )
