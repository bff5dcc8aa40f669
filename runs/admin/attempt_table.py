"""The attempts of a run as a table, one line each."""

from __future__ import annotations

from django.db.models import Prefetch, QuerySet
from django.template.loader import render_to_string

from runs.admin.cells import ATTEMPT_DOCUMENTS, find_usage, show_cost, show_issue_counts, show_outcome, show_tokens
from runs.models import Attempt, Issue, Run


def render_attempts(attempts: QuerySet[Attempt], run: Run) -> str:
    """The table of ``attempts``, all of ``run``, in their order. Takes two queries, however many there are."""
    issues = Prefetch("issues", queryset=Issue.objects.only("attempt_id", "severity"))
    rows = attempts.select_related("step", "usage").defer(*ATTEMPT_DOCUMENTS).prefetch_related(issues)
    lines = []
    for row in rows.order_by("step__index", "number"):
        usage = find_usage(row)
        counts = show_issue_counts(row.issues.all())
        lines.append((row, show_outcome(row, run), counts, show_tokens(usage), show_cost(usage)))
    return render_to_string("admin/runs/attempts.html", {"lines": lines})
