"""What the lines of a file hold: which columns of runs and of what belongs to them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from flows.models import FlowVersion
from runs.archive.columns import Columns
from runs.documents import list_attempts
from runs.models import Attempt, Issue, Run, Step, TokenUsage

# What only means something while a run is under way here stays out.
RUN = Columns(
    Run,
    without=(
        "owner", "epoch", "lease_until", "suspect_since", "record_number", "available_at", "deadline_at", "next_model",
        "waiting_for", "waiting_since", "is_tallied",
    ),
)  # fmt: skip
STEP = Columns(Step)
ATTEMPT = Columns(Attempt)
ISSUE = Columns(Issue)
USAGE = Columns(TokenUsage)


def build_version_record(version: FlowVersion) -> dict[str, Any]:
    """A version with all that it takes to make it anew. Its flow must be loaded.

    ``flow`` and ``title`` are those of now; the definition has the name that the flow had when it was published.
    """
    return {
        "flow": version.flow.name,
        "title": version.flow.title,
        "number": version.number,
        "digest": version.digest,
        "created_at": version.created_at.isoformat(),
        "note": version.note,
        "spec": version.spec,
    }


def read_run_records(run_ids: Collection[int]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The version and the record of each of the runs that have ended, which lacks flow and number of the version."""
    attempts: dict[int, list[Attempt]] = {}
    for attempt in list_attempts().filter(step__run__in=run_ids).order_by("step__run_id", "step__index", "number"):
        attempts.setdefault(attempt.step.run_id, []).append(attempt)
    rows = Run.objects.ended().filter(pk__in=run_ids).select_related("started_by").order_by("pk")
    for run in rows:
        yield (
            run.version_id,
            {
                "id": run.pk,
                "started_by": run.started_by.get_username() if run.started_by else None,
                **RUN.write(run),
                "steps": _build_steps(attempts.pop(run.pk, [])),
            },
        )


def _build_steps(attempts: Sequence[Attempt]) -> list[dict[str, Any]]:
    steps: dict[int, dict[str, Any]] = {}
    for attempt in attempts:
        step = steps.setdefault(attempt.step_id, {**STEP.write(attempt.step), "attempts": []})
        usage = getattr(attempt, "usage", None)
        step["attempts"].append(
            {
                **ATTEMPT.write(attempt),
                "issues": [ISSUE.write(issue) for issue in attempt.issues.all()],
                "usage": USAGE.write(usage) if usage else None,
            }
        )
    return list(steps.values())


def split(record: Mapping[str, Any], *others: str) -> tuple[dict[str, Any], list[Any]]:
    """The columns of a record, and what else it holds under these names."""
    columns = {name: value for name, value in record.items() if name not in others}
    return columns, [record.get(name) for name in others]
