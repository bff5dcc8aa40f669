"""Somebody who traces a call to the API finds the traces of the runs that it started."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from runs.models import Run
from runs.stored_history import make_run_id
from runs.tokens import make_token
from runs.tracing.spans import build_ids, get_request_provider
from tests.runs.builders import make_version
from tests.runs.tracing.test_tracing import Collector

pytestmark = pytest.mark.django_db

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"


def close_provider() -> None:
    """Send what is left, and begin again with the next request."""
    get_request_provider().shutdown()
    get_request_provider.cache_clear()


@pytest.fixture
def collector(settings: Any) -> Iterator[Collector]:
    found = Collector()
    settings.TOOLFLOW_TRACES = found.address
    yield found
    close_provider()
    found.stop()


@pytest.fixture
def script() -> Client:
    make_version()
    _, token = make_token(user=User.objects.create_superuser("ada"), name="script", scope="run", lifetime=None)
    return Client(headers={"Authorization": f"Bearer {token}"})


def start(script: Client, parent: str | None, path: str = "runs", **body: Any) -> Any:
    headers = {"X-Request-ID": "from-the-caller", **({"traceparent": parent} if parent else {})}
    orders = {"flow": "example", **(body or {"input": {"topic": "tea"}})}
    return script.post(f"/api/v1/{path}", json.dumps(orders), content_type="application/json", headers=headers)


def read_links(collector: Collector) -> list[tuple[int, int]]:
    close_provider()
    return [(int(link.trace_id.hex(), 16), int(link.span_id.hex(), 16)) for s in collector.spans for link in s.links]


def find_traces() -> list[tuple[int, int]]:
    names = [make_run_id(run) for run in Run.objects.order_by("pk")]
    return [build_ids(name) for name in names]


def test_a_span_in_the_callers_trace_links_to_that_of_the_run(script: Client, collector: Collector) -> None:
    assert start(script, PARENT).status_code == 202
    assert read_links(collector) == find_traces()
    (span,) = collector.spans
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, SPAN)
    assert span.name == "POST /api/v1/runs" and 0 < span.start_time_unix_nano <= span.end_time_unix_nano
    told = {attribute.key: attribute.value for attribute in span.attributes}
    assert told["toolflow.request_id"].string_value == "from-the-caller"


def test_runs_that_are_started_together_are_all_linked(script: Client, collector: Collector) -> None:
    start(script, PARENT, "runs/bulk", runs=[{"input": {"topic": "tea"}}] * 3)
    assert read_links(collector) == find_traces() and Run.objects.count() == 3


@pytest.mark.parametrize("parent", [None, f"00-{TRACE}-{SPAN}-00", f"00-{'0' * 32}-{SPAN}-01", "nonsense", "00-x-y-01"])
def test_nothing_is_told_for_who_traces_nothing(script: Client, collector: Collector, parent: str | None) -> None:
    assert start(script, parent).status_code == 202
    assert read_links(collector) == [] == collector.spans


def test_a_request_that_starts_nothing_has_no_span(script: Client, collector: Collector) -> None:
    assert start(script, PARENT, flow="unknown").status_code in {400, 404, 422}
    assert read_links(collector) == [] == collector.spans


def test_a_collector_that_is_away_holds_up_nothing(script: Client, collector: Collector, settings: Any) -> None:
    settings.TOOLFLOW_TRACES = "http://127.0.0.1:9"
    assert start(script, PARENT).status_code == 202


@pytest.mark.parametrize(("share", "linked"), [("0", 0), ("1", 3)])
def test_links_lead_only_to_runs_that_are_told_of(
    script: Client, collector: Collector, monkeypatch: pytest.MonkeyPatch, share: str, linked: int
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", share)
    start(script, PARENT, "runs/bulk", runs=[{"input": {"topic": "tea"}}] * 3)
    assert len(read_links(collector)) == linked
    (span,) = collector.spans
    assert {attribute.key: attribute.value for attribute in span.attributes}["toolflow.runs"].int_value == 3
