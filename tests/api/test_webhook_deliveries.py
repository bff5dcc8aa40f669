"""What receivers were told, as a script meets it that watches over them, and telling them again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.utils import timezone
from django_q.models import OrmQ
from pytest_django import DjangoAssertNumQueries

from runs.models import TokenScope, TrailEntry, WebhookDelivery, WebhookTry
from runs.webhooks.payload import build_body
from tests.api.asking import Script, make_token, make_user, read_problem
from tests.api.documents import SIGN_IN_QUERIES, read, settle
from tests.api.long_work import ADDRESS, make_delivery
from tests.engine.builders import make_flow
from tests.runs.builders import make_run, make_version
from tests.runs.pages.history_builders import make_page_flow

pytestmark = pytest.mark.django_db


def make_ended(version: Any = None, **fields: Any) -> WebhookDelivery:
    run = make_run(version, status="failed", ended_at=timezone.now())
    return make_delivery(run, **fields)


def make_several(count: int) -> list[WebhookDelivery]:
    version = make_version()
    return [make_ended(version) for _ in range(count)]


def add_try(delivery: WebhookDelivery, number: int = 1, **fields: Any) -> WebhookTry:
    now = timezone.now()
    values = {"started_at": now - timedelta(seconds=2), "ended_at": now, **fields}
    return WebhookTry.objects.create(delivery=delivery, number=number, **values)


def list_ids(script: Script, query: str = "") -> list[int]:
    return [item["id"] for item in read(script, f"webhook-deliveries{query}")["items"]]


def walk(script: Script, query: str, direction: str, *, is_upwards: bool = False) -> list[int]:
    """The numbers on all pages from there on, the greatest first."""
    found: list[int] = []
    address: str | None = f"webhook-deliveries{query}"
    while address:
        page = read(script, address)
        ids = [item["id"] for item in page["items"]]
        found = ids + found if is_upwards else found + ids
        address = page[direction]
    return found


class TestList:
    def test_each_says_what_was_told_to_whom_and_how_it_went(self, operator: Script) -> None:
        delivery = make_ended(try_count=2, last_status=503)
        (item,) = read(operator, "webhook-deliveries")["items"]
        run = delivery.run
        expected = {
            "id": delivery.pk,
            "message_id": delivery.message_id,
            "run": run.pk,
            "flow": run.flow.name,
            "event": "run.failed",
            "webhook_url": ADDRESS,
            "status": "waiting",
            "is_being_sent": False,
            "try_count": 2,
            "last_http_status": 503,
            "ended_at": None,
            "url": f"http://testserver/api/v1/webhook-deliveries/{delivery.pk}",
            "page_url": f"http://testserver/webhooks/{delivery.pk}/",
            "run_url": f"http://testserver/api/v1/runs/{run.pk}",
        }
        assert {name: item[name] for name in expected} == expected
        assert item.keys() - expected.keys() == {"created_at", "next_try_at"}

    def test_it_is_filtered_by_run_flow_and_state(self, viewer: Script) -> None:
        one = make_ended()
        other = make_ended(make_version(make_page_flow()), state="failed")
        third = make_ended(other.run.version, state="delivered")
        assert list_ids(viewer) == [third.pk, other.pk, one.pk]
        assert list_ids(viewer, f"?run={one.run_id}") == [one.pk]
        assert list_ids(viewer, f"?run={one.run_id}&flow=colour-theme") == []
        for number in (third.run_id + 1, 10**9, 2**63 - 1, 2**64):
            assert list_ids(viewer, f"?run={number}") == []
        assert list_ids(viewer, "?flow=colour-theme") == [third.pk, other.pk]
        assert list_ids(viewer, "?flow=colour-theme&status=failed") == [other.pk]
        assert list_ids(viewer, "?status=failed,waiting") == list_ids(viewer, "?status=failed&status=waiting")
        assert list_ids(viewer, "?status=failed,waiting") == [other.pk, one.pk]

    def test_pages_lead_to_its_end_and_back(self, viewer: Script) -> None:
        five, four, three, two, one = (row.pk for row in reversed(make_several(5)))
        first = read(viewer, "webhook-deliveries?limit=2")
        second = read(viewer, first["next"])
        assert [item["id"] for item in (*first["items"], *second["items"])] == [five, four, three, two]
        assert list_ids(viewer, f"?limit=2&before={two}") == [one]
        back = read(viewer, second["previous"])
        assert [item["id"] for item in back["items"]] == [five, four]

    def test_several_filters_find_the_same_page_by_page_in_both_directions(
        self, viewer: Script, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """However little is looked at for one page."""
        monkeypatch.setattr("runs.paging.FIRST_LOOK", 1)
        monkeypatch.setattr("runs.paging.WINDOW", 3)
        own, other = make_version(), make_version(make_page_flow())
        kinds = [(own, "failed"), (other, "waiting"), (other, "delivered"), (other, "failed"), (other, "delivered")]
        rows = [make_ended(version, state=state) for version, state in kinds * 3]
        told = [row.pk for row in reversed(rows) if row.run.flow_id == other.flow_id and row.state != "waiting"]
        query = "?flow=colour-theme&status=failed,delivered&limit=2"
        assert walk(viewer, query, "next") == told
        oldest = walk(viewer, f"{query}&after=1", "previous", is_upwards=True)
        assert oldest == [key for key in told if key > 1]
        unfiltered = [row.pk for row in reversed(rows) if row.state != "waiting"]
        assert walk(viewer, "?status=failed,delivered&limit=2", "next") == unfiltered

    def test_the_rarer_of_two_statuses_hides_none_of_the_other(
        self, viewer: Script, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("runs.paging.FIRST_LOOK", 1)
        monkeypatch.setattr("runs.paging.WINDOW", 3)
        own, other = make_version(), make_version(make_page_flow())
        kinds = [(other, "failed"), (other, "delivered"), (own, "delivered")]
        rows = [make_ended(version, state=state) for version, state in kinds for _ in range(4)]
        told = [row.pk for row in reversed(rows[:8])]
        assert walk(viewer, "?flow=colour-theme&status=failed,delivered&limit=2", "next") == told

    @pytest.mark.parametrize(
        ("query", "name"),
        [
            ("status=lost", "status"),
            ("run=0", "run"),
            ("run=tea", "run"),
            ("flow=", "flow"),
            ("flow=nowhere", "flow"),
            ("flow=%00", "flow"),
            ("flow=" + "x" * 201, "flow"),
            ("before=x", "before"),
            ("colour=red", "colour"),
        ],
    )
    def test_what_makes_no_sense_is_told_by_its_name(self, viewer: Script, query: str, name: str) -> None:
        answer = viewer.get(f"webhook-deliveries?{query}")
        assert answer.status_code == 400
        assert [error["parameter"] for error in read_problem(answer)["errors"]] == [name]

    def test_it_takes_as_many_queries_for_one_as_for_many(
        self, viewer: Script, django_assert_num_queries: DjangoAssertNumQueries
    ) -> None:
        make_several(3)
        settle(viewer)
        with django_assert_num_queries(SIGN_IN_QUERIES + 1):
            assert len(list_ids(viewer)) == 3


@pytest.mark.parametrize(
    ("group", "scope", "address"),
    [
        ("Viewer", TokenScope.EDIT, "https://hooks.example.com/…"),
        ("Operator", TokenScope.READ, "https://hooks.example.com/…"),
        ("Operator", TokenScope.RUN, ADDRESS),
    ],
)
def test_whoever_may_not_start_runs_is_shown_the_host_only(
    groups: None, group: str, scope: TokenScope, address: str
) -> None:
    delivery = make_ended()
    script = Script(make_token(make_user("ada", group), scope))
    assert read(script, f"webhook-deliveries/{delivery.pk}")["webhook_url"] == address
    assert read(script, "webhook-deliveries")["items"][0]["webhook_url"] == address


class TestOne:
    def test_it_has_what_was_sent_and_what_came_of_each_try(self, viewer: Script) -> None:
        delivery = make_ended(try_count=2, last_status=500)
        WebhookDelivery.objects.filter(pk=delivery.pk).update(body=build_body(delivery))
        add_try(delivery, 1, problem="There was no connection.")
        add_try(delivery, 2, status=500, problem="The receiver answered with 500.", response="Oops")
        document = read(viewer, f"webhook-deliveries/{delivery.pk}")
        assert document["payload"]["type"] == "run.failed"
        assert document["payload"]["data"]["id"] == delivery.run_id
        assert "webhook_url" not in document["payload"]["data"]
        told = [(one["number"], one["http_status"], one["problem"], one["response"]) for one in document["tries"]]
        assert told == [
            (1, None, "There was no connection.", ""),
            (2, 500, "The receiver answered with 500.", "Oops"),
        ]
        assert [one["duration"] for one in document["tries"]] == [2.0, 2.0]

    def test_before_the_first_try_it_has_what_will_be_sent(
        self, viewer: Script, django_assert_num_queries: DjangoAssertNumQueries
    ) -> None:
        delivery = make_ended()
        settle(viewer)
        with django_assert_num_queries(SIGN_IN_QUERIES + 3):
            document = read(viewer, f"webhook-deliveries/{delivery.pk}")
        assert (document["payload"]["data"]["status"], document["tries"]) == ("failed", [])

    @pytest.mark.parametrize("number", ["4711", str(2**63), "9" * 30])
    def test_there_is_none_of_another_number(self, viewer: Script, operator: Script, number: str) -> None:
        assert viewer.get(f"webhook-deliveries/{number}").status_code == 404
        assert operator.post(f"webhook-deliveries/{number}/send-again").status_code == 404


class TestSendingAgain:
    def test_it_is_tried_at_once_with_all_retries_before_it(self, operator: Script) -> None:
        delivery = make_ended(state="failed", try_count=8, next_try_at=None, ended_at=timezone.now())
        answer: Any = operator.post(f"webhook-deliveries/{delivery.pk}/send-again")
        assert (answer.status_code, answer["Retry-After"]) == (202, "1")
        assert (answer.json()["status"], answer.json()["ended_at"]) == ("waiting", None)
        delivery.refresh_from_db()
        assert (delivery.tries_before, delivery.is_waiting) == (8, True)
        assert WebhookDelivery.objects.due().get() == delivery

    def test_the_trail_tells_who_asked_by_which_token(self, operator: Script) -> None:
        delivery = make_ended(state="failed", next_try_at=None)
        operator.post(f"webhook-deliveries/{delivery.pk}/send-again")
        entry = TrailEntry.objects.get(action="webhook_sent_again")
        assert (entry.actor_name, entry.token_name, entry.object_id) == ("operator", "operator edit", str(delivery.pk))

    def test_one_that_is_being_sent_is_left_alone(self, operator: Script) -> None:
        delivery = make_ended(try_count=1, sending_until=timezone.now() + timedelta(minutes=1))
        answer = operator.post(f"webhook-deliveries/{delivery.pk}/send-again")
        problem = read_problem(answer)
        assert (problem["status"], problem["type"]) == (409, "urn:toolflow:problem:being-sent")
        assert not TrailEntry.objects.filter(action="webhook_sent_again").exists()

    def test_sent_twice_with_one_key_it_is_sent_again_once(self, operator: Script) -> None:
        delivery = make_ended(state="failed", try_count=8, next_try_at=None)
        key = {"Idempotency_Key": "again-1"}
        first = operator.post(f"webhook-deliveries/{delivery.pk}/send-again", **key)
        second = operator.post(f"webhook-deliveries/{delivery.pk}/send-again", **key)
        assert first.content == second.content and second["Idempotency-Replayed"] == "true"
        assert TrailEntry.objects.filter(action="webhook_sent_again").count() == 1

    def test_it_takes_the_permission_to_see_runs_too(self, groups: None) -> None:
        delivery = make_ended()
        user = make_user("ada")
        user.user_permissions.set(Permission.objects.filter(codename="change_run"))
        problem = read_problem(Script(make_token(user)).post(f"webhook-deliveries/{delivery.pk}/send-again"))
        assert (problem["status"], "runs.view_run" in problem["detail"]) == (403, True)


@pytest.mark.django_db(transaction=True)
def test_a_sender_is_woken(operator: Script) -> None:
    delivery = make_ended(make_version(make_flow()), state="failed", next_try_at=None)
    assert operator.post(f"webhook-deliveries/{delivery.pk}/send-again").status_code == 202
    assert OrmQ.objects.count() == 1
