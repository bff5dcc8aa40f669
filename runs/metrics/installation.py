"""The figures of the whole installation, as Prometheus reads them. All of them come from the database.

So they are the same whichever process answers, hold what every worker on every host did, and survive restarts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from django.db import DatabaseError, InterfaceError
from django.db.models import Count, DurationField, ExpressionWrapper, Min, Q
from django.db.models.functions import Now
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from runs.metrics.counted_days import NO_MODEL, read_counted
from runs.models import Run, WebhookDelivery
from runs.models.webhook import DeliveryState
from runs.statistics.queue_state import QueueFigures, read_queue_figures

logger = logging.getLogger(__name__)

ENDS = ("succeeded", "failed", "errored", "cancelled")
WORKER_STATES = ("working", "stopping", "silent")


class Installation(Collector):
    """Reads the figures anew for each scrape. Without a database there is one metric, which says so."""

    def describe(self) -> Iterable[Metric]:
        """Nothing is read to register this."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """All metrics of the installation."""
        up = GaugeMetricFamily("toolflow_database_up", "Whether the database answers.")
        try:
            found = [*self._count_queue(), *self._count_webhooks(), *self._count_ended()]
        except (DatabaseError, InterfaceError) as error:
            logger.warning("Metrics can't be read from the database: %s", error)
            found = []
        up.add_metric([], 1 if found else 0)
        yield up
        yield from found

    def _count_queue(self) -> Iterator[Metric]:
        queue = read_queue_figures()
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
        yield from _count_workers(queue)

    def _count_webhooks(self) -> Iterator[Metric]:
        found = WebhookDelivery.objects.filter(state=DeliveryState.WAITING).aggregate(
            waiting=Count("pk"),
            due=Count("pk", filter=Q(next_try_at__lte=Now())),
            age=ExpressionWrapper(Now() - Min("created_at"), output_field=DurationField(null=True)),
        )
        waiting = GaugeMetricFamily(
            "toolflow_webhooks_waiting",
            "Webhooks that will be tried, by whether their time has come.",
            labels=["state"],
        )
        waiting.add_metric(["due"], found["due"])
        waiting.add_metric(["later"], found["waiting"] - found["due"])
        yield waiting
        yield GaugeMetricFamily(
            "toolflow_webhooks_oldest_seconds",
            "Seconds since the oldest webhook that waits was made; 0 if none waits.",
            value=max(0.0, found["age"].total_seconds()) if found["age"] is not None else 0.0,
        )

    def _count_ended(self) -> Iterator[Metric]:
        counted = read_counted()
        ended = _count("toolflow_runs_ended", "Runs that have ended.", "flow", "status")
        attempts = _count("toolflow_attempts", "Attempts of runs that have ended.", "flow", "model")
        retries = _count("toolflow_retries", "Attempts with an output that followed another one of their step.", "flow")
        tokens = _count("toolflow_tokens", "Tokens that runs used.", "flow", "model", "kind")
        cached = _count("toolflow_cached_tokens", "Of the prompt tokens, those that the provider had cached.", "flow")
        reasoning = _count("toolflow_reasoning_tokens", "Of the completion tokens, those of thinking.", "flow")
        cost = _count("toolflow_cost_usd", "What runs cost in USD, as far as prices are known.", "flow", "model")
        unpriced = _count("toolflow_unpriced_attempts", "Attempts that used tokens at an unknown price.", "flow")
        for flow, sums in counted.by_flow.items():
            for status in ENDS:
                ended.add_metric([flow, status], float(sums[status]))
            retries.add_metric([flow], float(sums["retries"]))
            cached.add_metric([flow], float(sums["cached_tokens"]))
            reasoning.add_metric([flow], float(sums["reasoning_tokens"]))
            unpriced.add_metric([flow], float(sums["unpriced"]))
        for (flow, model), sums in counted.by_model.items():
            attempts.add_metric([flow, model], float(sums["attempts"]))
            if model != NO_MODEL:
                tokens.add_metric([flow, model, "prompt"], float(sums["prompt_tokens"]))
                tokens.add_metric([flow, model, "completion"], float(sums["completion_tokens"]))
                cost.add_metric([flow, model], float(sums["cost"]))
        yield from (ended, attempts, retries, tokens, cached, reasoning, cost, unpriced)


def _count_workers(queue: QueueFigures) -> Iterator[Metric]:
    workers = GaugeMetricFamily(
        "toolflow_workers", "Worker processes that take runs, as they were last heard of.", labels=["state"]
    )
    for state in WORKER_STATES:
        workers.add_metric([state], sum(worker.state == state for worker in queue.workers))
    yield workers
    yield GaugeMetricFamily("toolflow_worker_slots", "Runs that the workers may have under way.", value=queue.slots)
    yield GaugeMetricFamily(
        "toolflow_unattended", "1 while runs wait and no worker is alive.", value=int(queue.is_unattended)
    )


def _count(name: str, text: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(name, text, labels=labels)
