"""How long rows are kept, and what the queue deletes every hour, whatever is wrong with a flow."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from axes.models import AccessAttempt
from django.conf import settings as site_settings
from django.contrib.auth import SESSION_KEY
from django.contrib.auth.models import User
from django.contrib.sessions.backends.db import SessionStore
from django.utils import timezone
from django.utils.module_loading import import_string
from django_q.models import Schedule

from flows.models import Flow
from runs.models import AuditEntry, IdempotentRequest, OriginalInput, Run, WebhookDelivery
from runs.retention import tasks
from runs.retention.policy import Part, effective_policy
from runs.retention.tasks import delete_batch, find_expired, purge_due
from tests.runs.builders import make_run
from tests.runs.retention.aged_runs import NOW, store_aged_runs

pytestmark = [pytest.mark.django_db, pytest.mark.sql]


def read_schedule() -> Schedule:
    return Schedule.objects.get(func="runs.retention.tasks.purge_due", schedule_type=Schedule.HOURLY)


class TestSchedule:
    def test_one_call_deletes_what_is_due_in_the_name_of_toolflow(self, settings: Any) -> None:
        store_aged_runs(6)
        settings.TOOLFLOW_KEEP_DAYS = 1
        before = read_schedule().next_run
        assert purge_due() == "Retention deleted or emptied 6 rows."
        assert not Run.objects.exists() and read_schedule().next_run == before
        entries = AuditEntry.objects.filter(action="data_deleted")
        assert set(entries.values_list("actor_name", flat=True)) == {"ToolFlow"}

    def test_a_flow_or_kind_of_rows_that_fails_keeps_no_other(
        self, settings: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        runs = store_aged_runs(6)
        settings.TOOLFLOW_KEEP_DAYS = 1
        bad = min((run.flow for run in runs), key=lambda flow: flow.name)
        make_sessions(-60)
        purge, delete = tasks.purge, tasks.delete_batch

        def purge_others(task: Any) -> Any:
            if task.flow == bad:
                raise ValueError("broken flow")
            return purge(task)

        def delete_others(expired: Any) -> int:
            if expired.model is WebhookDelivery:
                raise ValueError("broken rows")
            return delete(expired)

        monkeypatch.setattr(tasks, "purge", purge_others)
        monkeypatch.setattr(tasks, "delete_batch", delete_others)
        deleted = sum(run.flow != bad for run in runs) + 1
        assert purge_due() == f"Retention deleted or emptied {deleted} rows."
        assert {run.flow_id for run in Run.objects.all()} == {bad.pk}
        assert [bad.name in record.getMessage() for record in caplog.records] == [True, False]


def make_sessions(*seconds: int) -> None:
    """Sessions that expire in this number of seconds."""
    user = User.objects.create_user("ann")
    for length in seconds:
        store: SessionStore = import_string(f"{site_settings.SESSION_ENGINE}.SessionStore")()
        store[SESSION_KEY] = str(user.pk)
        store.set_expiry(length)
        store.save()


def make_older(row: Any, column: str, *, hours: int) -> None:
    type(row).objects.filter(pk=row.pk).update(**{column: timezone.now() - timedelta(hours=hours)})


def test_rows_of_other_kinds_go_once_they_are_of_no_use() -> None:
    run, now = make_run(), timezone.now()
    for days, state in ((31, "delivered"), (31, "failed"), (29, "delivered"), (31, "waiting")):
        ended_at = now - timedelta(days=days) if state != "waiting" else None
        url = f"https://{days}-{state}.example/"
        WebhookDelivery.objects.create(run=run, event="run.failed", url=url, host="a", state=state, ended_at=ended_at)
    user = User.objects.create(username="automator")
    for hours in (23, 25):
        answer = IdempotentRequest.objects.create(user=user, key=str(hours), fingerprint="x")
        make_older(answer, "created_at", hours=hours)
        attempt = AccessAttempt.objects.create(username="ann", ip_address=f"192.0.2.{hours}", failures_since_start=9)
        make_older(attempt, "attempt_time", hours=hours)
    for end in (now - timedelta(minutes=61), now - timedelta(minutes=59), None):
        ended = make_run(status="succeeded" if end else "queued", ended_at=end, is_input_redacted=True)
        OriginalInput.objects.create(run=ended, input={"name": "Ann"})
    make_sessions(-60, 60)
    found = {name: delete_batch(expired) for name, expired in find_expired(now).items()}
    assert {name: count for name, count in found.items() if count} == {
        "inputs of ended runs as they were before redaction": 1,
        "webhook deliveries": 2,
        "answers kept for Idempotency-Keys": 1,
        "failures to sign in": 1,
        "expired sign-ins": 1,
    }


@pytest.mark.parametrize(
    ("own", "installation", "expected"),
    [
        ((None, None), (None, None), "runs for ever, outputs for ever"),
        ((None, None), (365, 90), "runs 365 days, outputs 90 days"),
        ((30, 1), (365, 90), "runs 30 days, outputs 1 day"),
        ((30, None), (365, 90), "runs 30 days, outputs for ever"),
        ((None, 7), (365, 90), "runs 365 days, outputs 7 days"),
        ((0, None), (365, 90), "runs for ever, outputs 90 days"),
        ((0, 0), (365, 90), "runs for ever, outputs for ever"),
        ((None, 0), (365, 90), "runs 365 days, outputs for ever"),
    ],
)
def test_a_flow_falls_back_on_the_installation_and_outputs_go_with_their_run_at_last(
    own: tuple[Any, Any], installation: tuple[Any, Any], expected: str, settings: Any
) -> None:
    settings.TOOLFLOW_KEEP_DAYS, settings.TOOLFLOW_KEEP_OUTPUTS_DAYS = installation
    policy = effective_policy(Flow(keep_days=own[0], keep_outputs_days=own[1]))
    assert str(policy) == expected
    days = policy.keep_days
    assert policy.limit(Part.RUNS, NOW) == (None if days is None else NOW - timedelta(days=days))
