"""Traces of runs, as a collector receives them over HTTP."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from flows.engine.execution import Progress, Start
from flows.engine.history import History
from flows.engine.prompt import build_request
from flows.engine.providers import Api, Provider, Providers
from flows.engine.simulated_model import Fault, FaultKind
from runs.models import Run, RunStatus
from runs.recorder import RunRecorder
from runs.rollup import count_ended_runs
from runs.stored_history import make_run_id
from runs.tokens import create_token
from runs.tracing import create_tracer
from runs.tracing.spans import RunTracer, build_ids, describe_call, describe_content, get_request_provider
from tests.engine.builders import make_attempt, make_flow, make_history, make_step
from tests.engine.model_server import ModelServer
from tests.runs.builders import claim_run, expire_lease, make_run, make_version
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
    told = read_attributes(root.attributes)
    assert told["toolflow.run"] == run.pk
    assert told["gen_ai.workflow.name"] == run.flow.name
    assert told["toolflow.run.status"] == "succeeded"
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
    told = read_attributes(call.attributes)
    usage = run.steps.get().attempts.get().usage
    assert {name: value for name, value in told.items() if not name.startswith("toolflow.")} == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.output.type": "json",
        "gen_ai.request.model": "gpt-4.1",
        "gen_ai.request.temperature": 0.3,
        "gen_ai.request.max_tokens": 500,
        "gen_ai.response.model": told["gen_ai.response.model"],
        "gen_ai.response.id": told["gen_ai.response.id"],
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": usage.prompt,
        "gen_ai.usage.output_tokens": usage.completion,
        "gen_ai.usage.cache_read.input_tokens": usage.cached,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning,
        "server.address": "127.0.0.1",
        "server.port": told["server.port"],
    }
    assert usage.prompt > 0
    assert told["toolflow.attempt.outcome"] == "passed"


def test_a_call_that_brought_no_answer_says_what_went_wrong(provider: ModelServer, collector: Collector) -> None:
    script(provider, tool_1=[Fault(FaultKind.SERVER_ERROR)])
    run = make_run(make_version(make_flow(make_step(1, retry_window=0))))
    run_to_its_end(run)
    assert run.status == RunStatus.ERRORED
    (call,) = collector.find("chat gpt-4.1")
    told = read_attributes(call.attributes)
    assert call.status.code == Status.STATUS_CODE_ERROR
    assert (told["error.type"], told["http.response.status_code"]) == ("server_error", 500)
    assert "gen_ai.usage.input_tokens" not in told, "unknown is not zero"
    (root,) = collector.find(f"invoke_workflow {run.flow.name}")
    assert read_attributes(root.attributes)["error.type"] == run.end_reason


def test_a_call_by_the_responses_api_is_described_like_any_other() -> None:
    request = build_request(
        make_flow(make_step(max_tokens=500)), make_history(), 1, {"topic": "tea"},
        providers=Providers(Provider(api=Api.RESPONSES)),
    )  # fmt: skip
    attempt = make_attempt(output={"text": "Tea."}, request=request)
    assert describe_call(attempt, Provider())["gen_ai.request.max_tokens"] == 500
    content = {name: json.loads(str(value)) for name, value in describe_content(attempt).items()}
    assert [part["content"] for part in content["gen_ai.input.messages"][-1]["parts"]] == ['{"topic":"tea"}']
    assert content["gen_ai.output.messages"][0]["parts"][0]["name"] == "tool_1"


@pytest.mark.parametrize("with_content", [False, True])
def test_what_was_said_is_told_only_to_who_asks_for_it(
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


def test_a_run_that_changes_workers_stays_one_trace_and_its_lost_attempt_is_told_of(
    provider: ModelServer, collector: Collector
) -> None:
    script(provider, tool_1=[TEA], tool_2=[TEA])
    run = make_run(make_version(make_flow(make_step(1), make_step(2))))

    # The first worker makes the first step, begins the second, and is never heard of again.
    held = claim_run(run)
    begin_and_die(held)
    expire_lease(run)
    run_to_its_end(run)
    assert (run.status, run.crashes) == (RunStatus.SUCCEEDED, 0)
    (lost,) = collector.find("interrupted attempt")
    (root,) = collector.find(f"invoke_workflow {run.flow.name}")
    assert len(collector.find("chat gpt-4.1")) == 2
    assert read_attributes(root.attributes)["toolflow.run.interrupted"] == 1
    assert {span.trace_id for span in collector.spans} == {root.trace_id}
    assert len({span.span_id for span in collector.spans}) == len(collector.spans)
    assert read_attributes(lost.attributes)["toolflow.attempt.outcome"] == "interrupted"


def begin_and_die(run: Run) -> None:
    """Begin the first attempt as a worker does, and no more."""
    spec = run.version.flow_spec
    recorder = RunRecorder(run, spec, History.begin(run.input, run_id=make_run_id(run)))
    recorder.record(Progress(begun=Start(1, 1, run.input, {"model": "gpt-4.1"}, datetime.now(UTC))))


def find_share(run: Run) -> float:
    """The share of all runs that samplers have to take for this one to be among them."""
    return (build_ids(make_run_id(run))[0] % 2**64) / 2**64


def test_a_share_of_the_runs_is_told_of_as_a_whole_and_the_others_not_at_all(
    provider: ModelServer, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(provider, tool_1=[TEA, TEA])
    version = make_version()
    runs = sorted((make_run(version), make_run(version)), key=find_share)
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", str(sum(map(find_share, runs)) / 2))
    drain()
    tell_of_ended_runs()
    told, _ = runs
    assert {int(span.trace_id.hex(), 16) for span in collector.spans} == {build_ids(make_run_id(told))[0]}
    kinds = sorted(span.name.partition(" ")[0] for span in collector.spans)
    assert kinds == ["chat", "invoke_workflow", "step"]


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


def test_without_a_collector_nothing_of_it_is_loaded() -> None:
    code = (
        "import django; django.setup(); import sys, runs.worker.tasks, runs.worker.event_loop; "
        "from runs.tracing import create_tracer; assert create_tracer() is None; "
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert found.stdout.strip() == "[]", found.stderr


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
    told = {attribute.key: attribute.value for attribute in span.attributes}
    assert told["toolflow.request_id"].string_value == "from-the-caller"


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
