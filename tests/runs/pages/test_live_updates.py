"""What an open page of a run under way is sent."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from runs.models import Run, RunStatus
from runs.models.run import in_future
from tests.engine.builders import make_attempt
from tests.runs.builders import make_run, make_worker
from tests.runs.pages.history_builders import begin_attempt, make_retried_run, make_stored_run
from tests.runs.pages.reading import HTMX, get_page, read_words, run_address
from tests.site.test_content_security import InlineFinder

pytestmark = pytest.mark.django_db


class TestLive:
    @staticmethod
    def poll(client: Client, run: Run, revision: int, seen: str) -> tuple[int, str]:
        answer = client.get(f"/runs/{run.pk}/live?revision={revision}&seen={seen}", headers=HTMX)
        return answer.status_code, answer.content.decode()

    def test_the_page_of_a_run_under_way_asks_for_what_is_new(self, viewer: Client) -> None:
        run = make_stored_run(make_attempt(1, 1), status=RunStatus.RUNNING)
        begin_attempt(run, 2, 1)
        page = get_page(viewer, run_address(run))
        assert f'hx-get="/runs/{run.pk}/live?revision=3&amp;seen=2.1r&amp;head=' in page
        assert "Waiting for the model…" in page

    def test_the_page_of_a_run_that_ended_does_not_ask(self, viewer: Client) -> None:
        assert "/live?" not in get_page(viewer, run_address(make_retried_run()))

    def test_nothing_new_is_no_content(self, viewer: Client) -> None:
        run = make_stored_run(status=RunStatus.RUNNING)
        assert self.poll(viewer, run, 3, "0.0") == (204, "")

    def test_nothing_new_costs_one_query_for_the_run(self, viewer: Client) -> None:
        run = make_stored_run(make_attempt(1, 1), status=RunStatus.RUNNING)
        with CaptureQueriesContext(connection) as queries:
            self.poll(viewer, run, 3, "1.1")
        assert sum('"runs_' in one["sql"] and "session" not in one["sql"] for one in queries.captured_queries) == 1

    def test_what_is_shown_is_shown_only_to_who_may_see_it_now(self, viewer: Client) -> None:
        run = make_stored_run(make_attempt(1, 1), status=RunStatus.RUNNING)
        assert self.poll(viewer, run, 3, "1.1") == (204, "")
        User.objects.get(username="ada").user_permissions.clear()
        assert self.poll(viewer, run, 3, "1.1")[0] == 403
        status, page = self.poll(viewer, run, 2, "1.1")
        assert status == 403
        assert "Step 1" not in page

    def test_whoever_signed_out_is_asked_to_sign_in_at_once(self, viewer: Client) -> None:
        run = make_stored_run(make_attempt(1, 1), status=RunStatus.RUNNING)
        assert self.poll(viewer, run, 3, "1.1") == (204, "")
        viewer.post("/accounts/logout/")
        answer = viewer.get(f"/runs/{run.pk}/live?revision=3&seen=1.1", headers=HTMX)
        assert answer["HX-Redirect"].startswith("/accounts/login/")

    @pytest.mark.parametrize("session", ["", "x", "*" * 32, "a" * 300, "a\u00e9" * 8])
    def test_a_cookie_that_is_no_session_is_asked_to_sign_in(self, client: Client, session: str) -> None:
        run = make_stored_run(make_attempt(1, 1), status=RunStatus.RUNNING)
        client.cookies["sessionid"] = session
        answer = client.get(f"/runs/{run.pk}/live?revision=3&seen=1.1")
        assert answer["Location"].startswith("/accounts/login/")

    def test_a_run_that_is_gone_is_not_found(self, viewer: Client) -> None:
        run = make_stored_run(status=RunStatus.RUNNING)
        assert self.poll(viewer, run, 3, "0.0")[0] == 204
        Run.objects.all().delete()
        assert self.poll(viewer, run, 3, "0.0")[0] == 404

    def test_a_page_is_told_when_no_worker_is_alive_any_more(self, viewer: Client) -> None:
        run = make_run(available_at=in_future(-timedelta(minutes=1)))
        page = get_page(viewer, run_address(run))
        assert "&amp;unattended" in page
        worker = make_worker()
        assert self.poll(viewer, run, 0, "0.0&unattended")[0] == 200
        worker.delete()
        assert self.poll(viewer, run, 0, "0.0")[0] == 200
        assert self.poll(viewer, run, 0, "0.0&unattended")[0] == 204

    def test_only_what_changed_is_sent(self, viewer: Client) -> None:
        run = make_stored_run(make_attempt(1, 1), make_attempt(2, 1, "failed"), status=RunStatus.RUNNING)
        begin_attempt(run, 2, 2)
        status, update = self.poll(viewer, run, 2, "2.1r")
        assert status == 200
        assert re.findall(r'<details class="attempt" id="(s\da\d)"[^>]*?(hx-swap-oob="true")?>', update) == [
            ("s2a1", 'hx-swap-oob="true"'),
            ("s2a2", ""),
        ]
        assert '<div hx-swap-oob="beforeend:#s2-attempts"><details class="attempt" id="s2a2" open' in update
        assert 'id="s2-head" hx-swap-oob="true"' in update
        assert 'id="s1-head"' not in update
        assert f"/runs/{run.pk}/live?revision=3&amp;seen=2.2r" in update
        assert InlineFinder(update).found == []

    def test_an_attempt_that_the_reader_saw_end_is_not_sent_again(self, viewer: Client) -> None:
        run = make_stored_run(make_attempt(1, 1), status=RunStatus.RUNNING)
        begin_attempt(run, 2, 1)
        _, update = self.poll(viewer, run, 2, "1.1")
        assert re.findall(r'id="(s\da\d)"', update) == ["s2a1"]

    def test_the_last_update_brings_the_verdict_and_stops_asking(self, viewer: Client) -> None:
        _, update = self.poll(viewer, make_retried_run(), 2, "3.1r")
        assert "All steps passed." in update
        assert '<div id="live" hidden></div>' in update
        assert "Succeeded. Step 3, attempt 1: passed." in read_words(update)

    def test_counts_of_the_filter_are_kept_up_to_date_without_touching_its_state(self, viewer: Client) -> None:
        _, update = self.poll(viewer, make_retried_run(), 2, "1.1r")
        assert '<span id="count-critical" hx-swap-oob="true">1</span>' in update
        assert "data-hides" not in update and "data-hide=" not in update

    @pytest.mark.parametrize("query", ["", "revision=1", "revision=x&seen=1.1", "revision=1&seen=now", "seen=1.1"])
    def test_a_question_that_makes_no_sense_is_refused_with_the_right_form(self, viewer: Client, query: str) -> None:
        answer = viewer.get(f"/runs/{make_retried_run().pk}/live?{query}")
        assert answer.status_code == 400
        assert b"?revision=NUMBER&seen=STEP.ATTEMPT" in answer.content
