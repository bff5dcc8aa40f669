"""Cancelling and running again many runs at once, as an operator meets it on pages."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from runs.bulk_actions import preview, working
from runs.models import BulkAction, BulkKind, Run, RunStatus, WorkState
from tests.engine.builders import NOON, make_flow
from tests.runs.builders import make_run, make_version, make_worker
from tests.runs.pages.history_builders import make_retried_run, make_stored_run
from tests.runs.pages.reading import get_page, read_words, sign_in

pytestmark = pytest.mark.django_db

CANCEL, RUN_AGAIN = "/runs/bulk/cancel/", "/runs/bulk/run-again/"


def choose(*runs: Run, filters: str = "") -> dict[str, Any]:
    """What the list sends for chosen runs."""
    return {"scope": "chosen", "run": [run.pk for run in runs], "filters": filters}


def choose_all(filters: str = "") -> dict[str, Any]:
    return {"scope": "all", "filters": filters}


def ask(client: Client, address: str, choice: dict[str, Any]) -> str:
    """The page that asks to confirm."""
    answer = client.get(address, choice)
    assert answer.status_code == 200
    return answer.content.decode()


def confirm(client: Client, address: str, choice: dict[str, Any], **typed: str) -> Any:
    """The answer to the form of the page that asks to confirm, with what is typed there."""
    page = ask(client, address, choice)
    hidden: dict[str, list[str]] = {}
    for name, value in re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page):
        hidden.setdefault(name, []).append(value.replace("&amp;", "&"))
    most = re.search(r'name="most" inputmode="numeric" value="(\d+)"', page)
    return client.post(address, {**hidden, **({"most": most[1]} if most else {}), **typed})


def make_action(**fields: Any) -> BulkAction:
    values = {"kind": BulkKind.RUN_AGAIN, "newest": 100, "oldest": 1, "position": 51, "run_ids": None}
    return BulkAction.objects.create(**{"token": "5eed" * 8, **values, **fields})


class TestAskingToConfirm:
    def test_chosen_runs_are_named_and_ended_ones_left_out(self, operator: Client) -> None:
        queued, ended = make_run(), make_stored_run()
        words = read_words(ask(operator, CANCEL, choose(queued, ended)))
        assert "Cancel 1 run?" in words
        assert f"Queued Example #{queued.pk} v1" in words
        assert "1 chosen run has ended and stays as it is." in words
        assert f"#{ended.pk}" not in words

    def test_running_again_says_what_the_originals_cost(self, operator: Client, settings: Any) -> None:
        settings.TOOLFLOW_PROVIDER = "openai"
        runs = [make_stored_run(cost=Decimal("0.25"), unpriced_count=count) for count in (0, 3)]
        words = read_words(ask(operator, RUN_AGAIN, choose(*runs)))
        assert "Run 2 runs again?" in words
        assert "Each new run is billed again. The originals cost ≥ $0.5000 together; 3 attempts had no known" in words

    def test_costs_that_nobody_knows_are_not_nothing(self, operator: Client, settings: Any) -> None:
        settings.TOOLFLOW_PROVIDER = "openai"
        assert "What the originals cost is not known." in ask(operator, RUN_AGAIN, choose(make_stored_run()))
        simulated = make_stored_run(is_simulated=True)
        assert "The originals were simulated and cost nothing." in ask(operator, RUN_AGAIN, choose(simulated))

    def test_all_that_match_are_told_by_filters_examples_and_number(self, operator: Client) -> None:
        version = make_version()
        runs = [make_run(version, status=RunStatus.FAILED, ended_at=NOON) for _ in range(12)]
        make_stored_run()
        page = ask(operator, RUN_AGAIN, choose_all("flow=example&status=failed"))
        words = read_words(page)
        assert "Run 12 runs again?" in words
        assert "Flow example Status failed" in words
        assert [int(number) for number in re.findall(r'<a href="/runs/(\d+)/">', page)] == [
            run.pk for run in runs[:1:-1]
        ]
        assert "and older ones" in words
        assert 'name="most" inputmode="numeric" value="12"' in page

    def test_very_many_are_not_counted(self, operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(preview, "MAX_COUNTED", 5)
        version = make_version()
        for _ in range(8):
            make_run(version, status=RunStatus.FAILED, ended_at=NOON, cost=Decimal(2))
        words = read_words(ask(operator, RUN_AGAIN, choose_all()))
        assert "Run more than 5 runs again?" in words
        assert "No filter: all runs are meant." in words
        assert "The newest 5 of the originals cost $10.00 together" in words

    def test_cancelling_all_counts_only_runs_that_have_not_ended(self, operator: Client) -> None:
        make_stored_run()
        make_run()
        assert "Cancel 1 run?" in read_words(ask(operator, CANCEL, choose_all()))
        assert "No run to cancel" in ask(operator, CANCEL, choose_all("status=succeeded"))
        assert "No run to run again" in ask(operator, RUN_AGAIN, choose_all("status=cancelled"))

    @pytest.mark.parametrize(
        ("query", "sentence"),
        [
            ("scope=chosen", "No run is chosen. Tick runs in the list first."),
            ("scope=chosen&run=1&run=x%3Cb%3E", "“x<b>” is not a run number."),
            ("scope=chosen&run=99999999999999999999", "is not a run number."),
            ("scope=all&filters=status%3Dlost", "“lost” is not a status"),
            ("scope=all&filters=stauts%3Dfailed", "There is no filter “stauts”"),
        ],
    )
    @pytest.mark.parametrize("address", [CANCEL, RUN_AGAIN])
    def test_what_makes_no_sense_gets_a_sentence_and_nothing_is_done(
        self, operator: Client, address: str, query: str, sentence: str
    ) -> None:
        run = make_run()
        for answer in (
            operator.get(f"{address}?{query}"),
            operator.post(address, query, content_type="application/x-www-form-urlencoded"),
        ):
            assert answer.status_code == 400
            assert sentence in read_words(answer.content.decode())
        run.refresh_from_db()
        assert run.status == RunStatus.QUEUED
        assert not BulkAction.objects.exists()

    def test_queries_do_not_grow_with_runs(self, operator: Client) -> None:
        def count(number: int) -> int:
            version = make_version()
            for _ in range(number):
                make_run(version, status=RunStatus.FAILED, ended_at=NOON)
            with CaptureQueriesContext(connection) as queries:
                ask(operator, RUN_AGAIN, choose_all("status=failed"))
            return len(queries)

        assert count(1) == count(20)


class TestDoingIt:
    def test_chosen_runs_are_cancelled_at_once_and_the_page_says_so(self, operator: Client) -> None:
        first, second, other = (make_run() for _ in range(3))
        answer = confirm(operator, CANCEL, choose(first, second))
        action = BulkAction.objects.get()
        assert answer["Location"] == f"/runs/bulk/{action.pk}/"
        assert set(Run.objects.filter(status=RunStatus.CANCELLED)) == {first, second}
        words = read_words(get_page(operator, answer["Location"]))
        assert "Cancel 2 chosen runs By ada," in words
        assert "Done 2 runs cancelled" in words
        other.refresh_from_db()
        assert other.status == RunStatus.QUEUED

    def test_the_page_leads_to_the_new_runs_and_names_those_that_can_not_run(self, operator: Client) -> None:
        run, archived = make_stored_run(), make_stored_run(spec=make_flow())
        archived.flow.is_archived = True
        archived.flow.save()
        answer = confirm(operator, RUN_AGAIN, choose(run, archived), version="live")
        page = get_page(operator, answer["Location"])
        action = BulkAction.objects.get()
        assert action.uses_live_version
        assert "1 run started, 1 not possible" in read_words(page)
        assert f'href="/runs/?label=bulk-{action.pk}"' in page
        assert f"#{archived.pk} Not possible “Example” is archived." in read_words(page)
        new = Run.objects.latest("pk")
        assert (new.labels, new.started_by) == ([f"bulk-{action.pk}"], User.objects.get())

    def test_all_that_match_up_to_as_many_as_were_typed(self, operator: Client) -> None:
        version = make_version()
        for _ in range(6):
            make_run(version, status=RunStatus.FAILED, ended_at=NOON)
        confirm(operator, RUN_AGAIN, choose_all("status=failed"), most="4")
        assert Run.objects.filter(status=RunStatus.QUEUED).count() == 4

    @pytest.mark.parametrize("typed", ["", "0", "-1", "many", "10001", "٤"])
    def test_a_number_that_is_none_is_asked_for_again(self, operator: Client, typed: str) -> None:
        make_stored_run()
        answer = confirm(operator, RUN_AGAIN, choose_all(), most=typed)
        assert answer.status_code == 422
        assert f"“{typed}” is not how many runs may be started; write a number from 1 to 10" in answer.content.decode()
        assert Run.objects.count() == 1

    def test_runs_that_begin_while_somebody_reads_the_question_are_not_meant(self, operator: Client) -> None:
        meant = make_run()
        page = ask(operator, CANCEL, choose_all())
        hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page))
        later = make_run()
        operator.post(CANCEL, hidden)
        assert set(Run.objects.filter(status=RunStatus.CANCELLED)) == {meant}
        assert later.pk > meant.pk

    def test_a_form_that_is_sent_twice_leads_to_the_same_page(self, operator: Client) -> None:
        run = make_stored_run()
        page = ask(operator, RUN_AGAIN, choose(run))
        hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page))
        first, second = (operator.post(RUN_AGAIN, hidden) for _ in range(2))
        assert first["Location"] == second["Location"]
        assert Run.objects.count() == 2

    def test_a_form_of_somebody_elses_making_does_nothing(self, operator: Client) -> None:
        run = make_run()
        answer = operator.post(CANCEL, {"scope": "chosen", "run": run.pk, "token": "x"})
        assert answer.status_code == 400
        assert "Begin again from the list." in answer.content.decode()

    def test_whoever_may_only_start_runs_can_not_cancel_and_the_other_way_round(self, client: Client) -> None:
        run = make_run()
        sign_in(client, "view_run", "add_run")
        assert client.get(CANCEL, choose(run)).status_code == 403
        assert client.post(CANCEL, choose(run)).status_code == 403
        assert client.get(RUN_AGAIN, choose(run)).status_code == 200
        assert client.post("/runs/bulk/1/stop/").status_code == 403


class TestProgress:
    def test_a_long_one_shows_how_far_it_is_and_asks_for_what_changes(
        self, operator: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(working, "LOOK", 2)
        monkeypatch.setattr("runs.bulk_actions.requesting.REQUEST_PATIENCE", 0)
        make_worker()
        version = make_version()
        numbers = [make_run(version, created_at=NOON + timedelta(hours=number)).pk for number in range(8)][::-1]
        address = confirm(operator, CANCEL, choose_all())["Location"]
        action = BulkAction.objects.get()
        page = get_page(operator, address)
        assert f"Under way 2 runs cancelled; looked down to #{numbers[1]}" in read_words(page)
        assert '<progress value="14" max="100"' in page
        assert f'hx-get="{address}live?seen={action.revision}&amp;left_out=0"' in page
        assert operator.get(f"{address}live?seen={action.revision}").status_code == 204

        working.work_on(action_id=action.pk, turn=BulkAction.objects.get().turn, patience=60)
        changes = operator.get(f"{address}live?seen={action.revision}").content.decode()
        assert "Done 8 runs cancelled" in read_words(changes)
        assert "hx-get" not in changes
        assert 'id="bulk-status" hx-swap-oob="innerHTML"' in changes

    def test_runs_that_began_or_ended_since_it_was_confirmed_are_counted_at_the_end(self, operator: Client) -> None:
        version = make_version()
        runs = [make_run(version) for _ in range(5)]
        page = ask(operator, CANCEL, choose_all("status=queued"))
        assert "Cancel 5 runs?" in page
        hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page))
        Run.objects.filter(pk__in=[run.pk for run in runs[:2]]).update(status=RunStatus.FAILED, ended_at=NOON)
        address = operator.post(CANCEL, hidden)["Location"]
        words = read_words(get_page(operator, address))
        assert "Done 3 runs cancelled" in words
        assert "2 of the 5 runs no longer matched when it was their turn." in words
        changes = operator.get(f"{address}live?seen=none").content.decode()
        assert "3 runs cancelled, 0 left out. 2 no longer matched." in changes

    @pytest.mark.parametrize(
        "fields",
        [{"expected": 5}, {"expected": None, "done": 3}, {"expected": 5, "done": 2, "skipped": 3}],
        ids=["stopped early", "not counted", "none fell away"],
    )
    def test_nothing_is_said_of_runs_that_no_longer_match_where_it_is_not_known(
        self, viewer: Client, fields: dict[str, Any]
    ) -> None:
        state = WorkState.DONE if "done" in fields else WorkState.STOPPED
        action = make_action(kind=BulkKind.CANCEL, state=state, **fields)
        assert "no longer matched" not in get_page(viewer, f"/runs/bulk/{action.pk}/")

    def test_the_table_of_those_left_out_stays_in_place_until_it_grows(self, viewer: Client) -> None:
        note = {"run": 7, "failed": True, "sentence": "Its flow is archived."}
        action = make_action(state=WorkState.WORKING, failed=1, notes=[note], revision=3)
        address = f"/runs/bulk/{action.pk}/live?seen=2"
        assert 'id="bulk-notes" hx-swap-oob="innerHTML"' not in viewer.get(f"{address}&left_out=1").content.decode()
        changes = viewer.get(f"{address}&left_out=0").content.decode()
        assert 'id="bulk-notes" hx-swap-oob="innerHTML"' in changes
        assert "Its flow is archived." in changes

    def test_somebody_else_may_stop_it(self, operator: Client) -> None:
        make_worker()
        action = make_action(state=WorkState.WORKING, done=3, asked_by=User.objects.create_user("grace"))
        page = get_page(operator, f"/runs/bulk/{action.pk}/")
        assert "By grace," in page
        assert "Stop here" in page
        operator.post(f"/runs/bulk/{action.pk}/stop/")
        words = read_words(get_page(operator, f"/runs/bulk/{action.pk}/"))
        assert "Stopped 3 runs started" in words
        assert "What was done stays done." in words
        assert "Stop here" not in words

    def test_a_viewer_sees_it_and_can_not_stop_it(self, viewer: Client) -> None:
        action = make_action()
        page = get_page(viewer, f"/runs/bulk/{action.pk}/")
        assert "Stop here" not in page
        assert viewer.post(f"/runs/bulk/{action.pk}/stop/").status_code == 403

    def test_it_says_that_no_worker_runs(self, viewer: Client) -> None:
        action = make_action()
        assert "No worker is running." in get_page(viewer, f"/runs/bulk/{action.pk}/")
        make_worker()
        assert "No worker is running." not in get_page(viewer, f"/runs/bulk/{action.pk}/")

    def test_why_one_failed_and_what_models_wrote_is_inert(self, viewer: Client) -> None:
        note = {"run": 7, "failed": True, "sentence": "Its input doesn’t fit: <script>alert(1)</script>\u202e"}
        action = make_action(state=WorkState.FAILED, problem="Its filters <b>no</b> longer", failed=3, notes=[note])
        page = get_page(viewer, f"/runs/bulk/{action.pk}/")
        assert "Its filters &lt;b&gt;no&lt;/b&gt; longer" in page
        assert "&lt;script&gt;alert(1)&lt;/script&gt;\\u202e" in page
        assert "and 2 more" in page

    def test_the_list_has_them_all_with_their_state(self, viewer: Client) -> None:
        assert "None yet" in get_page(viewer, "/runs/bulk/")
        make_action(state=WorkState.DONE, done=5, skipped=2, failed=1)
        make_action(token="feed" * 8, kind=BulkKind.CANCEL, run_ids=[1, 2], query="")
        words = read_words(get_page(viewer, "/runs/bulk/"))
        assert re.search(r"Cancel 2 chosen runs bulk-\d+ Waiting 0 0", words)
        assert re.search(r"Run again all runs bulk-\d+ Done 5 3", words)

    @pytest.mark.parametrize("address", ["/runs/bulk/999/", "/runs/bulk/999/live?seen=1"])
    def test_a_missing_one_is_not_found(self, viewer: Client, address: str) -> None:
        assert viewer.get(address).status_code == 404


class TestBarAboveTheList:
    def test_it_offers_what_one_may_do_for_the_runs_that_are_shown(self, operator: Client) -> None:
        make_retried_run()
        page = get_page(operator, "/runs/?flow=colour-theme&status=succeeded")
        words = read_words(page)
        assert "Cancel the chosen runs" in words
        assert "Run all that match again…" in words
        assert '<input type="hidden" name="filters" value="flow=colour-theme&amp;status=succeeded">' in page
        assert 'href="/runs/export/csv?flow=colour-theme&amp;status=succeeded"' in page
        assert 'href="/runs/export/jsonl?flow=colour-theme&amp;status=succeeded&amp;with=attempts"' in page

    def test_a_viewer_is_offered_exports_only(self, viewer: Client) -> None:
        assert 'id="bulk"' not in get_page(viewer, "/runs/")
        make_retried_run()
        page = get_page(viewer, "/runs/")
        assert "/runs/export/csv" in page
        assert 'id="bulk"' not in page
