"""What processes of the worker measure, and where they serve it."""

from __future__ import annotations

import os
import socket
from http.client import HTTPConnection
from typing import Any

import pytest

from flows.engine.simulated_model import Fault, FaultKind
from runs import observability
from runs.observability.meters import WorkerMeter
from runs.observability.worker_metrics import serve_metrics
from tests.engine.builders import make_flow, make_step
from tests.engine.model_server import ModelServer
from tests.runs.builders import make_run, make_version
from tests.runs.executing import drain, script
from tests.runs.metrics.scraping import TOKEN, of, read_registry, read_samples

pytestmark = pytest.mark.django_db

TEA = {"text": "Tea is a warm drink."}


class TestWorkers:
    def test_a_worker_measures_attempts_errors_and_transactions(
        self, transactional_db: None, provider: ModelServer, settings: Any
    ) -> None:
        settings.TOOLFLOW_WORKER_METRICS_PORT = 9464
        script(provider, tool_1=[TEA], tool_2=[Fault(FaultKind.SERVER_ERROR)])
        make_run(make_version(make_flow(make_step(1), make_step(2, retry_window=0))))
        drain()
        meter = observability.find_worker_meter()
        assert meter is not None
        samples = read_registry(meter.registry)
        assert of(samples, "toolflow_attempt_seconds_count", model="gpt-4.1", outcome="passed") == 1
        assert of(samples, "toolflow_attempt_seconds_count", model="gpt-4.1", outcome="errored") == 1
        assert of(samples, "toolflow_provider_errors_total", model="gpt-4.1", code="server_error") == 1
        assert of(samples, "toolflow_recorder_batch_writes_sum") == 3, "two beginnings, one with an end, and the end"
        assert of(samples, "toolflow_recorder_commit_seconds_count") == 3

    def test_simulated_answers_are_not_measured(self, transactional_db: None, settings: Any) -> None:
        settings.TOOLFLOW_WORKER_METRICS_PORT = 9464
        make_run(is_simulated=True)
        drain()
        meter = observability.find_worker_meter()
        assert meter is not None
        samples = {sample.name for family in meter.registry.collect() for sample in family.samples}
        assert "toolflow_attempt_seconds_count" not in samples

    @pytest.mark.parametrize(
        ("host", "open_at"),
        [("127.0.0.1", {"127.0.0.1"}), ("0.0.0.0", {"127.0.0.1", "127.0.0.2"})],  # noqa: S104  # for a moment
    )
    def test_only_the_address_that_is_set_answers(self, host: str, open_at: set[str]) -> None:
        port = find_free_ports(1)
        server = serve_metrics(WorkerMeter().registry, host=host, port=port, count=1, token=TOKEN)
        assert server is not None
        try:
            assert {name for name in ("127.0.0.1", "127.0.0.2") if is_open(name, port)} == open_at
        finally:
            server.shutdown()
            server.server_close()

    def test_a_worker_counts_for_itself_in_the_environment_of_a_website_too(
        self, settings: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        settings.TOOLFLOW_WORKER_METRICS_PORT = 9464
        monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "/nowhere")
        assert observability.find_worker_meter() is not None
        assert "PROMETHEUS_MULTIPROC_DIR" not in os.environ

    def test_each_process_takes_the_first_port_that_is_free_and_asks_for_the_token(self) -> None:
        port = find_free_ports(2)
        first_meter, second_meter = WorkerMeter(), WorkerMeter()
        first_meter.note_batch(writes=3, seconds=0.01)
        first = serve_metrics(first_meter.registry, host="127.0.0.1", port=port, count=2, token=TOKEN)
        second = serve_metrics(second_meter.registry, host="127.0.0.1", port=port, count=2, token=TOKEN)
        assert first is not None and second is not None
        try:
            assert (first.server_port, second.server_port) == (port, port + 1)
            assert fetch(port, TOKEN)[0] == 200
            samples = read_samples(fetch(port, TOKEN)[1])
            assert of(samples, "toolflow_recorder_batch_writes_sum") == 3
            assert fetch(port, "wrong")[0] == 401
            assert serve_metrics(first_meter.registry, host="127.0.0.1", port=port, count=2, token=TOKEN) is None
        finally:
            for server in (first, second):
                server.shutdown()
                server.server_close()


def find_free_ports(count: int) -> int:
    """The first of so many ports that nobody has, one after the other.

    Linux gives none of these to connections, and processes that test beside this one begin to look elsewhere.
    """
    for port in range(20_000 + os.getpid() % 1_000 * 10, 32_000, count):
        if not any(is_open("127.0.0.1", number) for number in range(port, port + count)):
            return port
    pytest.fail("All ports are taken.")


def is_open(host: str, port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex((host, port)) == 0


def fetch(port: int, token: str, path: str = "/metrics") -> tuple[int, str]:
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()
