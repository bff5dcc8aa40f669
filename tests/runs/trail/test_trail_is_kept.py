"""Entries of the trail stay as they are: the ORM refuses, and so does the database."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError, connection, models, transaction
from django.utils import timezone

from runs.models import TrailEntry, TrailIsKeptError

pytestmark = [pytest.mark.django_db, pytest.mark.sql]


def make_entry(**values: Any) -> TrailEntry:
    return TrailEntry.objects.create(**{"action": "run_started", "actor_name": "olga", **values})


@pytest.mark.parametrize(
    "attempt",
    [
        lambda entry: entry.save(),
        lambda entry: entry.delete(),
        lambda entry: TrailEntry.objects.filter(pk=entry.pk).update(actor_name="somebody else"),
        lambda entry: TrailEntry.objects.all().delete(),
        lambda entry: TrailEntry.objects.bulk_update([entry], ["actor_name"]),
        lambda entry: TrailEntry.objects.update_or_create(pk=entry.pk, defaults={"actor_name": "somebody else"}),
    ],
)
def test_what_is_stored_can_not_be_changed_or_deleted(attempt: Callable[[TrailEntry], Any]) -> None:
    entry = make_entry()
    with pytest.raises(TrailIsKeptError, match="kept as they are"), transaction.atomic():
        attempt(entry)
    assert [row.actor_name for row in TrailEntry.objects.all()] == ["olga"]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE runs_trailentry SET actor_name = 'somebody else'",
        "UPDATE runs_trailentry SET at = at",
        "UPDATE runs_trailentry SET details = '{}'",
        "UPDATE runs_trailentry SET actor_id = 7",
    ],
)
def test_the_database_refuses_changes_too(statement: str) -> None:
    make_entry()
    with pytest.raises(DatabaseError, match="kept as they are"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)


def test_every_column_is_kept_but_for_the_user_who_may_go() -> None:
    make_entry()
    for field in TrailEntry._meta.concrete_fields:
        value = "1" if field.attname == "actor_id" else f'"{field.column}"'
        statement = f'UPDATE runs_trailentry SET "{field.column}" = {value}'  # noqa: S608  # names of columns
        with pytest.raises(DatabaseError, match="kept as they are"), transaction.atomic():
            connection.cursor().execute(statement)


@pytest.mark.skipif("connection.vendor != 'postgresql'", reason="SQLite deletes rows one by one when it is flushed")
def test_postgresql_refuses_to_delete_entries_unless_they_are_purged() -> None:
    make_entry()
    rows: models.QuerySet[TrailEntry] = models.QuerySet(model=TrailEntry)
    with pytest.raises(DatabaseError, match="kept as they are"), transaction.atomic():
        rows._raw_delete(rows.db)
    assert TrailEntry.objects.count() == 1


@pytest.mark.skipif("connection.vendor != 'postgresql'", reason="SQLite has no TRUNCATE")
@pytest.mark.parametrize("statement", ["TRUNCATE runs_trailentry", "TRUNCATE auth_user CASCADE"])
def test_postgresql_does_not_empty_the_trail_either_unless_that_is_meant(statement: str) -> None:
    make_entry()
    # The tests themselves empty all tables after each that commits.
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL toolflow.empties_trail = 'off'")
        # The entry is of the same transaction: nothing of it may be left to its end.
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        with pytest.raises(DatabaseError, match="kept as they are"), transaction.atomic():
            cursor.execute(statement)
        assert TrailEntry.objects.count() == 1
        cursor.execute("SET LOCAL toolflow.empties_trail = 'on'")
        cursor.execute("TRUNCATE runs_trailentry")
    assert not TrailEntry.objects.exists()


def test_an_entry_outlives_the_user_and_keeps_the_name() -> None:
    user = User.objects.create_user("olga")
    entry = make_entry(actor=user)
    user.delete()
    entry.refresh_from_db()
    assert (entry.actor, entry.actor_name) == (None, "olga")


def test_old_entries_are_purged_in_bounded_parts() -> None:
    now = timezone.now()
    old = [make_entry(at=now - timedelta(days=400 - day)) for day in range(5)]
    kept = make_entry()
    assert TrailEntry.objects.all().purge(before=now - timedelta(days=365), limit=3) == 3
    assert [entry.pk for entry in TrailEntry.objects.order_by("pk")] == [old[3].pk, old[4].pk, kept.pk]
    assert TrailEntry.objects.all().purge(before=now - timedelta(days=365), limit=3) == 2
    assert TrailEntry.objects.get() == kept
