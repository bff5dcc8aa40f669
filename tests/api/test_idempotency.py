"""Requests that are sent again with their Idempotency-Key: nothing is made twice."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.db import OperationalError, connection, connections, transaction
from django.http import HttpResponse
from django_q.models import OrmQ

from flows.models import FlowVersion
from runs.api import idempotency, run_actions, runs
from runs.models import ApiToken, IdempotentRequest, Run, RunFacet
from tests.api.asking import Script, make_token, make_user, read_problem
from tests.engine.builders import NOON, closed, make_flow
from tests.runs.builders import make_run, make_version

pytestmark = pytest.mark.sql

ORDER = {"flow": "example", "input": {"topic": "tea"}, "labels": ["nightly"]}
BULK = {"flow": "example", "runs": [{"input": {"topic": "tea"}}] * 3}


def age_answers(by: timedelta) -> None:
    """Let all answers be older than they are."""
    for row in IdempotentRequest.objects.all():
        IdempotentRequest.objects.filter(pk=row.pk).update(created_at=row.created_at - by)


@pytest.mark.django_db
class TestSentAgain:
    @pytest.fixture(autouse=True)
    def version(self) -> FlowVersion:
        return make_version(make_flow(input_schema=closed(topic={"type": "string"})))

    @pytest.mark.parametrize(("path", "body", "count"), [("runs", ORDER, 1), ("runs/bulk", BULK, 3)])
    def test_the_answer_is_the_same_and_nothing_is_made_twice(
        self, operator: Script, path: str, body: Any, count: int
    ) -> None:
        first = operator.post(path, body, Idempotency_Key="order-4711")
        assert first.status_code == 202, first.content
        assert "Idempotency-Replayed" not in first
        Run.objects.update(status="running", lease_until=NOON)
        second = operator.post(path, body, Idempotency_Key="order-4711")
        assert (second.status_code, second.content) == (202, first.content)
        assert second["Idempotency-Replayed"] == "true"
        for name in ("Location", "Retry-After", "Content-Type", "Cache-Control"):
            assert second.get(name) == first.get(name), name
        assert Run.objects.count() == count

    def test_running_a_run_again_with_a_key_starts_one(self, operator: Script) -> None:
        run = make_run(FlowVersion.objects.get())
        answers = [operator.post(f"runs/{run.pk}/run-again", Idempotency_Key="again") for _ in range(2)]
        assert answers[0].content == answers[1].content
        assert Run.objects.count() == 2

    def test_without_a_key_each_request_starts_a_run(self, operator: Script) -> None:
        first, second = operator.post("runs", ORDER), operator.post("runs", ORDER)
        assert json.loads(first.content)["id"] != json.loads(second.content)["id"]
        assert not IdempotentRequest.objects.exists()

    def test_the_answer_stays_when_the_flow_could_not_be_run_any_more(
        self, operator: Script, version: FlowVersion
    ) -> None:
        first = operator.post("runs", ORDER, Idempotency_Key="k")
        version.flow.is_archived = True
        version.flow.save()
        assert operator.post("runs", ORDER, Idempotency_Key="k").content == first.content

    def test_how_the_body_is_written_makes_no_difference(self, operator: Script) -> None:
        first = operator.post("runs", json.dumps(ORDER).encode(), Idempotency_Key="k")
        second = operator.post("runs", json.dumps(ORDER, indent=4).encode(), Idempotency_Key="k")
        assert second.content == first.content

    def test_another_body_or_address_with_the_same_key_is_refused(self, operator: Script) -> None:
        operator.post("runs", ORDER, Idempotency_Key="k")
        for path, body in (("runs", {**ORDER, "priority": "high"}), ("runs/bulk", ORDER)):
            problem = read_problem(operator.post(path, body, Idempotency_Key="k"))
            assert (problem["status"], problem["type"]) == (409, "urn:toolflow:problem:idempotency-key-reused")
            assert "“k”" in problem["detail"]
        assert Run.objects.count() == 1

    def test_everybody_has_keys_of_their_own(self, operator: Script, editor: Script) -> None:
        ids = {json.loads(one.post("runs", ORDER, Idempotency_Key="k").content)["id"] for one in (operator, editor)}
        assert len(ids) == 2

    def test_a_key_is_the_user_s_whichever_token_is_sent(self, operator: Script) -> None:
        first = operator.post("runs", ORDER, Idempotency_Key="k")
        other = Script(make_token(make_user("operator", "Operator"), name="another"))
        assert other.post("runs", ORDER, Idempotency_Key="k").content == first.content

    def test_what_somebody_may_not_read_any_more_is_not_told_again(self, operator: Script) -> None:
        run = make_run(FlowVersion.objects.get())
        asked = {f"runs/{run.pk}/run-again": "again", f"runs/{run.pk}/cancel": "cancel"}
        for path, key in asked.items():
            assert operator.post(path, Idempotency_Key=key).status_code == 202
        user = make_user("operator")
        user.user_permissions.set(Permission.objects.filter(codename__in=["add_run", "change_run"]))
        for path, key in asked.items():
            problem = read_problem(operator.post(path, Idempotency_Key=key))
            assert (problem["status"], problem["detail"]) == (403, "Your account lacks the permission “runs.view_run”.")

    def test_what_is_stored_of_a_request_says_nothing_without_the_secret_key(
        self, operator: Script, settings: Any
    ) -> None:
        first = operator.post("runs", ORDER, Idempotency_Key="k")
        settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "another key " * 5, [settings.SECRET_KEY]
        # Who sends it again after the key was changed gets the answer all the same.
        assert operator.post("runs", ORDER, Idempotency_Key="k").content == first.content
        operator.post("runs", ORDER, Idempotency_Key="later")
        assert IdempotentRequest.objects.values("fingerprint").distinct().count() == 2

    def test_after_a_day_the_key_is_free(self, operator: Script) -> None:
        first = operator.post("runs", ORDER, Idempotency_Key="k")
        age_answers(timedelta(hours=23, minutes=59))
        assert operator.post("runs", ORDER, Idempotency_Key="k").content == first.content
        age_answers(timedelta(minutes=2))
        third = operator.post("runs", {**ORDER, "labels": []}, Idempotency_Key="k")
        assert third.status_code == 202
        assert third.content != first.content
        assert IdempotentRequest.objects.count() == 1

    def test_old_answers_are_deleted_bit_by_bit(self, operator: Script, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(idempotency, "BATCH", 2)
        monkeypatch.setattr(idempotency, "FORGET_EVERY", 1)
        for key in "abcde":
            operator.post("runs", ORDER, Idempotency_Key=key)
        age_answers(timedelta(days=2))
        # “e” is the last one that would be deleted, and must not be in its own way.
        assert operator.post("runs", {**ORDER, "labels": []}, Idempotency_Key="e").status_code == 202
        assert sorted(IdempotentRequest.objects.values_list("key", flat=True)) == ["c", "d", "e"]
        operator.post("runs", ORDER, Idempotency_Key="f")
        assert sorted(IdempotentRequest.objects.values_list("key", flat=True)) == ["e", "f"]

    @pytest.mark.parametrize("key", ["", " ", "x" * 256, "a\tb", "a\x7fb"])
    def test_a_key_that_is_none_is_a_mistake(self, operator: Script, key: str) -> None:
        problem = read_problem(operator.post("runs", ORDER, Idempotency_Key=key))
        assert (problem["status"], problem["type"]) == (400, "urn:toolflow:problem:invalid-idempotency-key")
        assert not Run.objects.exists()

    @pytest.mark.parametrize("key", ["x" * 255, "7f9c24e8-3b12-4fef-91e0-5e8e5a7a5f8e", '"quoted"', "a b", "ü"])
    def test_a_key_may_be_any_short_text(self, operator: Script, key: str) -> None:
        answers = [operator.post("runs", ORDER, Idempotency_Key=key) for _ in range(2)]
        assert answers[0].status_code == 202, answers[0].content
        assert answers[0].content == answers[1].content

    def test_it_costs_few_queries_more(
        self, operator: Script, django_assert_num_queries: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(idempotency, "FORGET_EVERY", 10**9)
        ApiToken.objects.update(last_used_at=NOON + timedelta(days=10_000))
        operator.post("runs", ORDER, Idempotency_Key="before")
        # A look at what is known, the transaction, and the answer. PostgreSQL is asked for a lock, too.
        with django_assert_num_queries(11 + 4 + (connection.vendor == "postgresql")):
            operator.post("runs", ORDER, Idempotency_Key="k")
        # Who asks and what they may do, and the answer.
        with django_assert_num_queries(3):
            operator.post("runs", ORDER, Idempotency_Key="k")


@pytest.mark.django_db
class TestNothingWasMade:
    @pytest.fixture(autouse=True)
    def version(self) -> FlowVersion:
        return make_version(make_flow(input_schema=closed(topic={"type": "string"})))

    def test_a_mistake_can_be_mended_and_sent_with_the_same_key(self, operator: Script) -> None:
        wrong = {**ORDER, "input": {"topic": 7}}
        assert operator.post("runs", wrong, Idempotency_Key="k").status_code == 422
        assert operator.post("runs", {**ORDER, "version": 9}, Idempotency_Key="k").status_code == 422
        assert operator.post("runs", ORDER, Idempotency_Key="k").status_code == 202
        assert Run.objects.count() == 1

    def test_a_refusal_is_not_kept(self, operator: Script, version: FlowVersion) -> None:
        version.flow.is_archived = True
        version.flow.save()
        assert operator.post("runs", ORDER, Idempotency_Key="k").status_code == 409
        version.flow.is_archived = False
        version.flow.save()
        assert operator.post("runs", ORDER, Idempotency_Key="k").status_code == 202

    @pytest.mark.parametrize(("error", "status"), [(RuntimeError("bug"), 500), (OperationalError("gone"), 503)])
    def test_what_breaks_half_way_leaves_nothing_behind(
        self, operator: Script, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int
    ) -> None:
        def break_down(*args: Any, **kwargs: Any) -> Any:
            raise error

        with monkeypatch.context() as broken:
            # The run, its labels and its message are written when its document is built.
            broken.setattr(run_actions, "build_new_run", break_down)
            assert read_problem(operator.post("runs", ORDER, Idempotency_Key="k"))["status"] == status
        for rows in (Run, RunFacet, OrmQ, IdempotentRequest):
            assert not rows.objects.exists(), rows
        assert operator.post("runs", ORDER, Idempotency_Key="k").status_code == 202
        assert Run.objects.count() == 1

    def test_an_answer_that_says_so_itself_takes_with_it_what_was_written(
        self, operator: Script, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(request: Any, runs: Any) -> HttpResponse:
            run_actions.store_runs(runs)
            return HttpResponse("no", status=503)

        with monkeypatch.context() as refusing:
            refusing.setattr(runs, "start_run", refuse)
            assert operator.post("runs", ORDER, Idempotency_Key="k").status_code == 503
        assert not Run.objects.exists()
        assert operator.post("runs", ORDER, Idempotency_Key="k").status_code == 202


@pytest.mark.django_db(transaction=True)
class TestAtTheSameTime:
    @pytest.fixture(autouse=True)
    def version(self) -> FlowVersion:
        return make_version(make_flow(input_schema=closed(topic={"type": "string"})))

    @pytest.fixture
    def at_once(self) -> Callable[[list[Callable[[], HttpResponse]]], list[HttpResponse]]:
        """Does things in threads of their own that begin in the same moment."""

        def do(things: list[Callable[[], HttpResponse]]) -> list[HttpResponse]:
            gate = threading.Barrier(len(things))

            def begin(thing: Callable[[], HttpResponse]) -> HttpResponse:
                try:
                    connection.ensure_connection()
                    gate.wait(timeout=30)
                    return thing()
                finally:
                    connections.close_all()

            with ThreadPoolExecutor(len(things)) as pool:
                return list(pool.map(begin, things))

        return do

    def test_twenty_posts_with_one_key_start_one_run(self, groups: None, at_once: Any) -> None:
        token = make_token(make_user("operator", "Operator"))
        answers = at_once([lambda: Script(token).post("runs", ORDER, Idempotency_Key="k")] * 20)
        assert [answer.status_code for answer in answers] == [202] * 20
        assert len({answer.content for answer in answers}) == 1
        assert sum("Idempotency-Replayed" in answer for answer in answers) == 19
        assert (Run.objects.count(), RunFacet.objects.count(), IdempotentRequest.objects.count()) == (1, 1, 1)

    def test_twenty_posts_with_a_key_that_has_expired_start_one_run(self, groups: None, at_once: Any) -> None:
        token = make_token(make_user("operator", "Operator"))
        Script(token).post("runs", ORDER, Idempotency_Key="k")
        Run.objects.all().delete()
        age_answers(timedelta(days=2))
        answers = at_once([lambda: Script(token).post("runs", ORDER, Idempotency_Key="k")] * 20)
        assert [answer.status_code for answer in answers] == [202] * 20
        assert len({answer.content for answer in answers}) == 1
        assert Run.objects.count() == 1

    def test_twenty_posts_of_different_things_with_one_key_start_one_run(self, groups: None, at_once: Any) -> None:
        token = make_token(make_user("operator", "Operator"))
        bodies = [{**ORDER, "metadata": {"number": number}} for number in range(20)]
        posts = [lambda body=body: Script(token).post("runs", body, Idempotency_Key="k") for body in bodies]
        statuses = sorted(answer.status_code for answer in at_once(posts))
        assert statuses == [202] + [409] * 19
        assert Run.objects.count() == 1

    def test_twenty_posts_with_keys_of_their_own_start_twenty_runs(self, groups: None, at_once: Any) -> None:
        token = make_token(make_user("operator", "Operator"))
        keys = "abcdefghijklmnopqrst"
        posts = [lambda key=key: Script(token).post("runs", ORDER, Idempotency_Key=key) for key in keys]
        assert {answer.status_code for answer in at_once(posts)} == {202}
        assert Run.objects.count() == 20

    def test_if_the_first_breaks_down_the_second_starts_the_run(
        self, groups: None, at_once: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        token = make_token(make_user("operator", "Operator"))
        real, calls = run_actions.store_runs, iter(range(20))

        def break_once(runs: Any) -> Any:
            stored = real(runs)
            if next(calls) == 0:
                raise RuntimeError("The first request breaks down.")
            return stored

        monkeypatch.setattr(run_actions, "store_runs", break_once)
        answers = at_once([lambda: Script(token).post("runs", ORDER, Idempotency_Key="k")] * 5)
        assert sorted(answer.status_code for answer in answers) == [202] * 4 + [500]
        assert Run.objects.count() == 1

    def test_twenty_posts_with_one_key_create_one_flow(self, groups: None, at_once: Any) -> None:
        """Those that come second find its name taken, but that is their own flow."""
        token = make_token(make_user("editor", "Editor"))
        document = make_flow(title="Tea").model_copy(update={"name": "tea"}).to_document()
        answers = at_once([lambda: Script(token).post("flows", document, Idempotency_Key="k")] * 20)
        assert [answer.status_code for answer in answers] == [201] * 20
        assert len({answer.content for answer in answers}) == 1
        assert FlowVersion.objects.filter(flow__name="tea").count() == 1

    @pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite lets all writers wait for each other")
    def test_who_waits_too_long_for_the_first_is_told_to_ask_again(
        self, operator: Script, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(idempotency, "PATIENCE", "50ms")
        user = make_user("operator", "Operator")
        with ThreadPoolExecutor(1) as pool, transaction.atomic():
            # As the first request does until it is answered.
            assert not idempotency._had_to_wait(f"{user.pk} k")

            def post() -> HttpResponse:
                try:
                    return operator.post("runs", ORDER, Idempotency_Key="k")
                finally:
                    connections.close_all()

            answer = pool.submit(post).result(timeout=30)
            transaction.set_rollback(True)
        assert read_problem(answer)["type"] == "urn:toolflow:problem:idempotency-key-in-use"
        assert (answer.status_code, answer["Retry-After"]) == (409, "1")
        assert operator.post("runs", ORDER, Idempotency_Key="k").status_code == 202
