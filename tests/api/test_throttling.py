"""How many requests a token, a user or an address may make in a minute, and what scripts are told of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.cache import caches
from django.test import Client

from runs.api import access
from runs.models import TokenScope
from runs.observability.log_events import Outage
from tests.api.asking import Script, make_token, make_user, read_problem

pytestmark = pytest.mark.django_db

MINUTE = 1_800_000_000.0
"""When a minute begins."""
REDIS = "django.core.cache.backends.redis.RedisCache"
AWAY = {"BACKEND": REDIS, "LOCATION": "redis://127.0.0.1:1"}


class Clock:
    """A clock that stands until it is put forward."""

    def __init__(self) -> None:
        self.now = MINUTE

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(access, "read_time", clock)
    return clock


@pytest.fixture(autouse=True)
def _few_requests(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.TOOLFLOW_API_READS_PER_MINUTE = 3
    settings.TOOLFLOW_API_WRITES_PER_MINUTE = 2
    settings.TOOLFLOW_API_STRANGERS_PER_MINUTE = 1
    monkeypatch.setattr(access.RequestQuota, "_outage", Outage("The cache that counts requests"))
    caches["throttling"].clear()


def test_answers_say_what_is_left_and_a_request_too_many_when_to_try_again(viewer: Script, clock: Clock) -> None:
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


def test_reading_and_changing_are_counted_apart(operator: Script, clock: Clock) -> None:
    assert [operator.post("nowhere").status_code for _ in range(3)] == [404, 404, 429]
    assert operator.get("nowhere")["RateLimit"] == '"reads";r=2;t=60'


def test_each_token_has_a_quota_of_its_own_also_of_the_same_owner(groups: None, clock: Clock) -> None:
    owner = make_user("ada", "Viewer")
    one, other = (Script(make_token(owner, TokenScope.READ, name=name)) for name in ("one", "other"))
    assert [one.get("nowhere").status_code for _ in range(4)] == [404, 404, 404, 429]
    assert other.get("nowhere").status_code == 404


def test_sessions_are_counted_by_user(groups: None, clock: Clock) -> None:
    browsers = [Client(), Client()]
    for browser in browsers:
        browser.force_login(make_user("ada", "Viewer"))
    assert [browser.get("/api/v1/nowhere")["RateLimit"] for browser in browsers] == [
        '"reads";r=2;t=60',
        '"reads";r=1;t=60',
    ]


def test_anonymous_callers_are_counted_by_address_whatever_token_they_send(viewer: Script, clock: Clock) -> None:
    answers = [Script(token).get("nowhere") for token in (None, "tf_" + "0" * 64)]
    assert [answer.status_code for answer in answers] == [401, 429]
    assert answers[0]["RateLimit"] == '"strangers";r=0;t=60'
    assert Client(REMOTE_ADDR="2001:db8::7").get("/api/v1/nowhere").status_code == 401
    # All addresses of a network of IPv6 belong to one caller.
    assert Client(REMOTE_ADDR="2001:db8::1:2:3:4").get("/api/v1/nowhere").status_code == 429
    assert viewer.get("nowhere").status_code == 404


def test_a_cache_that_is_away_refuses_nobody_and_is_left_alone_for_a_while(
    viewer: Script, settings: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = settings.CACHES
    settings.CACHES = {**there, "throttling": AWAY}
    answers = [viewer.get("nowhere") for _ in range(5)]
    assert [(answer.status_code, "RateLimit" in answer) for answer in answers] == [(404, False)] * 5
    assert caplog.text.count("The cache that counts requests can't be reached") == 1
    settings.CACHES = there
    assert "RateLimit" not in viewer.get("nowhere")
    monkeypatch.setattr(access.RequestQuota, "_resumes_at", 0.0)
    assert viewer.get("nowhere")["RateLimit"].startswith('"reads";r=2;')


@pytest.fixture
def redis_cache(redis_url: str, settings: Any) -> Iterator[None]:
    redis = {"BACKEND": REDIS, "LOCATION": redis_url, "KEY_PREFIX": "toolflow-tests"}
    settings.CACHES = {**settings.CACHES, "throttling": redis}
    caches["throttling"].clear()
    yield
    caches["throttling"].clear()


def test_it_counts_in_redis(redis_cache: None, viewer: Script, clock: Clock) -> None:
    assert [viewer.get("nowhere").status_code for _ in range(4)] == [404, 404, 404, 429]
