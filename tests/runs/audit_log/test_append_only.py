"""Entries of the audit log stay as they are: the ORM refuses, and so does the database."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import DatabaseError, OperationalError, connection, models, transaction
from django.utils import timezone

from runs.management.commands import purge_trail
from runs.models import AppendOnlyError, AuditEntry

pytestmark = [pytest.mark.django_db, pytest.mark.sql]


def make_entry(**values: Any) -> AuditEntry:
    return AuditEntry.objects.create(**{"action": "run_started", "actor_name": "olga", **values})


@pytest.mark.parametrize(
    "attempt",
    [
        lambda entry: entry.save(),
        lambda entry: entry.delete(),
        lambda entry: AuditEntry.objects.filter(pk=entry.pk).update(actor_name="another"),
        lambda entry: AuditEntry.objects.all().delete(),
    ],
)
def test_the_model_refuses_changes(attempt: Callable[[AuditEntry], Any]) -> None:
    entry = make_entry()
    with pytest.raises(AppendOnlyError), transaction.atomic():
        attempt(entry)
    assert [row.actor_name for row in AuditEntry.objects.all()] == ["olga"]


def test_the_database_refuses_changes_of_every_column() -> None:
    make_entry()
    for field in AuditEntry._meta.concrete_fields:
        value = "1" if field.attname == "actor_id" else f'"{field.column}"'
        statement = f'UPDATE runs_auditentry SET "{field.column}" = {value}'  # noqa: S608  # names of columns
        with pytest.raises(DatabaseError, match="kept as they are"), transaction.atomic():
            connection.cursor().execute(statement)


@pytest.mark.skipif("connection.vendor != 'postgresql'", reason="SQLite deletes rows one by one when it is flushed")
def test_postgresql_refuses_to_delete_entries() -> None:
    make_entry()
    rows: models.QuerySet[AuditEntry] = models.QuerySet(model=AuditEntry)
    with pytest.raises(DatabaseError, match="kept as they are"), transaction.atomic():
        rows._raw_delete(rows.db)
    assert AuditEntry.objects.count() == 1


@pytest.mark.skipif("connection.vendor != 'postgresql'", reason="SQLite has no TRUNCATE")
@pytest.mark.parametrize("statement", ["TRUNCATE runs_auditentry", "TRUNCATE auth_user CASCADE"])
def test_postgresql_refuses_to_empty_the_table_unless_that_is_meant(statement: str) -> None:
    make_entry()
    # The tests themselves empty all tables after each that commits.
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL toolflow.empties_trail = 'off'")
        # The entry is of the same transaction: nothing of it may be left to its end.
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        with pytest.raises(DatabaseError, match="kept as they are"), transaction.atomic():
            cursor.execute(statement)
        assert AuditEntry.objects.count() == 1
        cursor.execute("SET LOCAL toolflow.empties_trail = 'on'")
        cursor.execute("TRUNCATE runs_auditentry")
    assert not AuditEntry.objects.exists()


def test_an_entry_outlives_the_user_and_keeps_the_name() -> None:
    user = User.objects.create_user("olga")
    entry = make_entry(actor=user)
    user.delete()
    entry.refresh_from_db()
    assert (entry.actor, entry.actor_name) == (None, "olga")


def test_the_command_purges_old_entries_in_batches_that_each_log_what_they_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(purge_trail, "BATCH_SIZE", 2)
    for days in (400, 399, 398, 100):
        make_entry(at=timezone.now() - timedelta(days=days))
    call_command("purge_trail", "--days=365", "--dry-run", stdout=StringIO())
    assert AuditEntry.objects.count() == 4
    call_command("purge_trail", "--days=365", stdout=StringIO())
    entries = AuditEntry.objects.order_by("pk").values_list("action", "details__entries")
    assert list(entries) == [("run_started", None), ("trail_purged", 2), ("trail_purged", 1)]
    with pytest.raises(CommandError):
        call_command("purge_trail", "--days=1")


def test_nothing_is_deleted_where_that_can_not_be_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    make_entry(at=timezone.now() - timedelta(days=400))

    def fail(**_: Any) -> None:
        raise OperationalError("disk full")

    monkeypatch.setattr(purge_trail, "log_audit_event", fail)
    with pytest.raises(OperationalError):
        call_command("purge_trail", "--days=365")
    assert AuditEntry.objects.get().action == "run_started"
