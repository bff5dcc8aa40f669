"""A run followed as a stream of events: what arrives, from where it goes on, and when it ends."""

from __future__ import annotations

import gc
import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import User

from runs.access_groups import create_groups
from runs.api import admission, event_stream, run_watch
from runs.api.event_stream import RunEvents
from runs.models import ApiToken, Run
from runs.tokens import revoke_token
from tests.api.asking import Script, make_token, make_user, read_problem
from tests.api.event_reading import PATIENCE, Event, Reader, follow, serve
from tests.browser.run_under_way import RunUnderWay
from tests.engine.builders import make_issue, make_step, make_usage
from tests.moved_clock import MovedClock
from tests.runs.builders import make_run
from tests.runs.pages.history_builders import make_retried_run
from tests.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(run_watch, "LOOK", 0.01)
    with serve() as port:
        yield port


@pytest.fixture
def token(transactional_db: None) -> str:
    create_groups(apps=apps, using="default")
    return make_token(make_user("viewer", "Viewer"))


def outline(events: list[Event]) -> list[str]:
    """What the events tell, in a word or two each; changes of which nothing is told twice are left out."""
    told = []
    for event in events:
        if event.name == "attempt":
            told.append(f"{event.document['step']}.{event.document['number']} {event.document['outcome']}")
        elif event.name != "comment":
            told.append(f"{event.name} {event.document['status']}")
    return told


def read_until(reader: Reader, last: str) -> list[Event]:
    """Events up to the one that tells ``last``."""
    events: list[Event] = []
    while not events or outline(events[-1:]) != [last]:
        events.append(reader.read_event())
    return events


def test_a_run_is_told_of_as_it_goes_on_until_it_ends(server: int, token: str) -> None:
    run = RunUnderWay(make_step(1), make_step(2))
    with follow(server, run.run.pk, token) as reader:
        assert reader.headers["Content-Type"] == "text/event-stream"
        assert "no-store" in reader.headers["Cache-Control"]
        assert outline([reader.read_event()]) == ["run running"]
        run.end_attempt("failed", issues=(make_issue("critical", "“red” is no hex colour."),), usage=make_usage(300))
        assert outline([reader.read_event(), reader.read_event()]) == ["1.1 failed", "run running"]
        run.end_attempt()
        assert outline([reader.read_event(), reader.read_event()]) == ["1.2 passed", "run running"]
        run.end_attempt()
        assert outline(reader.read_rest()) == ["2.1 passed", "run succeeded", "end succeeded"]


def test_events_hold_what_the_addresses_of_the_run_and_its_attempts_give(server: int, token: str) -> None:
    run = make_retried_run()
    with follow(server, run.pk, token) as reader:
        *attempts, told, end = reader.read_rest()
    # By the same name: addresses in documents are those of the host that was asked.
    ask = partial(Script(token).get, Host=f"127.0.0.1:{server}")
    summary = ask(f"runs/{run.pk}?attempts=none").json()  # type: ignore[attr-defined]
    stored = ask(f"runs/{run.pk}/attempts").json()["items"]  # type: ignore[attr-defined]
    assert told.document == end.document == summary
    assert [event.document for event in attempts] == stored
    assert stored[0]["issues"][0]["vendor_id"] == 4711


def test_whoever_breaks_off_anywhere_and_goes_on_gets_the_rest_and_nothing_twice(server: int, token: str) -> None:
    run = make_retried_run()
    with follow(server, run.pk, token) as reader:
        events = reader.read_rest()
    assert outline(events) == ["1.1 failed", "1.2 passed", "2.1 passed", "3.1 passed", "run succeeded", "end succeeded"]
    for position, event in enumerate(events[:-1]):
        with follow(server, run.pk, token, last=event.id) as reader:
            assert reader.read_rest() == events[position + 1 :]


def test_what_happened_while_nobody_was_connected_is_told_first(server: int, token: str) -> None:
    run = RunUnderWay(make_step(1), make_step(2))
    with follow(server, run.run.pk, token) as reader:
        last = reader.read_event()
    run.end_attempt("failed")
    run.end_attempt()
    with follow(server, run.run.pk, token, last=last.id) as reader:
        assert outline(read_until(reader, "run running")) == ["1.1 failed", "1.2 passed", "run running"]


def test_after_the_end_a_browser_is_told_to_stop_asking(server: int, token: str) -> None:
    run = make_retried_run()
    with follow(server, run.pk, token) as reader:
        end = reader.read_rest()[-1]
    with follow(server, run.pk, token, last=end.id) as reader:
        assert (reader.status, reader.answer.read()) == (204, b"")


def test_more_attempts_than_are_read_at_a_time_arrive_in_order(
    server: int, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_retried_run()
    with follow(server, run.pk, token) as reader:
        at_once = reader.read_rest()
    monkeypatch.setattr(event_stream, "PART", 2)
    with follow(server, run.pk, token) as reader:
        assert reader.read_rest() == at_once


@pytest.mark.parametrize("accept", ["application/problem+json", "text/event-stream, application/problem+json", "*/*"])
def test_clients_that_say_they_read_problems_get_the_stream(server: int, token: str, accept: str) -> None:
    with follow(server, make_retried_run().pk, token, accept=accept) as reader:
        assert outline(reader.read_rest())[-1] == "end succeeded"


def test_comments_show_that_a_quiet_connection_lives(server: int, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "HEARTBEAT", 0.01)
    run = make_run()
    with follow(server, run.pk, token) as reader:
        assert outline([reader.read_event()]) == ["run queued"]
        assert [reader.read_event().name for _ in range(3)] == ["comment"] * 3
        run.request_cancel()
        assert outline(reader.read_rest()) == ["run cancelled", "end cancelled"]


def test_a_stream_is_closed_after_a_while_so_that_its_reader_has_to_ask_again(
    server: int, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "HEARTBEAT", 0.01)
    monkeypatch.setattr(event_stream, "LIFE", 0.0)
    with follow(server, make_run().pk, token) as reader:
        assert outline(reader.read_rest()) == ["run queued"]


def revoke(user: User) -> None:
    assert revoke_token(ApiToken.objects.get(user=user))


def close_account(user: User) -> None:
    user.is_active = False
    user.save()


@pytest.mark.parametrize("end", [revoke, close_account, lambda user: user.groups.clear()])
def test_whoever_would_not_be_let_in_any_more_is_told_nothing_more(
    server: int, token: str, monkeypatch: pytest.MonkeyPatch, end: Callable[[User], Any]
) -> None:
    clock = MovedClock(monkeypatch, admission)
    run = RunUnderWay(make_step(1), make_step(2))
    other = make_token(make_user("other", "Viewer"))
    with follow(server, run.run.pk, token) as reader, follow(server, run.run.pk, other) as beside:
        for one in (reader, beside):
            assert outline([one.read_event()]) == ["run running"]
        end(User.objects.get(username="viewer"))
        clock.go_on(admission.ASKED_EACH)
        run.end_attempt()
        run.end_attempt()
        assert reader.read_rest() == []
        assert outline(beside.read_rest())[-1] == "end succeeded"


def test_a_quiet_stream_of_somebody_who_would_not_be_let_in_any_more_ends_too(
    server: int, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = MovedClock(monkeypatch, admission)
    monkeypatch.setattr(event_stream, "HEARTBEAT", 0.01)
    with follow(server, make_run().pk, token) as reader:
        assert outline([reader.read_event()]) == ["run queued"]
        revoke(User.objects.get(username="viewer"))
        clock.go_on(admission.ASKED_EACH)
        assert {event.name for event in reader.read_rest()} <= {"comment"}


def test_a_run_that_is_deleted_ends_its_streams(server: int, token: str) -> None:
    run = make_run()
    with follow(server, run.pk, token) as reader:
        reader.read_event()
        Run.objects.filter(pk=run.pk).delete()
        assert reader.read_rest() == []


def test_all_streams_are_served_by_one_look_at_a_time_in_one_thread(
    server: int, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[tuple[int, int]] = []
    find_states = run_watch.find_states

    def note(run_ids: Any) -> Any:
        looks.append((threading.get_ident(), len(set(run_ids))))
        return find_states(run_ids)

    monkeypatch.setattr(run_watch, "find_states", note)
    first, second = make_run(), make_run()
    with follow(server, first.pk, token) as one, follow(server, second.pk, token) as other:
        for reader in (one, other):
            reader.read_event()
        wait_until(lambda: (looks or [(0, 0)])[-1][1] == 2, within=PATIENCE, what="both are looked at")
        assert len({thread for thread, _ in looks}) == 1


def test_a_reader_who_goes_away_frees_the_place_and_the_last_one_ends_the_looking(server: int, token: str) -> None:
    with follow(server, make_run().pk, token) as reader:
        reader.read_event()
        assert len(RunEvents._open) == 1
        assert any(thread.name.startswith("run-watch") for thread in threading.enumerate())
    wait_until(lambda: not RunEvents._open, within=PATIENCE, what="the stream is closed")
    wait_until(
        lambda: not any(thread.name.startswith("run-watch") for thread in threading.enumerate()),
        within=PATIENCE,
        what="the thread that looks ends",
    )


def test_too_many_streams_are_refused_for_a_moment(server: int, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "MOST_STREAMS", 1)
    run = make_run()
    with follow(server, run.pk, token) as reader:
        reader.read_event()
        with follow(server, run.pk, token) as refused:
            assert (refused.status, refused.headers["Retry-After"]) == (503, "10")
            assert refused.headers["Content-Type"] == "application/problem+json"
            assert b"too-many-streams" in refused.answer.read()
    gc.collect()
    wait_until(lambda: not RunEvents._open, within=PATIENCE, what="the stream is closed")
    with follow(server, run.pk, token) as reader:
        assert reader.status == 200


def test_a_stream_whose_reader_left_before_it_began_keeps_its_place_for_a_moment_only(
    server: int, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody closes such a one, and it may be long until it is thrown away."""
    monkeypatch.setattr(event_stream, "MOST_STREAMS", 1)
    run = make_run()
    state = run_watch.find_state(run.pk)
    assert state is not None
    links: Any = None
    admitted: Any = None
    monkeypatch.setattr(event_stream, "MOMENT", 3600.0)
    left = RunEvents(state, event_stream.Position(run.pk), links, admitted)
    with follow(server, run.pk, token) as reader:
        assert reader.status == 503
    left.close()
    monkeypatch.setattr(event_stream, "MOMENT", 0.0)
    left = RunEvents(state, event_stream.Position(run.pk), links, admitted)
    with follow(server, run.pk, token) as reader:
        assert reader.status == 200
        with follow(server, run.pk, token) as refused:
            # One that has begun keeps its place.
            assert refused.status == 503
    left.close()


def test_who_may_not_see_runs_gets_no_stream(server: int, token: str) -> None:
    run = make_run()
    for sent, status in ((None, 401), (make_token(make_user("nobody")), 403)):
        with follow(server, run.pk, sent) as reader:
            assert (reader.status, reader.headers["Content-Type"]) == (status, "application/problem+json")
    for missing in (run.pk + 1, 10**30):
        with follow(server, missing, token) as reader:
            assert (reader.status, reader.headers["Content-Type"]) == (404, "application/problem+json")


def test_a_head_request_is_answered_without_a_stream(server: int, token: str) -> None:
    with follow(server, make_run().pk, token, method="HEAD") as reader:
        assert (reader.status, reader.headers["Content-Type"]) == (200, "text/event-stream")
    assert not RunEvents._open


@pytest.mark.parametrize(
    "last", ["7", "1-2-3", "1-2-3-x", "1-2-3-4-over", "-1-2-3-4", "1-" + "9" * 11 + "-1-1", "\uff11-1-1-1", "x" * 3000]
)
def test_an_id_that_no_event_had_is_refused(token: str, last: str) -> None:
    run = make_run()
    problem = read_problem(Script(token).get(f"runs/{run.pk}/events", Accept="text/event-stream", Last_Event_ID=last))
    assert problem["status"] == 400
    assert "is no id of this stream" in problem["detail"]


def test_an_id_of_another_run_is_refused(server: int, token: str) -> None:
    """With it, what that reader was told would count as told of this run."""
    run, other = make_retried_run(), make_retried_run()
    with follow(server, other.pk, token) as reader:
        ids = {event.id for event in reader.read_rest()}
    for last in ids:
        with follow(server, run.pk, token, last=last) as reader:
            assert (reader.status, reader.headers["Content-Type"]) == (400, "application/problem+json")
            problem = json.loads(reader.answer.read())
        assert f"which is of run {other.pk}, not of run {run.pk}" in problem["detail"]


def test_a_server_that_is_no_asgi_server_says_so(token: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="runs.api")
    run = make_run()
    problem = read_problem(Script(token).get(f"runs/{run.pk}/events", Accept="text/event-stream"))
    assert (problem["status"], problem["type"]) == (501, "urn:toolflow:problem:no-streams")
    assert [record.levelname for record in caplog.records if "events" in record.getMessage()] == ["INFO"]


def test_it_costs_the_same_queries_whatever_run_it_is(token: str, django_assert_num_queries: Any) -> None:
    script = Script(token)
    script.get("nowhere")
    for run in (make_run(), make_retried_run()):
        # The token, the two kinds of permissions, and the run.
        with django_assert_num_queries(3):
            script.get(f"runs/{run.pk}/events")


def test_open_streams_leave_their_threads_to_other_requests(server: int, token: str) -> None:
    run = make_run()
    with follow(server, run.pk, token) as one, follow(server, run.pk, token) as other:
        for reader in (one, other):
            reader.read_event()
        busy = [thread for thread in threading.enumerate() if thread.name.startswith("request")]
        # The second request had the thread of the first one.
        assert len(busy) == 1
