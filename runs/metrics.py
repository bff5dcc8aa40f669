"""``/metrics``: figures of the whole installation, read from its database, and those of this server's requests."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import Any

from django.conf import settings
from django.db import DatabaseError, InterfaceError
from django.db.models import Count, DurationField, ExpressionWrapper, F, Min, Q, Sum
from django.db.models.functions import Now
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from runs import health
from runs.models import DailyRuns, DailySteps, Run, WebhookDelivery
from runs.models.webhook import DeliveryState
from runs.observability import find_web_meter
from runs.observability.worker_metrics import CHALLENGE, REFUSAL, is_allowed
from runs.statistics.queue_state import fetch_queue_state

logger = logging.getLogger(__name__)

NO_MODEL = "(none)"
"""The label of attempts that no model answered."""

STATUSES = ("succeeded", "failed", "errored", "cancelled")
WORKER_STATES = ("working", "stopping", "silent")


@require_safe
@never_cache
def show_metrics(request: HttpRequest) -> HttpResponse:
    """The metrics for a client that brings the token; 404 where none is set."""
    token = settings.TOOLFLOW_METRICS_TOKEN
    if not token:
        raise Http404
    if not is_allowed(request.headers.get("Authorization"), token=token):
        return HttpResponse(
            REFUSAL,
            status=HTTPStatus.UNAUTHORIZED,
            headers={"WWW-Authenticate": CHALLENGE},
            content_type="text/plain; charset=utf-8",
        )
    encode, content_type = choose_encoder(request.headers.get("Accept", ""))
    return HttpResponse(encode(_Metrics()), content_type=content_type)


class _Metrics(Collector):
    """All metrics that one address shows, read again for each scrape."""

    def collect(self) -> Iterator[Metric]:
        try:
            found = [*_collect_queue(), *_collect_webhooks(), *_collect_ended()]
        except (DatabaseError, InterfaceError) as error:
            logger.warning("Metrics can't be read from the database: %s", error)
            found = []
        yield GaugeMetricFamily("toolflow_database_up", "Whether the database answers.", value=int(bool(found)))
        # A queue in the database answers with it.
        has_broker = bool(found) if "orm" in settings.Q_CLUSTER else not health.find_broker_problem()
        yield GaugeMetricFamily("toolflow_broker_up", "Whether the queue's broker answers.", value=int(has_broker))
        yield from found
        if (meter := find_web_meter()) is not None:
            yield from meter.collect()


def _collect_queue() -> Iterator[Metric]:
    queue = fetch_queue_state()
    waiting = GaugeMetricFamily("toolflow_queued_runs", "Queued runs, by what they wait for.", labels=["waits_for"])
    for name, count in (("worker", queue.ready), ("time", queue.later), ("something", queue.waiting)):
        waiting.add_metric([name], count)
    yield waiting
    yield GaugeMetricFamily(
        "toolflow_queue_oldest_seconds",
        "Seconds that the oldest run which only waits for a worker has done so; 0 if there is none.",
        value=queue.oldest_ready.total_seconds() if queue.oldest_ready else 0.0,
    )
    yield GaugeMetricFamily("toolflow_running_runs", "Runs that a worker has.", value=Run.objects.running().count())
    workers = GaugeMetricFamily("toolflow_workers", "Worker processes that take runs.", labels=["state"])
    for state in WORKER_STATES:
        workers.add_metric([state], sum(worker.state == state for worker in queue.workers))
    yield workers
    yield GaugeMetricFamily("toolflow_worker_slots", "Runs that the workers may have in flight.", value=queue.slots)
    yield GaugeMetricFamily(
        "toolflow_unattended", "1 while runs wait and no worker is alive.", value=int(queue.is_unattended)
    )


def _collect_webhooks() -> Iterator[Metric]:
    found = WebhookDelivery.objects.filter(state=DeliveryState.WAITING).aggregate(
        waiting=Count("pk"),
        due=Count("pk", filter=Q(next_try_at__lte=Now())),
        age=ExpressionWrapper(Now() - Min("created_at"), output_field=DurationField(null=True)),
    )
    waiting = GaugeMetricFamily("toolflow_webhooks_waiting", "Webhooks that will be sent.", labels=["state"])
    waiting.add_metric(["due"], found["due"])
    waiting.add_metric(["later"], found["waiting"] - found["due"])
    yield waiting
    yield GaugeMetricFamily(
        "toolflow_webhooks_oldest_seconds",
        "Seconds since the oldest waiting webhook was created; 0 if none waits.",
        value=max(0.0, found["age"].total_seconds()) if found["age"] is not None else 0.0,
    )


def _collect_ended() -> Iterator[Metric]:
    """What statistics count of runs that were not simulated: they outlive the runs."""
    ended = CounterMetricFamily("toolflow_runs_ended", "Runs that have ended.", labels=["flow", "status"])
    by_flow = {
        "retries": CounterMetricFamily(
            "toolflow_retries", "Attempts with an output that followed another one of their step.", labels=["flow"]
        ),
        "cached_tokens": CounterMetricFamily(
            "toolflow_cached_tokens", "Of the prompt tokens, those that the provider had cached.", labels=["flow"]
        ),
        "reasoning_tokens": CounterMetricFamily(
            "toolflow_reasoning_tokens", "Of the completion tokens, those of reasoning.", labels=["flow"]
        ),
        "unpriced": CounterMetricFamily(
            "toolflow_unpriced_attempts", "Attempts that used tokens at an unknown price.", labels=["flow"]
        ),
    }
    for row in _sum_by(DailyRuns, ("flow__name",), *STATUSES, *by_flow):
        for status in STATUSES:
            ended.add_metric([row["flow__name"], status], row[status])
        for column, counter in by_flow.items():
            counter.add_metric([row["flow__name"]], row[column])
    yield from (ended, *by_flow.values())
    attempts = CounterMetricFamily("toolflow_attempts", "Attempts of ended runs.", labels=["flow", "model"])
    tokens = CounterMetricFamily("toolflow_tokens", "Tokens that runs used.", labels=["flow", "model", "kind"])
    cost = CounterMetricFamily("toolflow_cost_usd", "Cost in USD, where prices are known.", labels=["flow", "model"])
    for row in _sum_by(DailySteps, ("flow__name", "model"), "attempts", "prompt_tokens", "completion_tokens", "cost"):
        labels = [row["flow__name"], row["model"] or NO_MODEL]
        attempts.add_metric(labels, row["attempts"])
        if row["model"]:
            tokens.add_metric([*labels, "prompt"], row["prompt_tokens"])
            tokens.add_metric([*labels, "completion"], row["completion_tokens"])
            cost.add_metric(labels, row["cost"])
    yield from (attempts, tokens, cost)


def _sum_by(model: type[DailyRuns | DailySteps], groups: Sequence[str], *columns: str) -> list[dict[str, Any]]:
    rows = model._default_manager.filter(is_simulated=False).order_by().values(*groups)
    sums = rows.annotate(**{f"{name}_sum": Sum(F(name)) for name in columns})
    return [
        {**{name: row[name] for name in groups}, **{name: float(row[f"{name}_sum"]) for name in columns}}
        for row in sums
    ]
