"""Traces of runs, as a collector receives them over HTTP."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from runs.models import Run, RunStatus
from runs.rollup import count_ended_runs
from runs.stored_history import make_run_id
from runs.tokens import create_token
from runs.tracing import create_tracer
from runs.tracing.spans import RunTracer, build_ids, get_request_provider
from tests.engine.builders import make_flow, make_step
from tests.engine.model_server import ModelServer
from tests.runs.builders import make_run, make_version
from tests.runs.executing import drain, script

pytestmark = pytest.mark.django_db(transaction=True)

TEA = {"text": "Tea is a warm drink."}


class Collector:
    """An OTLP collector on a loopback port that remembers the spans it was given."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.resources: list[dict[str, Any]] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                assert self.path == "/v1/traces"
                message = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"])))
                for resource in message.resource_spans:
                    collector.resources.append(read_attributes(resource.resource.attributes))
                    for scope in resource.scope_spans:
                        collector.spans.extend(scope.spans)
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def find(self, name: str) -> list[Span]:
        """The spans of that name, in the order of their beginning."""
        return sorted((span for span in self.spans if span.name == name), key=lambda span: span.start_time_unix_nano)


def read_attributes(pairs: Any) -> dict[str, Any]:
    found = {}
    for pair in pairs:
        kind = pair.value.WhichOneof("value")
        value = getattr(pair.value, kind)
        found[pair.key] = [item.string_value for item in value.values] if kind == "array_value" else value
    return found


@pytest.fixture
def collector(settings: Any) -> Iterator[Collector]:
    found = Collector()
    settings.TOOLFLOW_TRACES = found.address
    yield found
    found.stop()


def tell_of_ended_runs() -> None:
    """What the next worker does that counts runs."""
    tracer = create_tracer()
    assert tracer is not None
    count_ended_runs(on_rolled_up=tracer.trace_ended_runs)
    asyncio.run(tracer.close())


def run_to_its_end(run: Run) -> None:
    drain()
    tell_of_ended_runs()
    run.refresh_from_db()


def test_a_run_is_one_trace_of_its_steps_and_their_attempts(provider: ModelServer, collector: Collector) -> None:
    version = make_version(make_flow(make_step(1), make_step(2, temperature=0.3, max_tokens=500)))
    script(provider, tool_1=[{"text": 7}, TEA], tool_2=[TEA])
    run = make_run(version)
    run_to_its_end(run)
    (root,) = collector.find(f"invoke_workflow {run.flow.name}")
    first_step, second_step = sorted(
        (span for span in collector.spans if span.name.startswith("step ")), key=lambda span: span.start_time_unix_nano
    )
    calls = collector.find("chat gpt-4.1")
    assert len(calls) == 3
    assert {span.trace_id for span in collector.spans} == {root.trace_id}
    assert root.parent_span_id == b""
    assert first_step.parent_span_id == second_step.parent_span_id == root.span_id
    assert [call.parent_span_id for call in calls] == [first_step.span_id, first_step.span_id, second_step.span_id]
    assert all(call.kind == Span.SPAN_KIND_CLIENT for call in calls)
    assert root.start_time_unix_nano <= first_step.start_time_unix_nano == calls[0].start_time_unix_nano
    assert calls[-1].end_time_unix_nano == second_step.end_time_unix_nano
    assert root.status.code == Status.STATUS_CODE_OK
    reported = read_attributes(root.attributes)
    assert reported["toolflow.run"] == run.pk
    assert reported["gen_ai.workflow.name"] == run.flow.name
    assert reported["toolflow.run.status"] == "succeeded"
    assert collector.resources[0]["service.name"] == "toolflow"
    (event,) = calls[0].events
    assert (event.name, read_attributes(event.attributes)) == ("toolflow.issues", {"toolflow.issues.critical": 1})
    assert not calls[1].events


def test_an_attempt_tells_in_the_words_of_the_conventions_what_was_asked_and_used(
    provider: ModelServer, collector: Collector
) -> None:
    version = make_version(make_flow(make_step(1, temperature=0.3, max_tokens=500)))
    script(provider, tool_1=[TEA])
    run = make_run(version)
    run_to_its_end(run)
    (call,) = collector.find("chat gpt-4.1")
    reported = read_attributes(call.attributes)
    usage = run.steps.get().attempts.get().usage
    assert {name: value for name, value in reported.items() if not name.startswith("toolflow.")} == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.output.type": "json",
        "gen_ai.request.model": "gpt-4.1",
        "gen_ai.request.temperature": 0.3,
        "gen_ai.request.max_tokens": 500,
        "gen_ai.response.model": reported["gen_ai.response.model"],
        "gen_ai.response.id": reported["gen_ai.response.id"],
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": usage.prompt,
        "gen_ai.usage.output_tokens": usage.completion,
        "gen_ai.usage.cache_read.input_tokens": usage.cached,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning,
        "server.address": "127.0.0.1",
        "server.port": reported["server.port"],
    }
    assert usage.prompt > 0
    assert reported["toolflow.attempt.outcome"] == "passed"


@pytest.mark.parametrize("with_content", [False, True])
def test_what_was_said_is_reported_only_to_who_asks_for_it(
    provider: ModelServer, collector: Collector, settings: Any, with_content: bool
) -> None:
    settings.TOOLFLOW_TRACE_CONTENT = with_content
    script(provider, tool_1=[{"text": "a-secret-output"}])
    run_to_its_end(make_run(input={"topic": "a-secret-input"}))
    everything = "".join(str(span) for span in collector.spans)
    assert ("a-secret-output" in everything) is with_content
    assert ("a-secret-input" in everything) is with_content
    if with_content:
        (call,) = collector.find("chat gpt-4.1")
        (message,) = json.loads(read_attributes(call.attributes)["gen_ai.output.messages"])
        assert message["role"] == "assistant"
        assert message["parts"][0]["arguments"] == {"text": "a-secret-output"}


@pytest.mark.parametrize("failure", ["a refused connection", "a span that can't be built"])
def test_what_fails_about_traces_is_nothing_to_a_run(
    provider: ModelServer, collector: Collector, settings: Any, failure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise ValueError("no span today")

    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.1")
    if failure == "a refused connection":
        settings.TOOLFLOW_TRACES = "http://127.0.0.1:9"
    else:
        monkeypatch.setattr(RunTracer, "_span", fail)
    script(provider, tool_1=[TEA])
    run = make_run()
    run_to_its_end(run)
    assert run.status == RunStatus.SUCCEEDED and not collector.spans


# Requests that start runs

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"


def close_provider() -> None:
    """Send what is left, and begin again with the next request."""
    get_request_provider().shutdown()
    get_request_provider.cache_clear()


@pytest.fixture
def caller() -> Iterator[Client]:
    make_version()
    _, token = create_token(user=User.objects.create_superuser("ada"), name="script", scope="run", lifetime=None)
    yield Client(headers={"Authorization": f"Bearer {token}"})
    close_provider()


def start(caller: Client, parent: str | None, path: str = "runs", **body: Any) -> Any:
    headers = {"X-Request-ID": "from-the-caller", **({"traceparent": parent} if parent else {})}
    orders = {"flow": "example", **(body or {"input": {"topic": "tea"}})}
    return caller.post(f"/api/v1/{path}", json.dumps(orders), content_type="application/json", headers=headers)


def read_links(collector: Collector) -> list[tuple[int, int]]:
    close_provider()
    return [(int(link.trace_id.hex(), 16), int(link.span_id.hex(), 16)) for s in collector.spans for link in s.links]


def find_traces() -> list[tuple[int, int]]:
    return [build_ids(make_run_id(run)) for run in Run.objects.order_by("pk")]


def test_a_span_in_the_callers_trace_links_to_those_of_all_runs_that_it_started(
    caller: Client, collector: Collector
) -> None:
    assert start(caller, PARENT, "runs/bulk", runs=[{"input": {"topic": "tea"}}] * 3).status_code == 202
    assert read_links(collector) == find_traces() and Run.objects.count() == 3
    (span,) = collector.spans
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, SPAN)
    assert span.name == "POST /api/v1/runs/bulk" and 0 < span.start_time_unix_nano <= span.end_time_unix_nano
    reported = {attribute.key: attribute.value for attribute in span.attributes}
    assert reported["toolflow.request_id"].string_value == "from-the-caller"


@pytest.mark.parametrize(
    ("parent", "flow"),
    [(None, "example"), (f"00-{TRACE}-{SPAN}-00", "example"), ("00-x-y-01", "example"), (PARENT, "unknown")],
)
def test_nothing_is_sent_for_a_caller_who_traces_nothing_or_starts_nothing(
    caller: Client, collector: Collector, parent: str | None, flow: str
) -> None:
    start(caller, parent, flow=flow, input={"topic": "tea"})
    assert Run.objects.exists() is (flow == "example")
    assert read_links(collector) == [] == collector.spans
