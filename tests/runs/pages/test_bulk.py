"""Cancelling and running again many runs at once on pages."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from runs import paging
from runs.bulk_actions import requests, work
from runs.models import BulkAction, BulkKind, Run, RunStatus, WorkState
from tests.engine.builders import NOON, make_flow
from tests.runs.builders import make_run, make_version, make_worker
from tests.runs.pages.history_builders import make_stored_run
from tests.runs.pages.reading import get_page, read_words

pytestmark = pytest.mark.django_db

CANCEL, RUN_AGAIN = "/runs/bulk/cancel/", "/runs/bulk/run-again/"


def choose(*runs: Run) -> dict[str, Any]:
    """What the list sends for chosen runs."""
    return {"scope": "chosen", "run": [run.pk for run in runs], "filters": ""}


def choose_all(filters: str = "") -> dict[str, Any]:
    return {"scope": "all", "filters": filters}


def ask(client: Client, address: str, choice: dict[str, Any]) -> Any:
    """The answer with the page that asks to confirm."""
    answer = client.get(address, choice)
    assert answer.status_code == 200
    return answer


def read_form(answer: Any) -> dict[str, list[str]]:
    """The fields of the form that asks to confirm."""
    fields: dict[str, list[str]] = {}
    for name, value in re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', answer.content.decode()):
        if name != "csrfmiddlewaretoken":
            fields.setdefault(name, []).append(value.replace("&amp;", "&"))
    return fields


def confirm(client: Client, address: str, choice: dict[str, Any], **fields: str) -> tuple[str, BulkAction]:
    """The address that it leads to, and what is done."""
    answer: Any = client.post(address, {**read_form(ask(client, address, choice)), **fields})
    action = BulkAction.objects.latest("pk")
    assert answer["Location"] == f"/runs/bulk/{action.pk}/"
    return answer["Location"], action


def make_failed(count: int, **fields: Any) -> list[Run]:
    version = make_version()
    return [make_run(version, status=RunStatus.FAILED, ended_at=NOON, **fields) for _ in range(count)]


def make_action(**fields: Any) -> BulkAction:
    values = {"kind": BulkKind.RUN_AGAIN, "run_ids": [9, 8, 7, 6], "run_count": 4, "position": 1}
    return BulkAction.objects.create(**{"token": "5eed" * 8, **values, **fields})


class TestAskingToConfirm:
    def test_all_that_match_are_shown_by_filters_examples_and_number(
        self, operator: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        runs = make_failed(12)
        make_stored_run()
        answer = ask(operator, RUN_AGAIN, choose_all("flow=example&status=failed"))
        preview = answer.context["preview"]
        assert (preview["count"], preview["is_exact"], preview["examples"]) == (12, True, runs[:1:-1])
        assert "Flow example Status failed" in read_words(answer.content.decode())
        answer = ask(operator, RUN_AGAIN, choose_all("status=failed,errored&audit=tea,milk"))
        assert "Status failed or errored Audit tea,milk" in read_words(answer.content.decode())
        # Very many are not counted.
        monkeypatch.setattr(requests, "MAX_COUNTED", 5)
        preview = ask(operator, RUN_AGAIN, choose_all()).context["preview"]
        assert (preview["count"], preview["is_exact"]) == (5, False)

    def test_a_run_that_rarely_matches_is_found_however_old_it_is(
        self, operator: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for module, name in ((requests, "MAX_COUNTED"), (requests, "PREVIEW_WINDOWS"), (paging, "FIRST_SCAN_SIZE")):
            monkeypatch.setattr(module, name, 1)
        monkeypatch.setattr(paging, "WINDOW", 2)
        (run,) = make_failed(1, cost=2)
        make_failed(12)
        preview = ask(operator, RUN_AGAIN, choose_all("cost=1")).context["preview"]
        assert preview["examples"] == [run]

    @pytest.mark.parametrize(
        ("address", "filters", "count"),
        [(CANCEL, "", 1), (CANCEL, "status=succeeded", 0), (RUN_AGAIN, "", 1), (RUN_AGAIN, "status=cancelled", 0)],
    )
    def test_runs_to_which_nothing_is_done_are_not_counted(
        self, operator: Client, address: str, filters: str, count: int
    ) -> None:
        make_stored_run()
        make_run()
        answer = ask(operator, address, choose_all(filters))
        assert answer.context["preview"]["count"] == count
        page = answer.content.decode()
        assert ('id="confirm"' in page) == bool(count)
        assert ("button-danger" in page) == (bool(count) and address == CANCEL)

    @pytest.mark.parametrize(
        "query",
        [
            "scope=chosen",
            "scope=chosen&run=1&run=x%3Cb%3E",
            "scope=chosen&run=99999999999999999999",
            "scope=chosen&" + "&".join(f"run={number}" for number in range(1, 1002)),
            "scope=all&filters=stauts%3Dfailed",
        ],
        ids=["none", "no number", "large", "many", "filter"],
    )
    @pytest.mark.parametrize("address", [CANCEL, RUN_AGAIN])
    def test_a_choice_that_is_not_valid_is_refused(self, operator: Client, address: str, query: str) -> None:
        make_run()
        assert operator.get(f"{address}?{query}").status_code == 400
        posted = operator.post(address, query, content_type="application/x-www-form-urlencoded")
        assert posted.status_code == 400
        assert Run.objects.get().status == RunStatus.QUEUED and not BulkAction.objects.exists()

    @pytest.mark.parametrize(
        ("fields", "cost", "unpriced", "simulated"),
        [({"cost": Decimal("0.25"), "unpriced_count": 3}, Decimal("0.5"), 6, 0), ({"is_simulated": True}, None, 0, 2)],
        ids=["real", "simulated"],
    )
    def test_running_again_says_what_the_originals_cost(
        self, operator: Client, fields: Any, cost: Decimal | None, unpriced: int, simulated: int
    ) -> None:
        preview = ask(operator, RUN_AGAIN, choose(*make_failed(2, **fields))).context["preview"]
        assert tuple(preview[name] for name in ("cost", "unpriced", "simulated")) == (cost, unpriced, simulated)


class TestDoingIt:
    def test_the_page_leads_to_the_new_runs_and_names_those_that_can_not_run(self, operator: Client) -> None:
        run, archived = make_stored_run(), make_stored_run(spec=make_flow())
        archived.flow.is_archived = True
        archived.flow.save()
        address, action = confirm(operator, RUN_AGAIN, choose(run, archived), version="live")
        assert (action.uses_live_version, action.done, action.failed) == (True, 1, 1)
        page = get_page(operator, address)
        assert f'href="/runs/?label=bulk-{action.pk}"' in page
        assert f"#{archived.pk} Failed" in read_words(page)
        new = Run.objects.latest("pk")
        assert (new.labels, new.started_by) == ([f"bulk-{action.pk}"], User.objects.get())

    @pytest.mark.parametrize("typed", ["", "0", "many", "10001", "٤"])
    def test_a_limit_that_is_not_valid_is_asked_for_again(self, operator: Client, typed: str) -> None:
        make_stored_run()
        form = read_form(ask(operator, RUN_AGAIN, choose_all()))
        answer: Any = operator.post(RUN_AGAIN, {**form, "most": typed, "version": "live"})
        assert (answer.status_code, answer.context["most"], answer.context["uses_live_version"]) == (422, typed, True)
        assert read_form(answer) == form and Run.objects.count() == 1

    def test_a_form_that_is_sent_twice_does_it_once_and_one_without_its_token_nothing(self, operator: Client) -> None:
        form = read_form(ask(operator, RUN_AGAIN, choose(make_stored_run())))
        first, second = (operator.post(RUN_AGAIN, form) for _ in range(2))
        assert first["Location"] == second["Location"] and Run.objects.count() == 2
        answer = operator.post(CANCEL, {"scope": "chosen", "run": make_run().pk, "token": "x"})
        assert (answer.status_code, BulkAction.objects.count()) == (400, 1)


class TestProgress:
    def test_the_page_asks_for_what_changes_until_it_has_ended(
        self, operator: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(work, "BATCH_SIZE", 2)
        monkeypatch.setattr(work.work_on, "__defaults__", (0.0,))
        make_worker()
        meant = {make_run().pk for _ in range(8)}
        address, action = confirm(operator, CANCEL, choose_all())
        make_run()
        page = get_page(operator, address)
        assert "In progress 2 runs cancelled · 2 of 8" in read_words(page)
        assert f'hx-get="{address}live?seen={action.revision}&amp;left_out=0"' in page
        assert operator.get(f"{address}live?seen={action.revision}").status_code == 204
        work.work_on(action.pk, timeout=60)
        changes = operator.get(f"{address}live?seen={action.revision}").content.decode()
        assert "Done 8 runs cancelled" in read_words(changes) and "hx-get" not in changes
        # Runs that begin after the question are not meant.
        assert set(Run.objects.filter(status=RunStatus.CANCELLED).values_list("pk", flat=True)) == meant

    def test_the_reasons_are_text_and_stay_in_place_until_there_are_more(self, viewer: Client) -> None:
        note = {"run": 7, "failed": True, "sentence": "<script>alert(1)</script>\u202e"}
        action = make_action(
            state=WorkState.FAILED, problem="It <b>failed</b>", failed=3, skipped=0, notes=[note], revision=3
        )
        address = f"/runs/bulk/{action.pk}/"
        page = get_page(viewer, address)
        assert "It &lt;b&gt;failed&lt;/b&gt;" in page and "&lt;script&gt;alert(1)&lt;/script&gt;\\u202e" in page
        assert "2 more" in page
        updates = [viewer.get(f"{address}live?seen=2&left_out={seen}").content.decode() for seen in (3, 0)]
        assert ['id="bulk-notes" hx-swap-oob' in update for update in updates] == [False, True]

    def test_another_user_who_may_cancel_may_stop_it(self, operator: Client) -> None:
        action = make_action(state=WorkState.WORKING, done=3, asked_by=User.objects.create_user("grace"))
        address = f"/runs/bulk/{action.pk}/"
        page = get_page(operator, address)
        assert 'id="bulk-stop"' in page and "manage.py run_worker" in page
        operator.post(f"{address}stop/")
        action.refresh_from_db()
        assert (action.state, action.done) == (WorkState.STOPPED, 3)
        assert 'id="bulk-stop"' not in get_page(operator, address)
