"""The head of a run's page is sent again only when it may have changed."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import DatabaseError, models, transaction
from django.template.loader import render_to_string
from django.test import Client, RequestFactory

from flows.models import Flow
from runs.models import Run, RunStatus
from runs.pages.run_head import name_head
from runs.pages.run_page import find_run_page
from tests.engine.builders import NOON, make_attempt
from tests.runs.pages.history_builders import begin_attempt, make_stored_run
from tests.runs.pages.reading import HTMX, get_page, run_address

pytestmark = pytest.mark.django_db

OTHERS: tuple[tuple[type, Any], ...] = (
    (bool, lambda value: not value),
    (int, lambda value: value + 7),
    (str, lambda value: f"{value}x"),
    (datetime, lambda value: value + timedelta(hours=1)),
    (timedelta, lambda value: value * 2),
    (Decimal, lambda value: value + 1),
    (list, lambda value: [*value, "more"]),
    (dict, lambda value: {**value, "more": 1}),
)
FIRST: dict[type[models.Field[Any, Any]], Any] = {
    models.DateTimeField: NOON,
    models.DurationField: timedelta(minutes=3),
    models.DecimalField: Decimal(2),
    models.JSONField: {"more": 1},
    models.CharField: "x",
    models.TextField: "x",
    models.FloatField: 0.5,
}
STATUSES = tuple(RunStatus)


def find_poller(page: str) -> str:
    """Where a page asks for news."""
    begin = page.index('hx-get="') + len('hx-get="')
    return page[begin : page.index('"', begin)].replace("&amp;", "&")


def change(row: Run | Flow, field: models.Field[Any, Any]) -> Any:
    """Another value for a column."""
    value = getattr(row, field.attname)
    if value is None:
        return next((first for kind, first in FIRST.items() if isinstance(field, kind)), 3)
    return next((other(value) for kind, other in OTHERS if isinstance(value, kind)), value)


def draw(run: Run, user: User) -> tuple[str, str]:
    """The head as HTML, and its name."""
    page = find_run_page(run.pk)
    request = RequestFactory().get(run_address(run))
    request.user = user
    return render_to_string("runs/run_head.html", {"page": page}, request=request), name_head(page, user)


@pytest.mark.parametrize("status", STATUSES)
def test_whatever_column_changes_what_it_shows_changes_its_name(status: RunStatus) -> None:
    run = make_stored_run(
        make_attempt(1, 1),
        status=status,
        token_budget=50_000,
        cost_budget=Decimal(3),
        time_limit=timedelta(hours=1),
        labels=["nightly"],
    )
    user = User.objects.create_superuser("ada")
    html, name = draw(run, user)
    assert (html, name) == draw(run, user)
    shown = set()
    for row in (run, run.flow):
        for field in row._meta.concrete_fields:
            # A run keeps its input from its creation to its removal, which has a column of its own.
            if field.primary_key or field.is_relation or field.name == "input":
                continue
            values = {status.value for status in STATUSES} if field.name == "status" else [change(row, field)]
            for value in values:
                with transaction.atomic():
                    try:
                        with transaction.atomic():
                            type(row)._base_manager.filter(pk=row.pk).update(**{field.attname: value})
                    except DatabaseError:
                        # The tables don't take it.
                        continue
                    other, others_name = draw(run, user)
                    if other != html:
                        shown.add(field.attname)
                        assert others_name != name, f"{field.attname} changes the head, not its name."
                    transaction.set_rollback(True)
    assert {"labels", "title", "total_tokens"} <= shown


def test_it_counts_the_attempts_that_a_loss_of_the_worker_interrupted(viewer: Client) -> None:
    attempts = [make_attempt(1, 1, "interrupted"), make_attempt(1, 2), make_attempt(2, 1, "interrupted")]
    run = make_stored_run(*attempts, status=RunStatus.RUNNING)
    assert "2 attempts interrupted because a worker was lost or stopped." in get_page(viewer, run_address(run))


class TestUpdates:
    """What an open page is sent."""

    @staticmethod
    def make_run() -> Run:
        run = make_stored_run(make_attempt(1, 1), status=RunStatus.RUNNING)
        begin_attempt(run, 2, 1)
        return run

    @staticmethod
    def go_on(run: Run, **changes: Any) -> None:
        begin_attempt(run, 2, run.revision)
        Run.objects.filter(pk=run.pk).update(revision=run.revision + 1, total_tokens=77, attempt_count=9, **changes)

    def test_an_attempt_leaves_the_head_where_it_is(self, viewer: Client) -> None:
        run = self.make_run()
        poller = find_poller(get_page(viewer, run_address(run)))
        self.go_on(run)
        update = get_page(viewer, poller, headers=HTMX)
        assert 'id="run-head"' not in update and 'id="run-figures"' in update
        # It asks for the same head from then on.
        assert find_poller(update).partition("head=")[2] == poller.partition("head=")[2]

    def test_a_page_that_names_no_head_gets_one(self, viewer: Client) -> None:
        run = self.make_run()
        poller = find_poller(get_page(viewer, run_address(run))).partition("&head=")[0]
        self.go_on(run)
        assert 'id="run-head"' in get_page(viewer, poller, headers=HTMX)

    def test_a_run_that_is_being_cancelled_says_so(self, viewer: Client) -> None:
        run = self.make_run()
        poller = find_poller(get_page(viewer, run_address(run)))
        self.go_on(run, cancel_requested=True)
        update = get_page(viewer, poller, headers=HTMX)
        assert 'id="run-head" hx-swap-oob="true"' in update and "Cancelling" in update

    def test_whoever_may_not_cancel_any_more_loses_the_button(self, viewer: Client) -> None:
        user, run = User.objects.get(username="ada"), self.make_run()
        right = Permission.objects.get(codename="change_run")
        user.user_permissions.add(right)
        page = get_page(viewer, run_address(run))
        assert 'id="cancel"' in page
        user.user_permissions.remove(right)
        self.go_on(run)
        update = get_page(viewer, find_poller(page), headers=HTMX)
        assert 'id="run-head"' in update and 'id="cancel"' not in update
