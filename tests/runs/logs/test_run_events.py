"""What is logged of runs: events with codes, and on every line where it belongs."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest

from flows.engine.simulated_model import Fault, FaultKind
from runs.models import Run
from runs.models.run import MAX_CRASHES
from runs.observability.log_lines import JsonLines
from runs.sweep import sweep
from tests.engine.builders import make_flow, make_step
from tests.engine.model_server import ModelServer
from tests.runs.builders import claim_run, make_dead_owner, make_run, make_version
from tests.runs.executing import drain, script

pytestmark = pytest.mark.django_db(transaction=True)

TEA = {"text": "Tea is a warm drink."}


@pytest.fixture
def lines() -> Iterator[Any]:
    """Reads what is logged from INFO on, as machines do."""
    stream = StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    loggers = [logging.getLogger(name) for name in ("runs.worker.run_events", "runs.observability.log_events")]
    before = [logger.level for logger in loggers]
    logging.root.addHandler(handler)
    for logger in loggers:
        logger.setLevel(logging.INFO)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    logging.root.removeHandler(handler)
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)


def test_a_run_is_logged_from_its_start_to_its_end(provider: ModelServer, lines: Any) -> None:
    script(provider, tool_1=[{"text": 7}, TEA])
    run = make_run()
    drain()
    reported = lines()
    assert [
        (line["event"], line.get("run"), line.get("step"), line.get("attempt")) for line in reported if "event" in line
    ] == [
        ("drain.started", None, None, None),
        ("run.started", run.pk, None, None),
        ("attempt.ended", run.pk, 1, 1),
        ("attempt.started", run.pk, 1, 2),
        ("attempt.ended", run.pk, 1, 2),
        ("run.ended", run.pk, 1, 2),
        ("drain.stopped", None, None, None),
    ]
    invalid, passed = (line for line in reported if line.get("event") == "attempt.ended")
    assert (invalid["outcome"], invalid["issues"], passed["outcome"], passed["issues"]) == ("invalid", 1, "passed", 0)
    usage = run.steps.get().attempts.get(number=2).usage
    assert passed["prompt_tokens"] == usage.prompt > 0
    assert passed["seconds"] >= 0
    (end,) = (line for line in reported if line.get("event") == "run.ended")
    assert (end["status"], end["reason"]) == ("succeeded", "all_steps_passed")


class TestEndsWithoutAWorker:
    def read_ends(self, lines: Any) -> list[tuple[Any, ...]]:
        return [(line["run"], line["status"], line["reason"]) for line in lines() if line.get("event") == "run.ended"]

    @pytest.mark.parametrize(
        ("values", "end"),
        [
            ({"crashes": MAX_CRASHES - 1}, [("errored", "crashed")]),
            ({"cancel_requested": True}, [("cancelled", "cancelled")]),
            ({}, []),
        ],
    )
    def test_a_run_that_is_taken_from_a_dead_worker_is_reported(
        self, lines: Any, values: dict[str, Any], end: list[tuple[str, str]]
    ) -> None:
        run = claim_run(make_run(), str(make_dead_owner()))
        Run.objects.filter(pk=run.pk).update(**values)
        sweep()
        assert [line["run"] for line in lines() if line.get("event") == "run.taken"] == [run.pk]
        assert self.read_ends(lines) == [(run.pk, *one) for one in end]


def test_errors_of_the_provider_have_a_code_and_nothing_that_was_said_is_logged(
    provider: ModelServer, lines: Any
) -> None:
    script(provider, tool_1=[{"text": "a-secret-output"}], tool_2=[Fault(FaultKind.SERVER_ERROR)])
    flow = make_flow(make_step(1), make_step(2, retry_window=0))
    make_run(make_version(flow), input={"topic": "a-secret-input"})
    drain()
    (error,) = (line for line in lines() if line.get("event") == "provider.error")
    assert (error["level"], error["code"], error["status"]) == ("warning", "server_error", 500)
    text = json.dumps(lines())
    assert "a-secret" not in text and "right-key" not in text
