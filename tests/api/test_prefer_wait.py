"""Scripts that wait for the end of the run that they start."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from django.contrib.auth.models import Permission

from flows.models import FlowVersion
from runs.api import events
from runs.models import Run
from tests.api.asking import Script, create_token, make_user, read, read_json
from tests.engine.builders import NOON, make_flow
from tests.engine.model_server import ModelServer
from tests.moved_clock import SleptClock
from tests.runs.builders import make_run, make_version
from tests.runs.executing import drain, script

ORDER = {"flow": "example", "input": {"topic": "tea"}}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SleptClock:
    clock = SleptClock()
    monkeypatch.setattr(events, "sleep", clock.sleep)
    monkeypatch.setattr(events, "read_clock", clock.monotonic)
    return clock


# A drain writes from another thread: what a test stores has to be there for it.
@pytest.mark.django_db(transaction=True)
class TestWaiting:
    @pytest.fixture(autouse=True)
    def version(self, transactional_db: None, model_server: ModelServer, settings: Any) -> FlowVersion:
        settings.TOOLFLOW_PROVIDER = "openai"
        settings.TOOLFLOW_OPENAI_BASE_URL = model_server.base_url
        settings.TOOLFLOW_OPENAI_API_KEY = "right-key"
        script(model_server, tool_1=[{"text": "Tea is a warm drink."}])
        return make_version(make_flow())

    @pytest.mark.parametrize("is_rerun", [False, True])
    def test_the_answer_is_the_finished_run_with_its_attempts(
        self, operator: Script, clock: SleptClock, version: FlowVersion, is_rerun: bool
    ) -> None:
        address, body = "runs", ORDER
        if is_rerun:
            address, body = f"runs/{make_run(version, status='failed', ended_at=NOON).pk}/run-again", {}
        clock.on_sleep = drain
        first, second = (operator.post(address, body, Prefer="wait=30", Idempotency_Key="k") for _ in range(2))
        document = read_json(first)
        assert (first["Preference-Applied"], first["Location"]) == ("wait=30", document["url"])
        assert "Retry-After" not in first and "Idempotency-Replayed" not in first
        assert document["steps"][1]["attempts"][0]["output"] == {"text": "Tea is a warm drink."}
        assert document == read(operator, f"runs/{document['id']}")
        assert (second.content, second["Idempotency-Replayed"]) == (first.content, "true")

    def test_of_a_run_that_takes_longer_the_answer_is_how_it_is_then(self, operator: Script, clock: SleptClock) -> None:
        clock.on_sleep = lambda: Run.objects.update(
            status="running", lease_until=NOON, started_at=NOON, owner="worker", revision=2
        )
        for seconds, applied, replayed in (("5", 5, None), ("3600", 60, "true")):
            begin = clock.now
            answer = operator.post("runs", ORDER, Prefer=f"wait={seconds}", Idempotency_Key="k")
            assert (answer.status_code, answer["Preference-Applied"]) == (202, f"wait={applied}")
            assert clock.now - begin == pytest.approx(applied)
            document = json.loads(answer.content)
            assert (document["status"], document["started_at"]) == ("running", "2026-11-21T12:00:00Z")
            assert document == read(operator, f"runs/{document['id']}?attempts=none")
            assert (answer["Location"], answer["Retry-After"]) == (document["url"], "1")
            assert answer.get("Idempotency-Replayed") == replayed

    def test_of_a_run_that_is_deleted_the_answer_is_the_start(self, operator: Script, clock: SleptClock) -> None:
        clock.on_sleep = lambda: Run.objects.all().delete()
        first, second = (operator.post("runs", ORDER, Prefer="wait=30", Idempotency_Key="k") for _ in range(2))
        for answer in (first, second):
            assert (answer.status_code, json.loads(answer.content)["status"]) == (202, "queued")
            assert "Preference-Applied" not in answer
        assert clock.now < 1

    def test_when_too_many_wait_the_answer_comes_at_once(
        self, operator: Script, clock: SleptClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(events, "_slots", threading.BoundedSemaphore(1))
        with events._slots:
            answer = operator.post("runs", ORDER, Prefer="wait=30")
        assert (answer.status_code, "Preference-Applied" in answer, clock.now) == (202, False, 0)
        # Nor does one wait who may not read the run in the end.
        sender = make_user("sender")
        sender.user_permissions.set(Permission.objects.filter(codename="add_run"))
        answer = Script(create_token(sender)).post("runs", ORDER, Prefer="wait=30")
        assert (answer.status_code, "Preference-Applied" in answer, clock.now) == (202, False, 0)
        clock.on_sleep = drain
        assert operator.post("runs", ORDER, Prefer="wait=30").status_code == 200


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("WAIT = 5", 5),
        ('wait="7"', 7),
        ("respond-async, wait=10", 10),
        ('return="a, wait=3"; x="y, z", wait=4', 4),
        ("wait=1, wait=2", 1),
        ("wait=61", 60),
        *((f"wait={text}", None) for text in ("9" * 20, "0", "-1", "1.5", "٣", "")),
        *((text, None) for text in ("", "waiting=30", ',,;="')),
        ("wait=5" + "," * 100_000, 5),
    ],
)
def test_preferences_that_are_understood(header: str, seconds: int | None) -> None:
    assert events.parse_wait(header) == seconds
