"""Taking runs away, or what they read and wrote: statements over many runs at once, in the caller's transaction.

Rows that others refer to go last. The ORM's own deletion would load every row first.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, date, datetime
from typing import Any

from django.db import connection
from django.db.models import Case, F, Q, Value, When
from django.db.models.functions import Now

from runs.models import Attempt, EndReason, Run, Step, WebhookDelivery

_ATTEMPT_TEXTS = "input = NULL, output = NULL, raw_output = NULL, request = NULL, failure_reason = ''"
_ISSUE_TEXTS = "description = '', path = NULL, context = '{}', suggestions = '[]', added_fields = '{}'"


def delete_runs(run_ids: Collection[int]) -> int:
    """Delete runs with all that belongs to them, and note the days that lack them; gives how many attempts they had.

    The caller holds their rows locked. What statistics counted of them stays.
    """
    ended = Run.objects.filter(pk__in=run_ids).values_list("flow_id", "ended_at")
    days = Counter((flow_id, find_day(ended_at)) for flow_id, ended_at in ended if ended_at is not None)
    steps = _find_steps(run_ids)
    attempts = _find_attempts(steps)
    delete_attempts(attempts)
    _execute("DELETE FROM runs_step WHERE {among}", "id", steps)
    _delete_deliveries(run_ids)
    for table, column in _list_dependents():
        _execute(f"DELETE FROM {table} WHERE {{among}}", column, run_ids)  # noqa: S608  # our own names
    # Triggers and cascades of the database take the words of search away with it.
    _execute("DELETE FROM runs_run WHERE {among}", "id", run_ids)
    note_purged(days)
    return len(attempts)


def delete_attempts(attempt_ids: Collection[int]) -> None:
    """Delete attempts with their issues and their usage."""
    for table in ("runs_issue", "runs_tokenusage"):
        _execute(f"DELETE FROM {table} WHERE {{among}}", "attempt_id", attempt_ids)  # noqa: S608  # our own names
    _execute("DELETE FROM runs_attempt WHERE {among}", "id", attempt_ids)


def list_attempts(run_id: int, *, limit: int, with_texts: bool) -> list[int]:
    """Up to so many attempts of a run; with ``with_texts`` only those that still have what they read and wrote."""
    rows = Attempt.objects.filter(step__run_id=run_id)
    if with_texts:
        rows = rows.filter(Q(input__isnull=False) | Q(output__isnull=False) | Q(request__isnull=False))
    return list(rows.order_by("-pk").values_list("pk", flat=True)[:limit])


def remove_outputs(run_ids: Collection[int]) -> int:
    """Take from runs what they read and wrote, so that figures are left; gives how many attempts they have.

    Outcomes, usage, times, models, and code, audit and severity of issues stay. The caller holds their rows locked.
    """
    attempts = _find_attempts(_find_steps(run_ids))
    remove_texts(attempts)
    _delete_deliveries(run_ids, where="state <> 'waiting' AND ")
    _empty_deliveries(run_ids)
    _execute("DELETE FROM runs_searchdocument WHERE {among}", "run_id", run_ids)
    Run.objects.filter(pk__in=run_ids).update(
        input={},
        metadata={},
        # The sentence may quote what an audit said.
        end_sentence=Case(
            *(When(end_reason=reason.value, then=Value(f"{reason.label}.")) for reason in EndReason), default=Value("")
        ),
        outputs_removed_at=Now(),
        revision=F("revision") + 1,
    )
    return len(attempts)


def remove_texts(attempt_ids: Collection[int]) -> None:
    """Take from attempts and their issues what they read and wrote."""
    _execute(f"UPDATE runs_issue SET {_ISSUE_TEXTS} WHERE {{among}}", "attempt_id", attempt_ids)  # noqa: S608  # constants
    statement = f"UPDATE runs_attempt SET {_ATTEMPT_TEXTS}, error = {_cut_message()} WHERE {{among}}"  # noqa: S608
    _execute(statement, "id", attempt_ids)


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


def _find_steps(run_ids: Collection[int]) -> list[int]:
    return list(Step.objects.filter(run_id__in=run_ids).order_by().values_list("pk", flat=True))


def _find_attempts(step_ids: Sequence[int]) -> list[int]:
    return [pk for (pk,) in _fetch("SELECT id FROM runs_attempt WHERE {among}", "step_id", step_ids)]


def _list_dependents() -> list[tuple[str, str]]:
    """Tables whose rows go with a run and that nothing refers to, each with its column for the run."""
    return [
        (relation.related_model._meta.db_table, relation.field.attname)
        for relation in Run._meta.related_objects
        if relation.related_model not in (Step, WebhookDelivery)
    ]


def _delete_deliveries(run_ids: Collection[int], *, where: str = "") -> None:
    # Whoever sends holds them locked while a try is added: none comes between the two deletions.
    lock = " ORDER BY id FOR UPDATE" if connection.vendor == "postgresql" else ""
    statement = f"SELECT id FROM runs_webhookdelivery WHERE {where}{{among}}{lock}"  # noqa: S608  # constants
    deliveries = [pk for (pk,) in _fetch(statement, "run_id", run_ids)]
    _execute("DELETE FROM runs_webhooktry WHERE {among}", "delivery_id", deliveries)
    _execute("DELETE FROM runs_webhookdelivery WHERE {among}", "id", deliveries)


def _empty_deliveries(run_ids: Collection[int]) -> None:
    """Take the message from those that wait: it holds the input. The next try writes it anew, from what is left."""
    deliveries = [pk for (pk,) in _fetch("SELECT id FROM runs_webhookdelivery WHERE {among}", "run_id", run_ids)]
    _execute("UPDATE runs_webhookdelivery SET body = '' WHERE {among}", "id", deliveries)
    # What a receiver answers may quote it.
    _execute("UPDATE runs_webhooktry SET response = '' WHERE {among}", "delivery_id", deliveries)


def _cut_message() -> str:
    """The error of an attempt without what the provider said."""
    if connection.vendor == "postgresql":
        return "jsonb_set(error, '{message}', '\"\"')"
    return "json_set(error, '$.message', '')"


def _execute(statement: str, column: str, keys: Collection[int]) -> None:
    if keys:
        with connection.cursor() as cursor:
            cursor.execute(*_bind(statement, column, keys))


def _fetch(statement: str, column: str, keys: Collection[int]) -> Iterable[tuple[Any, ...]]:
    if not keys:
        return []
    with connection.cursor() as cursor:
        cursor.execute(*_bind(statement, column, keys))
        return list(cursor.fetchall())


def _bind(statement: str, column: str, keys: Collection[int]) -> tuple[str, list[Any]]:
    """The statement with ``{among}`` as a condition that takes any number of keys as one parameter."""
    if connection.vendor == "postgresql":
        return statement.replace("{among}", f"{column} = ANY(%s)"), [list(keys)]
    among = f"{column} IN (SELECT value FROM json_each(%s))"  # noqa: S608  # our own names
    return statement.replace("{among}", among), [json.dumps(list(keys))]
