"""Taking runs away, or what they read and wrote: statements over many runs at once, in the caller's transaction.

Rows that others refer to go last. The ORM's own deletion would load every row first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from datetime import UTC, date, datetime

from django.db import connection
from django.db.models import Case, Count, F, Q, Value, When
from django.db.models.functions import Now, TruncDate

from runs.models import Attempt, EndReason, Run, Step, WebhookDelivery
from runs.retention.keys import Keys
from runs.search import forget_runs

HAS_TEXTS = Q(input__isnull=False) | Q(output__isnull=False) | Q(sent__isnull=False)
"""Of an attempt: whether it still has what it read and wrote."""
_ATTEMPT_TEXTS = "input = NULL, output = NULL, raw_output = NULL, failure_reason = ''"
_ISSUE_TEXTS = "description = '', path = NULL, context = '{}', suggestions = '[]', added_fields = '{}'"


def delete_runs(run_ids: Collection[int]) -> int:
    """Delete runs with all that belongs to them, and note the days that lack them; gives how many attempts they had.

    The caller holds their rows locked. What statistics counted of them stays.
    """
    forget_runs(run_ids)
    runs = Keys.of(run_ids)
    days = _count_days(runs)
    steps = _find_steps(runs)
    attempts = _find_attempts(steps)
    delete_attempts(attempts)
    steps.execute("DELETE FROM runs_step WHERE {among}", "id")
    _delete_deliveries(runs)
    for table, column in _list_dependents():
        runs.execute(f"DELETE FROM {table} WHERE {{among}}", column)  # noqa: S608  # our own names
    runs.execute("DELETE FROM runs_run WHERE {among}", "id")
    note_purged(days)
    return attempts.count


def delete_attempts(attempts: Keys) -> None:
    """Delete attempts with their requests, issues and usage."""
    for table in ("runs_issue", "runs_tokenusage", "runs_attemptrequest"):
        attempts.execute(f"DELETE FROM {table} WHERE {{among}}", "attempt_id")  # noqa: S608  # our own names
    attempts.execute("DELETE FROM runs_attempt WHERE {among}", "id")


def list_attempts(run_id: int, *, limit: int, with_texts: bool) -> Keys:
    """Up to so many attempts of a run; with ``with_texts`` only those that still have what they read and wrote."""
    rows = Attempt.objects.filter(step__run_id=run_id)
    if with_texts:
        rows = rows.filter(HAS_TEXTS)
    return Keys.of(rows.order_by("-pk").values_list("pk", flat=True)[:limit])


def remove_outputs(run_ids: Collection[int]) -> int:
    """Take from runs what they read and wrote, so that figures are left; gives how many attempts they have.

    Outcomes, usage, times, models, and code, audit and severity of issues stay. The caller holds their rows locked.
    """
    forget_runs(run_ids)
    runs = Keys.of(run_ids)
    attempts = _find_attempts(_find_steps(runs))
    remove_texts(attempts)
    _delete_deliveries(runs, where="state <> 'waiting' AND ")
    _empty_deliveries(runs)
    Run.objects.filter(runs.build_condition("runs_run.id")).update(
        input={},
        metadata={},
        # The sentence may quote what an audit said.
        end_sentence=Case(
            *(When(end_reason=reason.value, then=Value(f"{reason.label}.")) for reason in EndReason), default=Value("")
        ),
        outputs_removed_at=Now(),
        revision=F("revision") + 1,
    )
    return attempts.count


def remove_texts(attempts: Keys) -> None:
    """Take from attempts and their issues what they read and wrote."""
    attempts.execute(f"UPDATE runs_issue SET {_ISSUE_TEXTS} WHERE {{among}}", "attempt_id")  # noqa: S608  # constants
    attempts.execute("DELETE FROM runs_attemptrequest WHERE {among}", "attempt_id")
    statement = f"UPDATE runs_attempt SET {_ATTEMPT_TEXTS}, error = {_cut_message()} WHERE {{among}}"  # noqa: S608
    attempts.execute(statement, "id")


def note_purged(days: Counter[tuple[int, date]]) -> None:
    """Count runs of days, by flow and day, that are gone."""
    with connection.cursor() as cursor:
        # In one order, so that nobody waits for each other.
        cursor.executemany(
            "INSERT INTO runs_purgedday (flow_id, day, runs) VALUES (%s, %s, %s) "
            "ON CONFLICT (flow_id, day) DO UPDATE SET runs = runs_purgedday.runs + excluded.runs",
            [(flow_id, day.isoformat(), count) for (flow_id, day), count in sorted(days.items())],
        )


def find_day(moment: datetime) -> date:
    """The day of statistics that a moment belongs to."""
    return moment.astimezone(UTC).date()


def _count_days(runs: Keys) -> Counter[tuple[int, date]]:
    """How many of these runs ended on which day, by flow and day."""
    ended = Run.objects.filter(runs.build_condition("runs_run.id"), ended_at__isnull=False).order_by()
    days = ended.annotate(day=TruncDate("ended_at", tzinfo=UTC)).values_list("flow_id", "day")
    return Counter({(flow_id, day): count for flow_id, day, count in days.annotate(count=Count("pk"))})


def _find_steps(runs: Keys) -> Keys:
    return runs.find("SELECT id FROM runs_step WHERE {among}", "run_id")


def _find_attempts(steps: Keys) -> Keys:
    return steps.find("SELECT id FROM runs_attempt WHERE {among}", "step_id")


def _list_dependents() -> list[tuple[str, str]]:
    """Tables whose rows go with a run and that nothing refers to, each with its column for the run."""
    return [
        (relation.related_model._meta.db_table, relation.field.attname)
        for relation in Run._meta.related_objects
        if relation.related_model not in (Step, WebhookDelivery)
    ]


def _delete_deliveries(runs: Keys, *, where: str = "") -> None:
    # Whoever sends holds them locked while a try is added: none comes between the two deletions.
    lock = " ORDER BY id FOR UPDATE" if connection.vendor == "postgresql" else ""
    statement = f"SELECT id FROM runs_webhookdelivery WHERE {where}{{among}}{lock}"  # noqa: S608  # constants
    deliveries = runs.find(statement, "run_id")
    deliveries.execute("DELETE FROM runs_webhooktry WHERE {among}", "delivery_id")
    deliveries.execute("DELETE FROM runs_webhookdelivery WHERE {among}", "id")


def _empty_deliveries(runs: Keys) -> None:
    """Take the message from those that wait: it holds the input. The next try writes it anew, from what is left."""
    deliveries = runs.find("SELECT id FROM runs_webhookdelivery WHERE {among}", "run_id")
    deliveries.execute("UPDATE runs_webhookdelivery SET body = '' WHERE {among}", "id")
    # What a receiver answers may quote it.
    deliveries.execute("UPDATE runs_webhooktry SET response = '' WHERE {among}", "delivery_id")


def _cut_message() -> str:
    """The error of an attempt without what the provider said."""
    if connection.vendor == "postgresql":
        return "jsonb_set(error, '{message}', '\"\"')"
    return "json_set(error, '$.message', '')"
