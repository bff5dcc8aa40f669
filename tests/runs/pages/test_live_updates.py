"""What an open page of a run under way is sent, and when its head is sent again."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from flows.models import Flow
from runs.models import Run, RunStatus
from runs.models.run import in_future
from tests.engine.builders import NOON, make_attempt
from tests.runs.builders import make_run, make_worker
from tests.runs.pages.history_builders import begin_attempt, make_retried_run, make_stored_run
from tests.runs.pages.reading import (
    HTMX,
    attempt_address,
    find_selected,
    get_page,
    read_poller,
    read_words,
    run_address,
)
from tests.site.test_content_security import InlineFinder

pytestmark = pytest.mark.django_db


def poll(client: Client, run: Run, revision: int, seen: str) -> tuple[int, str]:
    answer = client.get(f"/runs/{run.pk}/live?revision={revision}&seen={seen}", headers=HTMX)
    return answer.status_code, answer.content.decode()


class TestAsking:
    def test_the_page_asks_for_what_is_new_until_the_run_has_ended(self, viewer: Client) -> None:
        run = make_stored_run(make_attempt(1, 1), status=RunStatus.RUNNING)
        begin_attempt(run, 2, 1)
        assert f"/runs/{run.pk}/live?revision=3&seen=2.1r&at=s2a1&follow&pane=s2a1.running&head=" in read_poller(
            get_page(viewer, run_address(run))
        )
        ended = make_retried_run()
        assert "/live?" not in get_page(viewer, run_address(ended))
        _, update = poll(viewer, ended, 2, "3.1r")
        assert "needed 2 attempts" in update and '<div id="live" hidden hx-swap-oob="true"></div>' in update
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

    def test_a_page_reports_that_no_worker_is_alive_any_more(self, viewer: Client) -> None:
        run = make_run(available_at=in_future(-timedelta(minutes=1)))
        assert "&unattended" in read_poller(get_page(viewer, run_address(run)))
        worker = make_worker()
        status, update = poll(viewer, run, 0, "0.0&unattended")
        assert status == 200 and "No workers online" not in read_words(update)
        worker.delete()
        status, update = poll(viewer, run, 0, "0.0")
        assert status == 200 and "No workers online" in read_words(update)
        assert poll(viewer, run, 0, "0.0&unattended")[0] == 204

    @pytest.mark.parametrize(
        "query",
        ["", "revision=1", "revision=x&seen=1.1", "revision=1&seen=now", "seen=1.1", "revision=1&seen=1.1&at=x"],
    )
    def test_a_question_that_is_not_valid_is_refused(self, viewer: Client, query: str) -> None:
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
        page = get_page(viewer, attempt_address(run, 1, 1))
        update = self.go_on(viewer, read_poller(page), run)
        swapped = re.findall(r'id="([\w-]+)"[^>]* hx-swap-oob="true"', update)
        assert swapped == [
            *("live", "phone-bar", "run-figures", "outline", "side-facts", "pane-head"),
            *("count-critical", "count-high", "count-medium", "count-low", "issue-marks"),
        ]
        assert 'aria-current="true"' in update and find_selected(update) == "s1a1"
        assert "data-hide=" not in update and 'id="latest" href="' + attempt_address(run, 2, 3) in update
        assert InlineFinder(update).found == []

    def test_an_attempt_leaves_the_head_where_it_is(self, viewer: Client, run: Run) -> None:
        poller = read_poller(get_page(viewer, run_address(run)))
        update = self.go_on(viewer, poller, run)
        assert 'id="run-head"' not in update and 'id="run-figures"' in update and 'id="messages"' not in update
        # It asks for the same head from then on.
        assert read_poller(update).partition("head=")[2] == poller.partition("head=")[2]
        assert 'id="run-head"' in get_page(viewer, poller.partition("&head=")[0], headers=HTMX)

    def test_a_run_that_is_being_cancelled_says_so(self, viewer: Client, run: Run) -> None:
        poller = read_poller(get_page(viewer, run_address(run)))
        update = self.go_on(viewer, poller, run, cancel_requested=True)
        assert 'id="run-head" hx-swap-oob="true"' in update and "Cancelling" in update
        # What a message said of the run is no longer so.
        assert '<div id="messages" hx-swap-oob="true"></div>' in update

    @pytest.mark.parametrize(
        "fields",
        [
            {"labels": ["nightly"]},
            {"deadline_at": NOON, "time_limit": timedelta(hours=1)},
            {"token_budget": 50_000},
            {"outputs_removed_at": NOON},
            {"status": RunStatus.ERRORED, "lease_until": None, "ended_at": NOON},
        ],
        ids=lambda fields: next(iter(fields)),
    )
    def test_whatever_else_its_head_shows_is_sent_again(self, viewer: Client, run: Run, fields: dict[str, Any]) -> None:
        poller = read_poller(get_page(viewer, run_address(run)))
        assert 'id="run-head"' in self.go_on(viewer, poller, run, **fields)

    def test_another_title_of_the_flow_is_shown_in_the_head(self, viewer: Client, run: Run) -> None:
        poller = read_poller(get_page(viewer, run_address(run)))
        Flow.objects.update(title="Another title")
        assert 'id="run-head"' in self.go_on(viewer, poller, run)
