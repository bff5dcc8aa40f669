"""Scripts that wait for the end of the run that they start."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from rest_framework.request import Request
from rest_framework.test import APIRequestFactory

from flows.models import FlowVersion
from runs.api import waiting
from runs.models import Run
from tests.api.asking import Script, make_token
from tests.engine.builders import NOON, make_flow
from tests.engine.model_server import ModelServer
from tests.runs.builders import make_run, make_version
from tests.runs.executing import drain, script

# A drain writes from another thread: what a test stores has to be there for it.
with_runs = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("version")]

ORDER = {"flow": "example", "input": {"topic": "tea"}}


class Clock:
    """Time that passes only while somebody sleeps, and what happens meanwhile."""

    def __init__(self) -> None:
        self.now = 0.0
        self.naps: list[float] = []
        self.meanwhile: Callable[[], None] = lambda: None

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        self.now += seconds
        self.meanwhile()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(waiting, "sleep", clock.sleep)
    monkeypatch.setattr(waiting, "monotonic", clock.monotonic)
    return clock


@pytest.fixture
def version(transactional_db: None, model_server: ModelServer, settings: Any) -> FlowVersion:
    """A flow that a simulated model answers."""
    settings.TOOLFLOW_PROVIDER = "openai"
    settings.TOOLFLOW_OPENAI_BASE_URL = model_server.base_url
    settings.TOOLFLOW_OPENAI_API_KEY = "right-key"
    script(model_server, tool_1=[{"text": "Tea is a warm drink."}])
    return make_version(make_flow())


class TestARunThatEndsInTime:
    pytestmark = with_runs

    def test_the_answer_is_the_finished_run_with_its_attempts(self, operator: Script, clock: Clock) -> None:
        clock.meanwhile = drain
        answer = operator.post("runs", ORDER, Prefer="wait=30")
        assert answer.status_code == 200, answer.content
        assert answer["Preference-Applied"] == "wait=30"
        assert "Retry-After" not in answer
        document = json.loads(answer.content)
        assert document["status"] == "succeeded"
        assert document["steps"][1]["attempts"][0]["output"] == {"text": "Tea is a warm drink."}
        assert answer["Location"] == document["url"]
        assert document == json.loads(operator.get(f"runs/{document['id']}").content)

    def test_sent_again_with_its_key_it_is_answered_the_same(self, operator: Script, clock: Clock) -> None:
        clock.meanwhile = drain
        first = operator.post("runs", ORDER, Prefer="wait=30", Idempotency_Key="k")
        second = operator.post("runs", ORDER, Prefer="wait=30", Idempotency_Key="k")
        assert (first.status_code, second.status_code) == (200, 200)
        assert second.content == first.content
        assert second["Idempotency-Replayed"] == "true"
        assert "Idempotency-Replayed" not in first
        assert len(clock.naps) == 1
        assert Run.objects.count() == 1

    def test_a_run_that_is_run_again_is_waited_for_alike(
        self, operator: Script, clock: Clock, version: FlowVersion
    ) -> None:
        clock.meanwhile = drain
        run = make_run(version)
        answer = operator.post(f"runs/{run.pk}/run-again", Prefer="wait=5")
        assert (answer.status_code, answer["Preference-Applied"]) == (200, "wait=5")
        assert json.loads(answer.content)["status"] == "succeeded"


class TestARunThatTakesLonger:
    pytestmark = with_runs

    def test_the_answer_is_that_it_was_started(self, operator: Script, clock: Clock) -> None:
        answer = operator.post("runs", ORDER, Prefer="wait=30")
        assert (answer.status_code, answer["Preference-Applied"]) == (202, "wait=30")
        assert answer["Retry-After"] == "1"
        assert json.loads(answer.content)["status"] == "queued"
        assert clock.now == pytest.approx(30)
        assert min(clock.naps[:-1]) >= 0.2

    def test_what_happened_meanwhile_is_told(self, operator: Script, clock: Clock) -> None:
        def begin() -> None:
            Run.objects.update(status="running", lease_until=NOON, started_at=NOON, owner="worker", revision=2)

        clock.meanwhile = begin
        answer = operator.post("runs", ORDER, Prefer="wait=5", Idempotency_Key="k")
        assert answer.status_code == 202
        document = json.loads(answer.content)
        assert (document["status"], document["started_at"]) == ("running", "2026-11-21T12:00:00Z")
        assert document == json.loads(operator.get(f"runs/{document['id']}?attempts=none").content)
        assert (answer["Location"], answer["Retry-After"]) == (document["url"], "1")
        # Also for one who asks a second time.
        again = operator.post("runs", ORDER, Prefer="wait=5", Idempotency_Key="k")
        assert (again.status_code, again["Idempotency-Replayed"]) == (202, "true")
        assert json.loads(again.content)["status"] == "running"

    def test_with_its_key_it_is_waited_for_again(self, operator: Script, clock: Clock) -> None:
        assert operator.post("runs", ORDER, Prefer="wait=1", Idempotency_Key="k").status_code == 202
        clock.meanwhile = drain
        answer = operator.post("runs", ORDER, Prefer="wait=1", Idempotency_Key="k")
        assert (answer.status_code, answer["Idempotency-Replayed"]) == (200, "true")
        assert Run.objects.count() == 1

    def test_nobody_waits_longer_than_a_minute(self, operator: Script, clock: Clock) -> None:
        answer = operator.post("runs", ORDER, Prefer="wait=3600")
        assert (answer.status_code, answer["Preference-Applied"]) == (202, "wait=60")
        assert clock.now == pytest.approx(60)


class TestARunThatIsGone:
    pytestmark = with_runs

    def test_with_its_key_the_answer_is_the_same_as_before_and_nobody_waits(
        self, operator: Script, clock: Clock
    ) -> None:
        first = operator.post("runs", ORDER, Idempotency_Key="k")
        Run.objects.all().delete()
        again = operator.post("runs", ORDER, Prefer="wait=30", Idempotency_Key="k")
        assert (again.status_code, again.content) == (202, first.content)
        assert (again["Location"], again["Idempotency-Replayed"]) == (first["Location"], "true")
        assert "Preference-Applied" not in again
        assert not clock.naps

    def test_waiting_ends_when_it_goes(self, operator: Script, clock: Clock) -> None:
        def delete() -> None:
            Run.objects.all().delete()

        clock.meanwhile = delete
        answer = operator.post("runs", ORDER, Prefer="wait=30")
        assert (answer.status_code, json.loads(answer.content)["status"]) == (202, "queued")
        assert len(clock.naps) == 1

    def test_that_goes_after_it_was_waited_for_is_answered_as_it_was_started(
        self, operator: Script, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def wait(run_id: int, seconds: float) -> bool:
            Run.objects.filter(pk=run_id).delete()
            return True

        monkeypatch.setattr("runs.api.run_actions.wait_for_end", wait)
        answer = operator.post("runs", ORDER, Prefer="wait=30")
        assert (answer.status_code, json.loads(answer.content)["status"]) == (202, "queued")


class TestNoWaiting:
    pytestmark = with_runs

    def test_a_mistake_is_answered_at_once(self, operator: Script, clock: Clock) -> None:
        assert operator.post("runs", {**ORDER, "input": 7}, Prefer="wait=30").status_code == 422
        assert not clock.naps

    def test_too_many_who_wait_are_not_made_more(
        self, operator: Script, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        places = threading.BoundedSemaphore(1)
        monkeypatch.setattr(waiting, "_places", places)
        with places:
            answer = operator.post("runs", ORDER, Prefer="wait=30")
            assert answer.status_code == 202
            assert "Preference-Applied" not in answer
            assert not clock.naps
        clock.meanwhile = drain
        assert operator.post("runs", ORDER, Prefer="wait=30").status_code == 200

    def test_who_may_not_see_runs_gets_no_history(self, groups: None, clock: Clock) -> None:
        user = User.objects.create_user("sender")
        user.user_permissions.set(Permission.objects.filter(codename="add_run"))
        answer = Script(make_token(user)).post("runs", ORDER, Prefer="wait=30")
        assert answer.status_code == 202
        assert "Preference-Applied" not in answer
        assert not clock.naps


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("wait=30", 30),
        ("WAIT = 5", 5),
        ('wait="7"', 7),
        ("respond-async, wait=10", 10),
        ("wait=10; strict=yes, respond-async", 10),
        ('return="a, wait=3"; x="y, z", wait=4', 4),
        ("wait=1, wait=2", 1),
        ("wait=61", 60),
        ("wait=99999999999999999999", None),
        ("wait=0", None),
        ("wait=-1", None),
        ("wait=1.5", None),
        ("wait=٣", None),
        ("wait", None),
        ("wait=", None),
        ("waiting=30", None),
        ("handling=lenient", None),
        (',,;="', None),
        ("wait=5" + "," * 100_000, 5),
    ],
)
def test_preferences_that_are_understood(header: str | None, seconds: int | None) -> None:
    headers = {} if header is None else {"Prefer": header}
    assert waiting.read_wait(Request(APIRequestFactory().post("/", headers=headers))) == seconds
