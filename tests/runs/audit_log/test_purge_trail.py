"""``purge_trail``: no entry is deleted without one that says so."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.db import OperationalError
from django.utils import timezone

from runs.management.commands import purge_trail
from runs.models import AuditEntry

pytestmark = pytest.mark.django_db


def store_old_entries(count: int) -> None:
    for _ in range(count):
        AuditEntry.objects.create(action="run_started", at=timezone.now() - timedelta(days=400))


def test_a_purge_that_is_broken_off_has_logged_what_it_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    store_old_entries(5)
    real, calls = purge_trail._purge_batch, iter([True, True, False])

    def fail_later(before: datetime) -> int:
        if not next(calls):
            raise KeyboardInterrupt
        return real(before)

    monkeypatch.setattr(purge_trail, "BATCH_SIZE", 2)
    monkeypatch.setattr(purge_trail, "_purge_batch", fail_later)
    with pytest.raises(KeyboardInterrupt):
        call_command("purge_trail", "--days=365")
    entries = AuditEntry.objects.order_by("pk").values_list("action", "details__entries")
    assert list(entries) == [("run_started", None), ("trail_purged", 2), ("trail_purged", 2)]


def test_nothing_is_deleted_where_that_can_not_be_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    store_old_entries(1)

    def fail(**_: Any) -> None:
        raise OperationalError("disk full")

    monkeypatch.setattr(purge_trail, "leave_trail", fail)
    with pytest.raises(OperationalError):
        call_command("purge_trail", "--days=365")
    assert AuditEntry.objects.get().action == "run_started"
