"""Runs that backtests judge: their flow's one step wants long texts, and is retried until they are."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any
from unittest.mock import patch

from django.db import connection

from flows.engine.history import Severity
from flows.engine.spec import AuditSpec, FlowSpec
from flows.models import Flow, FlowVersion
from runs.backtests import work
from runs.backtests.requests import request_backtest
from runs.models import Backtest, Run
from tests.engine.builders import make_attempt, make_issue, make_step, make_usage
from tests.runs.builders import make_version
from tests.runs.pages.history_builders import make_stored_run

NAME = "texts"
LONG = 10
"""Characters that the audit wants."""


def make_audited_flow(length: int = LONG, *, max_retries: int = 3, **fields: Any) -> FlowSpec:
    """One model step with the audit “Is long”, which blocks, and “Has no x”, which only warns."""
    audits = (
        AuditSpec(name="Is long", rule=f"output.text.size() >= {length}", severity=Severity.HIGH),
        AuditSpec(name="Has no x", rule="!output.text.contains('x')", severity=Severity.LOW, fail_at="never"),
    )
    step = make_step(1, audits=audits, max_retries=max_retries)
    return FlowSpec(**{"name": NAME, "title": "Texts", "steps": (step,), **fields})


def store_run(version: FlowVersion, *texts: str, **fields: Any) -> Run:
    """A run that ended after attempts with these texts, judged as ``make_audited_flow()`` does; each cost $0.01."""
    attempts = []
    for number, text in enumerate(texts, 1):
        found = {"Is long": ("high", len(text) < LONG), "Has no x": ("low", "x" in text)}
        issues = tuple(
            make_issue(
                severity, f"The audit “{audit}” did not pass.", audit=audit, code=audit.lower().replace(" ", "_")
            )
            for audit, (severity, is_found) in found.items()
            if is_found
        )
        usage = make_usage(100).model_copy(update={"cost": Decimal("0.01")})
        outcome = "passed" if len(text) >= LONG else "failed"
        attempts.append(make_attempt(1, number, outcome, output={"text": text}, issues=issues, usage=usage))
    is_passed = len(texts[-1]) >= LONG
    status = "succeeded" if is_passed else "failed"
    blocking = {} if is_passed else {"blocking_step": 1, "blocking_attempt": len(texts)}
    counts = {"steps_passed": int(is_passed), "retry_count": len(texts) - 1}
    values: dict[str, Any] = {"status": status, **counts, **blocking, **fields}
    return make_stored_run(*attempts, version=version, **values)


def store_history() -> list[Run]:
    """Four runs. Of them a bound of 5 characters ends two sooner, which saves 3 retries; one of 20 refuses two."""
    version = make_version(make_audited_flow())
    return [
        store_run(version, "long enough"),
        store_run(version, "short", "long enough"),
        store_run(version, "short", "shorter", "a text of more than twenty characters"),
        store_run(version, "no", "x", "no", "no"),
    ]


def ask(candidate: FlowSpec | FlowVersion, **options: Any) -> Backtest:
    """A backtest of runs of that flow that no task works on yet."""
    flow = Flow.objects.select_related("live_version").get(name=NAME)
    with patch.object(work, "send_task"), patch("runs.backtests.requests.send_task"):
        return request_backtest(flow=flow, candidate=candidate, **options)


def backtest(candidate: FlowSpec | FlowVersion, **options: Any) -> Backtest:
    """A finished backtest."""
    return finish(ask(candidate, **options))


def finish(found: Backtest) -> Backtest:
    """The backtest when a task has done it all."""
    with patch.object(work, "send_task"):
        work.work_on(found.pk, timeout=60)
    found.refresh_from_db()
    return found


def finish_in_thread(found: Backtest) -> Backtest:
    """The same in tests with a browser, which have an event loop of their own."""

    def work_off() -> None:
        finish(found)
        connection.close()

    with ThreadPoolExecutor(1) as threads:
        threads.submit(work_off).result()
    found.refresh_from_db()
    return found
