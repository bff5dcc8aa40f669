"""What an open page of a run under way is sent, and when its head is sent again."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from flows.models import Flow
from runs.models import Run, RunStatus
from runs.models.run import in_future
from tests.engine.builders import NOON, make_attempt
from tests.runs.builders import make_run, make_worker
from tests.runs.pages.history_builders import begin_attempt, make_retried_run, make_stored_run
from tests.runs.pages.reading import HTMX, get_page, read_poller, read_words, run_address
from tests.site.test_content_security import InlineFinder

pytestmark = pytest.mark.django_db


def poll(client: Client, run: Run, revision: int, seen: str) -> tuple[int, str]:
    answer = client.get(f"/runs/{run.pk}/live?revision={revision}&seen={seen}", headers=HTMX)
    return answer.status_code, answer.content.decode()


class TestAsking:
    def test_the_page_asks_for_what_is_new_until_the_run_has_ended(self, viewer: Client) -> None:
        run = make_stored_run(make_attempt(1, 1), status=RunStatus.RUNNING)
        begin_attempt(run, 2, 1)
        assert f"/runs/{run.pk}/live?revision=3&seen=2.1r&head=" in read_poller(get_page(viewer, run_address(run)))
        ended = make_retried_run()
        assert "/live?" not in get_page(viewer, run_address(ended))
        _, update = poll(viewer, ended, 2, "3.1r")
        assert "All steps passed." in update and '<div id="live" hidden></div>' in update
        assert "Succeeded. Step 3, attempt 1: passed." in read_words(update)

    def test_nothing_new_is_no_content_and_costs_one_query_for_the_run(self, viewer: Client) -> None:
        run = make_stored_run(make_attempt(1, 1), status=RunStatus.RUNNING)
        with CaptureQueriesContext(connection) as queries:
            assert poll(viewer, run, 3, "1.1") == (204, "")
        assert sum('"runs_' in one["sql"] and "session" not in one["sql"] for one in queries.captured_queries) == 1

    def test_what_is_shown_is_shown_only_to_who_may_see_it_now(self, viewer: Client) -> None:
        run = make_stored_run(make_attempt(1, 1), status=RunStatus.RUNNING)
        assert poll(viewer, run, 3, "1.1")[0] == 204
        User.objects.get(username="ada").user_permissions.clear()
        assert poll(viewer, run, 3, "1.1")[0] == 403
        status, page = poll(viewer, run, 2, "1.1")
        assert status == 403 and "Step 1" not in page
        viewer.post("/accounts/logout/")
        answer = viewer.get(f"/runs/{run.pk}/live?revision=3&seen=1.1", headers=HTMX)
        assert answer["HX-Redirect"].startswith("/accounts/login/")

    @pytest.mark.parametrize("session", ["", "*" * 32, "a" * 300, "a\u00e9" * 8])
    def test_a_cookie_that_is_no_session_is_asked_to_sign_in(self, client: Client, session: str) -> None:
        run = make_stored_run(make_attempt(1, 1), status=RunStatus.RUNNING)
        client.cookies["sessionid"] = session
        answer = client.get(f"/runs/{run.pk}/live?revision=3&seen=1.1")
        assert answer["Location"].startswith("/accounts/login/")

    def test_a_page_is_told_when_no_worker_is_alive_any_more(self, viewer: Client) -> None:
        run = make_run(available_at=in_future(-timedelta(minutes=1)))
        assert "&unattended" in read_poller(get_page(viewer, run_address(run)))
        worker = make_worker()
        status, update = poll(viewer, run, 0, "0.0&unattended")
        assert status == 200 and "No workers online" not in read_words(update)
        worker.delete()
        status, update = poll(viewer, run, 0, "0.0")
        assert status == 200 and "No workers online" in read_words(update)
        assert poll(viewer, run, 0, "0.0&unattended")[0] == 204

    @pytest.mark.parametrize("query", ["", "revision=1", "revision=x&seen=1.1", "revision=1&seen=now", "seen=1.1"])
    def test_a_question_that_makes_no_sense_is_refused(self, viewer: Client, query: str) -> None:
        assert viewer.get(f"/runs/{make_retried_run().pk}/live?{query}").status_code == 400


class TestUpdates:
    @pytest.fixture
    def run(self) -> Run:
        run = make_stored_run(make_attempt(1, 1), make_attempt(2, 1, "failed"), status=RunStatus.RUNNING)
        begin_attempt(run, 2, 2)
        return run

    @staticmethod
    def go_on(viewer: Client, poller: str, run: Run, **changes: Any) -> str:
        """The update after another attempt began."""
        begin_attempt(run, 2, run.revision)
        Run.objects.filter(pk=run.pk).update(revision=run.revision + 1, total_tokens=77, attempt_count=9, **changes)
        return get_page(viewer, poller, headers=HTMX)

    def test_only_what_changed_is_sent(self, viewer: Client, run: Run) -> None:
        status, update = poll(viewer, run, 2, "2.1r")
        assert status == 200
        assert re.findall(r'<details class="attempt" id="(s\da\d)"[^>]*?(hx-swap-oob="true")?>', update) == [
            ("s2a1", 'hx-swap-oob="true"'),
            ("s2a2", ""),
        ]
        assert '<div hx-swap-oob="beforeend:#s2-attempts"><details class="attempt" id="s2a2" open' in update
        assert 'id="s2-head" hx-swap-oob="true"' in update and 'id="s1-head"' not in update
        assert f"/runs/{run.pk}/live?revision=3&seen=2.2r" in read_poller(update)
        assert InlineFinder(update).found == []
        # One that the reader saw end is not sent again.
        assert re.findall(r'id="(s\da\d)"', poll(viewer, run, 2, "2.1")[1]) == ["s2a2"]

    def test_counts_chips_and_bill_are_kept_up_to_date_without_touching_the_filter(self, viewer: Client) -> None:
        _, update = poll(viewer, make_retried_run(), 2, "1.1r")
        assert '<span id="count-critical" hx-swap-oob="true">1</span>' in update
        assert '<div id="retry-bill" hx-swap-oob="true">' in update
        assert "Attempt 1: Failed, 1 critical" in update
        assert "data-hides" not in update and "data-hide=" not in update

    def test_an_attempt_leaves_the_head_where_it_is(self, viewer: Client, run: Run) -> None:
        poller = read_poller(get_page(viewer, run_address(run)))
        update = self.go_on(viewer, poller, run)
        assert 'id="run-head"' not in update and 'id="run-figures"' in update
        # It asks for the same head from then on.
        assert read_poller(update).partition("head=")[2] == poller.partition("head=")[2]
        assert 'id="run-head"' in get_page(viewer, poller.partition("&head=")[0], headers=HTMX)

    def test_a_run_that_is_being_cancelled_says_so(self, viewer: Client, run: Run) -> None:
        poller = read_poller(get_page(viewer, run_address(run)))
        update = self.go_on(viewer, poller, run, cancel_requested=True)
        assert 'id="run-head" hx-swap-oob="true"' in update and "Cancelling" in update

    def test_whoever_may_not_cancel_any_more_loses_the_button(self, viewer: Client, run: Run) -> None:
        user = User.objects.get(username="ada")
        right = Permission.objects.get(codename="change_run")
        user.user_permissions.add(right)
        page = get_page(viewer, run_address(run))
        assert 'id="cancel"' in page
        user.user_permissions.remove(right)
        update = self.go_on(viewer, read_poller(page), run)
        assert 'id="run-head"' in update and 'id="cancel"' not in update

    @pytest.mark.parametrize(
        ("fields", "title"),
        [
            ({"labels": ["nightly"]}, "Colour theme"),
            ({"deadline_at": NOON, "time_limit": timedelta(hours=1)}, "Colour theme"),
            ({"token_budget": 50_000}, "Colour theme"),
            ({"outputs_removed_at": NOON}, "Colour theme"),
            ({}, "Another title"),
        ],
        ids=lambda value: next(iter(value), "title") if isinstance(value, dict) else "",
    )
    def test_whatever_else_its_head_shows_is_sent_anew(
        self, viewer: Client, run: Run, fields: dict[str, Any], title: str
    ) -> None:
        poller = read_poller(get_page(viewer, run_address(run)))
        Flow.objects.update(title=title)
        assert 'id="run-head"' in self.go_on(viewer, poller, run, **fields)

    def test_what_is_used_of_a_budget_is_shown_in_the_head(self, viewer: Client, run: Run) -> None:
        Run.objects.update(token_budget=50_000)
        update = self.go_on(viewer, read_poller(get_page(viewer, run_address(run))), run)
        assert 'id="run-head"' in update and "77 of 50" in read_words(update)

    @pytest.mark.parametrize("status", [status for status in RunStatus if status != RunStatus.RUNNING])
    def test_another_status_is_shown_in_the_head(self, viewer: Client, run: Run, status: RunStatus) -> None:
        poller = read_poller(get_page(viewer, run_address(run)))
        ended_at = None if status == RunStatus.QUEUED else NOON
        update = self.go_on(viewer, poller, run, status=status, lease_until=None, ended_at=ended_at)
        assert 'id="run-head"' in update and status.label in read_words(update)
