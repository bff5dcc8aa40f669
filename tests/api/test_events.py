"""A run followed as a stream of events: what arrives, from where it goes on, and when it ends."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils import timezone

from runs.access_groups import create_groups
from runs.api import events
from runs.api.events import RunEvents
from runs.models import ApiToken, BrowserSession, Run
from runs.tokens import revoke_token
from tests.api.asking import Script, create_token, make_user, read_problem
from tests.api.event_reading import Event, follow
from tests.browser.run_under_way import RunUnderWay
from tests.engine.builders import make_issue, make_step, make_usage
from tests.moved_clock import MovedClock
from tests.runs.builders import make_run
from tests.runs.pages.history_builders import make_retried_run
from tests.serving import TIMEOUT, serve
from tests.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(events, "POLL_INTERVAL", 0.01)
    with serve() as port:
        yield port


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> MovedClock:
    return MovedClock(monkeypatch, events)


@pytest.fixture
def token(transactional_db: None) -> str:
    create_groups(apps=apps, using="default")
    return create_token(make_user("viewer", "Viewer"))


def outline(received: list[Event]) -> list[str]:
    """What events report, in a word or two each."""
    return [
        f"{event.document['step']}.{event.document['number']} {event.document['outcome']}"
        if event.name == "attempt"
        else f"{event.name} {event.document['status']}"
        for event in received
        if event.name != "comment"
    ]


class TestWhatArrives:
    def test_a_run_is_reported_as_it_goes_on_until_it_ends(self, server: int, token: str) -> None:
        run = RunUnderWay(make_step(1), make_step(2))
        with follow(server, run.run.pk, token) as reader:
            assert reader.headers["Content-Type"] == "text/event-stream"
            assert "no-store" in reader.headers["Cache-Control"]
            assert outline([reader.read_event()]) == ["run running"]
            run.end_attempt(
                "failed", issues=(make_issue("critical", "“red” is no hex colour."),), usage=make_usage(300)
            )
            assert outline([reader.read_event(), reader.read_event()]) == ["1.1 failed", "run running"]
            run.end_attempt()
            assert outline([reader.read_event(), reader.read_event()]) == ["1.2 passed", "run running"]
            run.end_attempt()
            assert outline(reader.read_rest()) == ["2.1 passed", "run succeeded", "end succeeded"]

    @pytest.mark.parametrize("batch_size", [2, 20])
    def test_a_client_that_breaks_off_anywhere_gets_the_rest_and_nothing_twice_as_documents_of_the_api(
        self, server: int, token: str, monkeypatch: pytest.MonkeyPatch, batch_size: int
    ) -> None:
        monkeypatch.setattr(events, "BATCH_SIZE", batch_size)
        run = make_retried_run()
        with follow(server, run.pk, token) as reader:
            received = reader.read_rest()
        assert outline(received) == [
            "1.1 failed", "1.2 passed", "2.1 passed", "3.1 passed", "run succeeded", "end succeeded",
        ]  # fmt: skip
        # By the same name: addresses in documents are those of the host that was asked.
        ask: Any = partial(Script(token).get, Host=f"127.0.0.1:{server}")
        *attempts, changed, end = (event.document for event in received)
        assert changed == end == ask(f"runs/{run.pk}?attempts=none").json()
        assert attempts == ask(f"runs/{run.pk}/attempts").json()["items"]
        for position, event in enumerate(received[:-1]):
            with follow(server, run.pk, token, last=event.id) as reader:
                assert reader.read_rest() == received[position + 1 :]
        with follow(server, run.pk, token, last=received[-1].id) as reader:
            assert (reader.status, reader.answer.read()) == (204, b"")

    def test_comments_show_that_a_quiet_connection_lives(self, server: int, token: str, clock: MovedClock) -> None:
        run = make_run()
        with follow(server, run.pk, token) as reader:
            assert outline([reader.read_event()]) == ["run queued"]
            for _ in range(3):
                clock.go_on(events.HEARTBEAT_INTERVAL)
                assert reader.read_event().name == "comment"
            run.request_cancel()
            assert outline(reader.read_rest()) == ["run cancelled", "end cancelled"]


def change_password(user: User) -> None:
    user.set_password("another one, not guessed")
    user.save()


ENDS: dict[str, Callable[[User], Any]] = {
    "token revoked": lambda user: revoke_token(ApiToken.objects.get(user=user)),
    "token expired": lambda user: ApiToken.objects.filter(user=user).update(expiry=timezone.now()),
    "signed out": lambda user: BrowserSession.objects.filter(user=user).delete(),
    "another password": change_password,
    "account closed": lambda user: User.objects.filter(pk=user.pk).update(is_active=False),
    "account deleted": lambda user: user.delete(),
    "permissions taken": lambda _: Group.objects.get(name="Viewer").permissions.clear(),
}
"""What ends the access of a user, by token or by session."""


class TestItsEnd:
    @pytest.mark.parametrize("end", sorted(ENDS.keys() - {"signed out", "another password"}))
    def test_a_client_that_would_not_be_let_in_any_more_gets_nothing_more(
        self, server: int, token: str, clock: MovedClock, end: str
    ) -> None:
        run = RunUnderWay(make_step(1), make_step(2))
        other = create_token(make_user("chief", "Administrator"))
        with follow(server, run.run.pk, token) as reader, follow(server, run.run.pk, other) as beside:
            for one in (reader, beside):
                assert outline([one.read_event()]) == ["run running"]
            ENDS[end](User.objects.get(username="viewer"))
            clock.go_on(events.ACCESS_INTERVAL)
            assert outline(reader.read_rest()) == []
            run.end_attempt()
            run.end_attempt()
            assert outline(beside.read_rest())[-1] == "end succeeded"

    @pytest.mark.parametrize("end", sorted(ENDS.keys() - {"token revoked", "token expired", "account deleted"}))
    def test_so_does_a_browser(self, server: int, token: str, clock: MovedClock, end: str) -> None:
        user = User.objects.get(username="viewer")
        change_password(user)
        client = Client()
        client.force_login(user)
        with follow(server, make_run().pk, None, cookie=client.cookies["sessionid"].value) as reader:
            assert outline([reader.read_event()]) == ["run queued"]
            clock.go_on(events.ACCESS_INTERVAL)
            assert reader.read_event().name == "comment"
            ENDS[end](user)
            clock.go_on(events.ACCESS_INTERVAL)
            assert outline(reader.read_rest()) == []

    def test_after_a_while_the_client_has_to_ask_again(self, server: int, token: str, clock: MovedClock) -> None:
        with follow(server, make_run().pk, token) as reader:
            assert outline([reader.read_event()]) == ["run queued"]
            clock.go_on(events.MAX_AGE + 1)
            assert outline(reader.read_rest()) == []

    def test_a_run_that_is_deleted_ends_its_streams(self, server: int, token: str) -> None:
        run = make_run()
        with follow(server, run.pk, token) as reader:
            reader.read_event()
            Run.objects.filter(pk=run.pk).delete()
            assert reader.read_rest() == []

    def test_too_many_streams_are_refused_until_one_is_closed(
        self, server: int, token: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(events, "MAX_STREAMS", 1)
        run = make_run()
        with follow(server, run.pk, token) as reader:
            reader.read_event()
            with follow(server, run.pk, token) as refused:
                assert (refused.status, refused.headers["Retry-After"]) == (503, "10")
                assert b"too-many-streams" in refused.answer.read()
        wait_until(lambda: not RunEvents.open, within=TIMEOUT, what="the stream is closed")
        with follow(server, run.pk, token) as reader:
            assert reader.status == 200


class TestRefusals:
    def test_a_user_who_may_not_read_runs_gets_no_stream(self, server: int, token: str) -> None:
        run = make_run()
        nobody = create_token(make_user("nobody"))
        for sent, number, status in ((None, run.pk, 401), (nobody, run.pk, 403), (token, run.pk + 1, 404)):
            with follow(server, number, sent) as reader:
                assert (reader.status, reader.headers["Content-Type"]) == (status, "application/problem+json")

    @pytest.mark.parametrize(
        "last", ["", "7", "1-2-3-x", "1-2-3-4-over", "-1-2-3-4", "1-" + "9" * 11 + "-1-1", "\uff11-1-1-1", "x" * 3000]
    )
    def test_an_id_that_no_event_had_is_refused(self, token: str, last: str) -> None:
        answer = Script(token).get(f"runs/{make_run().pk}/events", Accept="text/event-stream", Last_Event_ID=last)
        assert read_problem(answer)["status"] == 400

    def test_an_id_of_another_run_is_refused(self, server: int, token: str) -> None:
        """With it, what was sent of that run would count as sent of this one."""
        run, other = make_retried_run(), make_retried_run()
        with follow(server, other.pk, token) as reader:
            ids = {event.id for event in reader.read_rest()}
        for last in ids:
            with follow(server, run.pk, token, last=last) as reader:
                assert (reader.status, json.loads(reader.answer.read())["status"]) == (400, 400)
