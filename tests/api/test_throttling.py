"""How many requests a token, a user or an address may make in a minute, and what scripts are told of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.cache import caches
from django.test import Client

from runs.api import throttling
from runs.models import TokenScope
from tests.api.asking import Script, make_token, make_user, read_problem

pytestmark = pytest.mark.django_db

MINUTE = 1_800_000_000.0
"""When a minute begins."""
AWAY = {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": "redis://127.0.0.1:1"}


class Clock:
    """A clock that stands until it is put forward."""

    def __init__(self) -> None:
        self.now = MINUTE

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(throttling, "read_time", clock)
    return clock


@pytest.fixture(autouse=True)
def _few_requests(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.TOOLFLOW_API_READS_PER_MINUTE = 3
    settings.TOOLFLOW_API_WRITES_PER_MINUTE = 2
    settings.TOOLFLOW_API_STRANGERS_PER_MINUTE = 1
    monkeypatch.setattr(throttling, "counter", throttling.RequestCounter())
    caches["throttling"].clear()


def read_limits(answer: Any) -> tuple[str, str]:
    return answer["RateLimit-Policy"], answer["RateLimit"]


def test_every_answer_tells_what_is_left_and_until_when(viewer: Script, clock: Clock) -> None:
    clock.now = MINUTE + 12.5
    assert read_limits(viewer.get("nowhere")) == ('"reads";q=3;w=60', '"reads";r=2;t=48')
    clock.now = MINUTE + 59.9
    assert read_limits(viewer.get("nowhere")) == ('"reads";q=3;w=60', '"reads";r=1;t=1')


def test_whoever_asks_too_often_is_told_when_to_ask_again_and_may_then(viewer: Script, clock: Clock) -> None:
    clock.now = MINUTE + 30
    statuses = [viewer.get("nowhere").status_code for _ in range(3)]
    refused = viewer.get("nowhere")
    assert statuses == [404] * 3
    assert read_problem(refused) == {
        "type": "urn:toolflow:problem:throttled",
        "title": "Too Many Requests",
        "status": 429,
        "detail": "Too many requests. Try again in 30 seconds.",
        "request_id": refused["X-Request-ID"],
    }
    assert refused["Retry-After"] == "30"
    assert read_limits(refused) == ('"reads";q=3;w=60', '"reads";r=0;t=30')
    clock.now += int(refused["Retry-After"])
    assert viewer.get("nowhere").status_code == 404


def test_reading_and_changing_are_counted_apart(operator: Script, clock: Clock) -> None:
    assert [operator.post("nowhere").status_code for _ in range(3)] == [404, 404, 429]
    assert read_limits(operator.get("nowhere")) == ('"reads";q=3;w=60', '"reads";r=2;t=60')


def test_each_token_has_a_quota_of_its_own_also_of_the_same_owner(groups: None, clock: Clock) -> None:
    owner = make_user("ada", "Viewer")
    one, other = (Script(make_token(owner, TokenScope.READ, name=name)) for name in ("one", "other"))
    assert [one.get("nowhere").status_code for _ in range(4)] == [404, 404, 404, 429]
    assert other.get("nowhere").status_code == 404


def test_whoever_is_signed_in_on_the_pages_is_counted_by_user(groups: None, clock: Clock) -> None:
    browsers = [Client(), Client()]
    for browser in browsers:
        browser.force_login(make_user("ada", "Viewer"))
    answers = [browser.get("/api/v1/nowhere") for browser in browsers]
    assert [answer["RateLimit"] for answer in answers] == ['"reads";r=2;t=60', '"reads";r=1;t=60']


def test_strangers_are_counted_by_address_whatever_token_they_send(viewer: Script, clock: Clock) -> None:
    answers = [Script(token).get("nowhere") for token in (None, "tf_" + "0" * 64)]
    assert [answer.status_code for answer in answers] == [401, 429]
    assert read_limits(answers[0]) == ('"strangers";q=1;w=60', '"strangers";r=0;t=60')
    assert Client(REMOTE_ADDR="2001:db8::7").get("/api/v1/nowhere").status_code == 401
    # Whoever has one address of a network of IPv6 has all of them.
    assert Client(REMOTE_ADDR="2001:db8::1:2:3:4").get("/api/v1/nowhere").status_code == 429
    # Whose token lets in is no stranger, wherever strangers ask from.
    assert viewer.get("nowhere").status_code == 404


def test_of_a_large_quota_the_cache_hears_in_parts_and_each_request_counts(
    viewer: Script, clock: Clock, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.TOOLFLOW_API_READS_PER_MINUTE = 500
    told = []
    increase = throttling._increase
    monkeypatch.setattr(throttling, "_increase", lambda key, count: told.append(count) or increase(key, count))  # type: ignore[func-returns-value]
    left = [viewer.get("nowhere")["RateLimit"].split(";")[1] for _ in range(12)]
    assert left == [f"r={number}" for number in range(499, 487, -1)]
    assert told == [1, 5, 5]
    clock.now += 60
    assert viewer.get("nowhere")["RateLimit"] == '"reads";r=499;t=60'


def test_answers_that_refuse_what_is_asked_for_tell_it_too(viewer: Script, clock: Clock) -> None:
    answer = viewer.get("runs/1/events", Accept="image/png")
    assert answer.status_code == 406
    assert read_limits(answer) == ('"reads";q=3;w=60', '"reads";r=2;t=60')


def test_a_cache_that_is_away_refuses_nobody_and_is_left_alone_for_a_while(
    viewer: Script, settings: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.CACHES = {**settings.CACHES, "throttling": AWAY}
    asked = []
    increase = throttling._increase
    monkeypatch.setattr(throttling, "_increase", lambda *told: asked.append(told) or increase(*told))  # type: ignore[func-returns-value]
    answers = [viewer.get("nowhere") for _ in range(5)]
    assert [answer.status_code for answer in answers] == [404] * 5
    assert [(answer["RateLimit-Policy"], "RateLimit" in answer) for answer in answers] == [
        ('"reads";q=3;w=60', False)
    ] * 5
    assert len(asked) == 1
    assert caplog.text.count("The cache that counts requests can't be reached") == 1


def test_it_counts_again_once_the_cache_answers(viewer: Script, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttling, "RESPITE", 0.0)
    there = settings.CACHES
    settings.CACHES = {**there, "throttling": AWAY}
    assert "RateLimit" not in viewer.get("nowhere")
    settings.CACHES = there
    assert viewer.get("nowhere")["RateLimit"].startswith('"reads";r=2;')


@pytest.fixture
def redis_cache(redis_url: str, settings: Any) -> Iterator[None]:
    settings.CACHES = {
        **settings.CACHES,
        "throttling": {
            "BACKEND": "django.core.cache.backends.redis.RedisCache",
            "LOCATION": redis_url,
            "KEY_PREFIX": "toolflow-tests",
        },
    }
    caches["throttling"].clear()
    yield
    caches["throttling"].clear()


def test_with_redis_all_processes_count_together(
    redis_cache: None, viewer: Script, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert viewer.get("nowhere")["RateLimit"] == '"reads";r=2;t=60'
    # As another process would: it knows nothing but Redis.
    monkeypatch.setattr(throttling, "counter", throttling.RequestCounter())
    assert [viewer.get("nowhere").status_code for _ in range(3)] == [404, 404, 429]
