"""Requests that are sent again with their Idempotency-Key: nothing is made twice."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.db import OperationalError, connection, connections
from django.http import HttpResponse
from django_q.models import OrmQ

from flows.models import FlowVersion
from runs.api import idempotency, runs
from runs.models import IdempotentRequest, Run, RunFacet
from tests.api.asking import Script, ask_at_once, create_token, make_user, read_problem, read_type
from tests.engine.builders import NOON, closed, make_flow
from tests.runs.builders import make_run, make_version

pytestmark = pytest.mark.sql

ORDER = {"flow": "example", "input": {"topic": "tea"}, "labels": ["nightly"]}
BULK = {"flow": "example", "runs": [{"input": {"topic": "tea"}}] * 3}


@pytest.fixture(autouse=True)
def version(_django_db_marker: None) -> FlowVersion:
    return make_version(make_flow(input_schema=closed(topic={"type": "string"})))


def age_answers(by: timedelta) -> None:
    """Let all answers be older than they are."""
    for row in IdempotentRequest.objects.all():
        IdempotentRequest.objects.filter(pk=row.pk).update(created_at=row.created_at - by)


@pytest.mark.django_db
class TestSentAgain:
    @pytest.mark.parametrize(
        ("path", "body", "count"),
        [("runs", ORDER, 2), ("runs/bulk", BULK, 4), ("runs/<run>/run-again", {}, 2), ("runs/<run>/cancel", {}, 1)],
    )
    def test_the_answer_is_the_same_and_nothing_is_made_twice(
        self, operator: Script, version: FlowVersion, path: str, body: Any, count: int
    ) -> None:
        path = path.replace("<run>", str(make_run(version).pk))
        first = operator.post(path, body, Idempotency_Key="order-4711")
        assert first.status_code == 202, first.content
        assert "Idempotency-Replayed" not in first
        # What became of it doesn't count, nor whether it could be done now, nor how the body is written.
        Run.objects.filter(status="queued").update(status="running", lease_until=NOON)
        version.flow.is_archived = True
        version.flow.save()
        second = operator.post(path, json.dumps(body, indent=4).encode(), Idempotency_Key="order-4711")
        assert (second.status_code, second.content) == (202, first.content)
        assert second["Idempotency-Replayed"] == "true"
        for name in ("Location", "Retry-After", "Content-Type", "Cache-Control"):
            assert second.get(name) == first.get(name), name
        assert Run.objects.count() == count

    def test_another_body_or_address_with_the_same_key_is_refused(self, operator: Script, version: FlowVersion) -> None:
        operator.post("runs", ORDER, Idempotency_Key="k")
        for path, body in (("runs", {**ORDER, "priority": "high"}), ("runs/bulk", BULK)):
            assert read_type(operator.post(path, body, Idempotency_Key="k")) == (409, "idempotency-key-reused")
        assert Run.objects.count() == 1
        answers = [operator.post(f"runs/{make_run(version).pk}/run-again", Idempotency_Key="l") for _ in range(2)]
        assert [answer.status_code for answer in answers] == [202, 409]

    def test_a_key_is_the_user_s_whichever_token_is_sent(self, operator: Script, editor: Script) -> None:
        first = operator.post("runs", ORDER, Idempotency_Key="k")
        other = Script(create_token(make_user("operator", "Operator"), name="another"))
        assert other.post("runs", ORDER, Idempotency_Key="k").content == first.content
        assert editor.post("runs", ORDER, Idempotency_Key="k").content != first.content

    def test_what_a_user_may_not_read_any_more_is_not_answered_again(
        self, operator: Script, version: FlowVersion
    ) -> None:
        address = f"runs/{make_run(version).pk}/run-again"
        assert operator.post(address, Idempotency_Key="again").status_code == 202
        make_user("operator").user_permissions.set(Permission.objects.filter(codename="add_run"))
        assert read_problem(operator.post(address, Idempotency_Key="again"))["status"] == 403

    def test_what_is_stored_of_a_request_says_nothing_without_the_secret_key(
        self, operator: Script, settings: Any
    ) -> None:
        first = operator.post("runs", ORDER, Idempotency_Key="k")
        settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "another key " * 5, [settings.SECRET_KEY]
        # A client that sends it again after the secret key was changed gets the answer all the same.
        assert operator.post("runs", ORDER, Idempotency_Key="k").content == first.content
        operator.post("runs", ORDER, Idempotency_Key="later")
        assert IdempotentRequest.objects.values("fingerprint").distinct().count() == 2

    def test_after_a_day_the_key_is_free(self, operator: Script) -> None:
        first = operator.post("runs", ORDER, Idempotency_Key="k")
        age_answers(timedelta(hours=23, minutes=59))
        assert operator.post("runs", ORDER, Idempotency_Key="k").content == first.content
        age_answers(timedelta(minutes=2))
        third = operator.post("runs", {**ORDER, "labels": []}, Idempotency_Key="k")
        assert (third.status_code, third.content == first.content) == (202, False)
        assert IdempotentRequest.objects.count() == 1

    def test_a_key_that_is_not_valid_is_a_mistake(self, operator: Script) -> None:
        for key in ("", " ", "x" * 256, "a\tb", "a\x7fb"):
            assert read_type(operator.post("runs", ORDER, Idempotency_Key=key)) == (400, "invalid-idempotency-key"), key
        assert not Run.objects.exists()


@pytest.mark.django_db
class TestNothingWasMade:
    def test_a_mistake_can_be_corrected_and_sent_with_the_same_key(
        self, operator: Script, version: FlowVersion
    ) -> None:
        assert operator.post("runs", {**ORDER, "input": {"topic": 7}}, Idempotency_Key="k").status_code == 422
        type(version.flow).objects.update(is_archived=True)
        assert operator.post("runs", ORDER, Idempotency_Key="k").status_code == 409
        type(version.flow).objects.update(is_archived=False)
        assert operator.post("runs", ORDER, Idempotency_Key="k").status_code == 202
        assert Run.objects.count() == 1

    @pytest.mark.parametrize(("error", "status"), [(RuntimeError("bug"), 500), (OperationalError("gone"), 503)])
    def test_what_fails_half_way_leaves_nothing_behind(
        self, operator: Script, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int
    ) -> None:
        real = runs.store_runs

        def store_and_fail(new: Any) -> Any:
            real(new)
            raise error

        with monkeypatch.context() as broken:
            broken.setattr(runs, "store_runs", store_and_fail)
            assert operator.post("runs", ORDER, Idempotency_Key="k").status_code == status
        for rows in (Run, RunFacet, OrmQ, IdempotentRequest):
            assert not rows.objects.exists(), rows
        assert operator.post("runs", ORDER, Idempotency_Key="k").status_code == 202


@pytest.mark.django_db(transaction=True)
class TestAtTheSameTime:
    @pytest.fixture
    def token(self, groups: None) -> str:
        return create_token(make_user("operator", "Operator"))

    @pytest.mark.parametrize("is_expired", [False, True])
    def test_twenty_posts_with_one_key_start_one_run(self, token: str, is_expired: bool) -> None:
        if is_expired:
            Script(token).post("runs", ORDER, Idempotency_Key="k")
            Run.objects.all().delete()
            age_answers(timedelta(days=2))
        answers = ask_at_once([lambda: Script(token).post("runs", ORDER, Idempotency_Key="k")] * 20)
        assert [answer.status_code for answer in answers] == [202] * 20
        assert len({answer.content for answer in answers}) == 1
        assert sum("Idempotency-Replayed" in answer for answer in answers) == 19
        assert (Run.objects.count(), RunFacet.objects.count(), IdempotentRequest.objects.count()) == (1, 1, 1)

    def test_if_the_first_fails_the_second_starts_the_run(self, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
        real, calls = runs.store_runs, iter(range(20))

        def fail_once(new: Any) -> Any:
            stored = real(new)
            if next(calls) == 0:
                raise RuntimeError("The first request fails.")
            return stored

        monkeypatch.setattr(runs, "store_runs", fail_once)
        answers = ask_at_once([lambda: Script(token).post("runs", ORDER, Idempotency_Key="k")] * 5)
        assert sorted(answer.status_code for answer in answers) == [202] * 4 + [500]
        assert Run.objects.count() == 1

    @pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite lets all writers wait for each other")
    def test_a_request_that_waits_too_long_for_the_first_is_to_be_sent_again(
        self, token: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(idempotency, "LOCK_TIMEOUT", "50ms")
        has_lock, is_answered = threading.Event(), threading.Event()
        real = runs.store_runs

        def hold(new: Any) -> Any:
            has_lock.set()
            assert is_answered.wait(30)
            return real(new)

        def post() -> HttpResponse:
            try:
                return Script(token).post("runs", ORDER, Idempotency_Key="k")
            finally:
                connections.close_all()

        with ThreadPoolExecutor(1) as pool, monkeypatch.context() as held:
            held.setattr(runs, "store_runs", hold)
            first = pool.submit(post)
            assert has_lock.wait(30)
            answer = Script(token).post("runs", ORDER, Idempotency_Key="k")
            is_answered.set()
            assert first.result(timeout=30).status_code == 202
        assert (read_type(answer), answer["Retry-After"]) == ((409, "idempotency-key-in-use"), "1")
