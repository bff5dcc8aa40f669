"""A test that commits leaves nothing behind for the next one, however little of the database is emptied after it."""

from __future__ import annotations

from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import Group, Permission, User
from django.contrib.contenttypes.models import ContentType
from django.core.management import call_command

from runs.models import TrailEntry
from tests.done_once import KEPT, MOST_ROWS
from tests.runs.pages.history_builders import make_retried_run

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.sql]


def end_test() -> None:
    """Do what Django does after a test with transactions."""
    call_command("flush", verbosity=0, interactive=False, reset_sequences=False)


def read_kept() -> list[Any]:
    return [list(model._default_manager.order_by("pk").values()) for model in KEPT]


def list_filled() -> list[str]:
    models = (model for model in apps.get_models() if model._meta.managed and model not in KEPT)
    return [model.__name__ for model in models if model._base_manager.exists()]


@pytest.fixture(autouse=True)
def _begun_with_empty_tables() -> None:
    end_test()


def test_all_that_was_stored_is_gone() -> None:
    before = read_kept()
    make_retried_run(labels=["pilot"])
    group = Group.objects.create(name="Readers")
    group.permissions.add(Permission.objects.latest("pk"))
    TrailEntry.objects.create(action="signed_in", actor=User.objects.create_user("ada"))
    end_test()
    assert list_filled() == []
    assert read_kept() == before


def test_so_are_very_many_rows() -> None:
    before = read_kept()
    Group.objects.bulk_create(Group(name=f"Group {number}") for number in range(MOST_ROWS + 1))
    end_test()
    assert list_filled() == []
    assert read_kept() == before


def test_permissions_that_were_changed_are_as_they_were() -> None:
    before = read_kept()
    Permission.objects.filter(codename="add_run").delete()
    Permission.objects.filter(codename="change_run").update(name="Changed")
    ContentType.objects.create(app_label="tea", model="pot")
    end_test()
    assert list_filled() == []
    assert read_kept() == before
