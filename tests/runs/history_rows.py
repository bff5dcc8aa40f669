"""Rows of history for tests of the admin, and what its lists show of them."""

from __future__ import annotations

from typing import Any

from django.test import Client
from django.utils import timezone

from flows.engine.history import Severity
from runs.facets import add_facets
from runs.models import Attempt, AttemptRequest, FacetKind, Issue, Run, Step, TokenUsage


def add_attempt(
    run: Run, number: int = 1, severities: tuple[str, ...] = (), *, step: int = 1, request: Any = None, **fields: Any
) -> Attempt:
    """An attempt that ended, with an issue of each severity, counted on the run as the recorder does."""
    row, _ = Step.objects.get_or_create(run=run, index=step, defaults={"name": f"Step {step}"})
    now = timezone.now()
    defaults = {"outcome": "failed" if severities else "passed", "output": {"text": "x"}, "started_at": now}
    attempt = Attempt.objects.create(step=row, number=number, ended_at=now, **{**defaults, **fields})
    if request is not None:
        AttemptRequest.objects.create(attempt=attempt, body=request)
    TokenUsage.objects.create(attempt=attempt, prompt=1_000, completion=200, total=1_200)
    for position, severity in enumerate(severities):
        Issue.objects.create(
            attempt=attempt,
            position=position,
            code=f"{severity}_code",
            audit=f"Audit of {severity}",
            severity=severity,
            description=f"A {severity} thing.",
            path="/text",
        )
        Run.objects.filter(pk=run.pk).update(**{f"issues_{severity}": 1})
        add_facets((run.pk, (FacetKind.SEVERITY, least)) for least in Severity if least <= Severity(severity))
    return attempt


def list_keys(client: Client, url: str, **filters: Any) -> list[Any]:
    """The keys of the rows of a list, in its order."""
    page = client.get(url, filters)
    assert page.status_code == 200, page
    return [row.pk for row in page.context["cl"].result_list]
