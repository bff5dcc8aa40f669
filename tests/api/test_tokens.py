"""Whose token lets in, what the others are answered, and how many requests it may make in a minute."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.cache import caches
from django.test import Client
from django.utils import timezone

from runs.api import access
from runs.models import ApiToken, TokenScope
from runs.observability.log_events import Outage
from tests.api.asking import Script, create_token, make_user, read_problem

pytestmark = pytest.mark.django_db

MINUTE = 1_800_000_000.0
"""When a minute begins."""
REDIS = "django.core.cache.backends.redis.RedisCache"
AWAY = {"BACKEND": REDIS, "LOCATION": "redis://127.0.0.1:1"}


@pytest.fixture
def owner(groups: None) -> User:
    return make_user("ada", "Viewer")


class TestTokens:
    def test_only_a_hash_is_stored_and_the_use_is_recorded(self, owner: User) -> None:
        token = create_token(owner)
        assert token.startswith("tf_") and token not in str(ApiToken.objects.values().get())
        assert Script(token).get("nowhere").status_code == 404
        assert Script().get("nowhere", Authorization=f"bEARER {token}").status_code == 404
        assert ApiToken.objects.get().last_used_at is not None

    @pytest.mark.parametrize(
        ("sent", "word"),
        [
            *((f"Bearer {token}", "Unknown token") for token in ("tf_" + "0" * 64, "nonsense", "tf_é", "x" * 5000)),
            *((text, "Bearer tf_…") for text in (None, "Token {}", "Bearer", "Bearer {} {}", "bearer  ", "Basic YTpi")),
        ],
    )
    def test_what_is_no_token_of_ours_lets_no_user_in(self, owner: User, sent: str | None, word: str) -> None:
        token = create_token(owner)
        answer = Script().get("nowhere", **({"Authorization": sent.format(token, token)} if sent else {}))
        assert (answer.status_code, answer["WWW-Authenticate"]) == (401, "Bearer")
        assert word in read_problem(answer)["detail"]

    def test_one_that_expired_was_revoked_or_is_of_a_closed_account_says_so_and_stays_listed(self, owner: User) -> None:
        expired = create_token(owner, name="old", expiry=timedelta(seconds=-1))
        revoked = create_token(owner, name="leaked", revoked_at=timezone.now())
        closed = create_token(User.objects.create_user("gone", is_active=False), name="theirs")
        problems = [read_problem(Script(token).get("nowhere")) for token in (expired, revoked, closed)]
        assert [problem["status"] for problem in problems] == [401] * 3
        for word, problem in zip(("expired", "revoked", "closed"), problems, strict=True):
            assert word in problem["detail"]
        assert ApiToken.objects.count() == 3

    @pytest.mark.parametrize(("seconds", "is_stored"), [(30, False), (61, True)])
    def test_the_use_is_stored_once_a_minute(self, owner: User, seconds: int, is_stored: bool) -> None:
        """Each is a write: many requests must not wait for many of them."""
        used_at = timezone.now() - timedelta(seconds=seconds)
        Script(create_token(owner, last_used_at=used_at)).get("nowhere")
        assert (ApiToken.objects.get().last_used_at != used_at) == is_stored

    def test_a_caller_can_read_who_it_is(self, owner: User, client: Client) -> None:
        answer: Any = Script(create_token(owner, TokenScope.RUN, name="nightly")).get("me")
        document = answer.json()
        permissions = document.pop("permissions")
        assert document == {"username": "ada", "token": {"name": "nightly", "scope": "run", "expires_at": None}}
        assert "runs.view_run" in permissions and "runs.add_run" not in permissions
        client.force_login(owner)
        by_session: Any = client.get("/api/v1/me")
        assert by_session.json() == {"username": "ada", "permissions": permissions, "token": None}


class TestQuotas:
    @pytest.fixture(autouse=True)
    def clock(self, settings: Any, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
        settings.TOOLFLOW_API_READS_PER_MINUTE = 3
        settings.TOOLFLOW_API_WRITES_PER_MINUTE = 2
        settings.TOOLFLOW_API_STRANGERS_PER_MINUTE = 1
        monkeypatch.setattr(access.RequestQuota, "_outage", Outage("The cache that counts requests"))
        monkeypatch.setattr(access.RequestQuota, "_resumes_at", 0.0)
        caches["throttling"].clear()
        clock = SimpleNamespace(now=MINUTE)
        monkeypatch.setattr(access, "read_time", lambda: clock.now)
        return clock

    def test_answers_say_what_is_left_and_when_to_try_again(self, viewer: Script, clock: SimpleNamespace) -> None:
        clock.now = MINUTE + 29.5
        answers = [viewer.get("nowhere"), viewer.get("runs/1/events", Accept="image/png"), viewer.get("nowhere")]
        assert [answer.status_code for answer in answers] == [404, 406, 404]
        assert [answer["RateLimit"] for answer in answers] == [f'"reads";r={left};t=31' for left in (2, 1, 0)]
        assert answers[0]["RateLimit-Policy"] == '"reads";q=3;w=60'
        refused = viewer.get("nowhere")
        assert read_problem(refused)["type"] == "urn:toolflow:problem:throttled"
        assert (refused["Retry-After"], refused["RateLimit"]) == ("31", '"reads";r=0;t=31')
        clock.now += int(refused["Retry-After"])
        assert viewer.get("nowhere").status_code == 404

    def test_reading_and_changing_are_counted_apart_and_so_is_each_token_but_not_each_session(
        self, operator: Script, owner: User
    ) -> None:
        assert [operator.post("nowhere").status_code for _ in range(3)] == [404, 404, 429]
        assert operator.get("nowhere")["RateLimit"] == '"reads";r=2;t=60'
        one, other = (Script(create_token(owner, TokenScope.READ, name=name)) for name in ("one", "other"))
        assert [one.get("nowhere").status_code for _ in range(4)] == [404, 404, 404, 429]
        assert other.get("nowhere").status_code == 404
        browsers = [Client(), Client()]
        for left, browser in zip((2, 1), browsers, strict=True):
            browser.force_login(owner)
            assert browser.get("/api/v1/nowhere")["RateLimit"] == f'"reads";r={left};t=60'

    def test_anonymous_callers_are_counted_by_address_whatever_token_they_send(self, viewer: Script) -> None:
        answers = [Script(token).get("nowhere") for token in (None, "tf_" + "0" * 64)]
        assert [answer.status_code for answer in answers] == [401, 429]
        assert answers[0]["RateLimit"] == '"strangers";r=0;t=60'
        assert Client(REMOTE_ADDR="2001:db8::7").get("/api/v1/nowhere").status_code == 401
        # All addresses of a network of IPv6 belong to one caller.
        assert Client(REMOTE_ADDR="2001:db8::1:2:3:4").get("/api/v1/nowhere").status_code == 429
        assert viewer.get("nowhere").status_code == 404

    def test_a_cache_that_is_away_refuses_no_caller_and_is_left_alone_for_a_while(
        self, viewer: Script, settings: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        there = settings.CACHES
        settings.CACHES = {**there, "throttling": AWAY}
        answers = [viewer.get("nowhere") for _ in range(5)]
        assert [(answer.status_code, "RateLimit" in answer) for answer in answers] == [(404, False)] * 5
        assert caplog.text.count("The cache that counts requests can't be reached") == 1
        settings.CACHES = there
        assert "RateLimit" not in viewer.get("nowhere")
        access.RequestQuota._resumes_at = 1e-9
        assert viewer.get("nowhere")["RateLimit"].startswith('"reads";r=2;')

    def test_redis_counts_for_all_servers(self, redis_url: str, viewer: Script, settings: Any) -> None:
        redis = {"BACKEND": REDIS, "LOCATION": redis_url, "KEY_PREFIX": "toolflow-tests"}
        settings.CACHES = {**settings.CACHES, "throttling": redis}
        caches["throttling"].clear()
        assert [viewer.get("nowhere").status_code for _ in range(4)] == [404, 404, 404, 429]
        caches["throttling"].clear()
