"""``python -m tests.faults.observer``: an observer at the database of an installation under test.

Reads one JSON object a line (``{"command": …, …arguments}``) and answers each with one line: ``{"result": …}`` or
``{"error": …}``. It runs with the settings of the installation, beside its workers, as a web server would.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import Any

import django

django.setup()

from django.core.management import call_command  # noqa: E402  # Django has to be set up first
from django.db import close_old_connections  # noqa: E402
from django.utils import timezone  # noqa: E402
from django_q.brokers import get_broker  # noqa: E402

from flows.engine.model_calls import resolve_spec  # noqa: E402
from flows.engine.planner import Finish, next_action  # noqa: E402
from flows.engine.spec import FlowSpec, ModelSettings  # noqa: E402
from flows.models import Flow  # noqa: E402
from runs.backtests.requests import request_backtest  # noqa: E402
from runs.backtests.work import LOST_AFTER, work_on  # noqa: E402
from runs.models import Attempt, Backtest, FlowSpending, Run, TokenUsage, Worker  # noqa: E402
from runs.stored_history import load_history  # noqa: E402
from runs.submission import submit_run  # noqa: E402
from tests.faults.invariants import StoredAttempt, StoredRun  # noqa: E402
from tests.runs.builders import make_version  # noqa: E402

TOKENS = ("prompt", "completion", "total", "cached", "reasoning")
SEVERITIES = ("low", "medium", "high", "critical")


def publish(document: dict[str, Any]) -> str:
    """Make a flow of this document, with one live version; gives its name."""
    return str(make_version(FlowSpec.from_document(document)).flow.name)


def limit_flow(flow: str, tokens: int) -> None:
    """Give all runs of a flow together this number of tokens in a month."""
    Flow.objects.filter(name=flow).update(total_token_budget=tokens)


def read_spending(flow: str) -> int:
    """The tokens that all runs of a flow together have used, as its budget counts them."""
    return sum(FlowSpending.objects.filter(flow__name=flow).values_list("tokens", flat=True))


def submit(flow: str, inputs: list[dict[str, Any]], options: dict[str, Any]) -> list[int]:
    """Start a run of the flow's live version for each input, with these options; gives their numbers."""
    row = Flow.objects.get(name=flow)
    return [submit_run(flow=row, input=one, **options).pk for one in inputs]


def cancel(runs: list[int]) -> int:
    """Cancel runs; gives how many of them had not ended yet."""
    return sum(run.request_cancel() for run in Run.objects.filter(pk__in=runs))


def count() -> dict[str, int]:
    """How many runs there are of each status."""
    return Counter(Run.objects.order_by().values_list("status", flat=True))


def list_drains() -> list[int]:
    """The ids of the processes that say that they execute runs."""
    return list(Worker.objects.values_list("pid", flat=True))


def list_owners() -> list[str]:
    """Who has runs under way."""
    return list(Run.objects.running().order_by().values_list("owner", flat=True).distinct())


def drop_messages() -> int:
    """Lose all messages of the queue; gives how many there were."""
    broker = get_broker()
    waiting = int(broker.queue_size())
    broker.purge_queue()
    return waiting


def seed_runs(runs: int) -> str:
    """Store this number of simulated runs of one flow; gives its name."""
    call_command("seed_history", runs=0, planted=runs, stdout=sys.stderr)
    return str(Flow.objects.get().name)


def ask_backtest(flow: str) -> int:
    """Ask what the flow's runs would be without the audits of its first step; gives the number of the backtest."""
    row = Flow.objects.get(name=flow)
    assert row.live_version is not None
    spec = row.live_version.flow_spec
    first = spec.steps[0].model_copy(update={"audits": ()})
    candidate = spec.model_copy(update={"steps": (first, *spec.steps[1:])})
    return request_backtest(flow=row, candidate=candidate, limit=10_000).pk


def work_off(backtest: int) -> None:
    """Do all of a backtest here."""
    work_on(backtest, timeout=600)


def read_backtest(backtest: int) -> dict[str, Any]:
    """Its state, its position, what it found, and how many runs differ."""
    row = Backtest.objects.get(pk=backtest)
    return {"state": row.state, "position": row.position, "totals": row.totals, "rows": row.runs.count()}


def age_backtest(backtest: int) -> None:
    """Make it look as if no task had worked on it for long: its task counts as lost."""
    Backtest.objects.filter(pk=backtest).update(heartbeat_at=timezone.now() - 2 * LOST_AFTER)


def read_runs() -> list[dict[str, Any]]:
    """Everything about all runs."""
    return [_read_run(run).model_dump(mode="json") for run in Run.objects.select_related("version").order_by("pk")]


def _read_run(run: Run) -> StoredRun:
    rows = Attempt.objects.filter(step__run=run).select_related("step", "usage", "sent").prefetch_related("issues")
    stored = StoredRun(
        pk=run.pk,
        status=run.status,
        end_reason=run.end_reason,
        end_sentence=run.end_sentence,
        crashes=run.crashes,
        created_at=run.created_at,
        ended_at=run.ended_at,
        counts={
            "attempts": run.attempt_count,
            "retries": run.retry_count,
            "steps passed": run.steps_passed,
            **{f"{name} tokens": getattr(run, f"{name}_tokens") for name in TOKENS},
            **{f"{name} issues": getattr(run, f"issues_{name}") for name in SEVERITIES},
        },
        cost=run.cost,
        attempts=[_read_attempt(row) for row in rows.order_by("step__index", "number")],
    )
    defaults = ModelSettings.model_validate(run.model_settings)
    spec = run.version.flow_spec.with_limits(token_budget=run.token_budget, cost_budget=run.cost_budget)
    try:
        action = next_action(resolve_spec(spec, defaults), load_history(run))
    except ValueError as error:
        stored.history_error = str(error)
    else:
        if isinstance(action, Finish):
            stored.planned_end = (action.status.value, action.reason.value)
    return stored


def _read_attempt(row: Attempt) -> StoredAttempt:
    assert row.started_at is not None
    usage = getattr(row, "usage", None)
    issues = Counter(issue.severity for issue in row.issues.all())
    return StoredAttempt(
        step=row.step.index,
        number=row.number,
        outcome=row.outcome,
        is_call=row.request is not None,
        usage_rows=TokenUsage.objects.filter(attempt=row).count() if usage is None else 1,
        usage={name: getattr(usage, name) if usage else 0 for name in TOKENS},
        cost=usage.cost if usage else None,
        issues={name: issues[name] for name in SEVERITIES},
        started_at=row.started_at,
        ended_at=row.ended_at,
    )


def main() -> None:
    """Answer until no command is left."""
    for line in sys.stdin:
        arguments = json.loads(line)
        close_old_connections()
        try:
            answer = {"result": globals()[arguments.pop("command")](**arguments)}
        except Exception as error:  # noqa: BLE001  # whatever it is, the test that asked decides what it means
            answer = {"error": f"{type(error).__name__}: {error}"}
        sys.stdout.write(f"{json.dumps(answer)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
