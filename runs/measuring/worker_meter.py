"""What a worker process measures."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics

# When each series began: half as many lines again, and nobody asks.
disable_created_metrics()  # type: ignore[no-untyped-call]  # as it ships

ATTEMPT_BUCKETS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0, 300.0)
BATCH_BUCKETS = (1, 2, 5, 10, 20, 50, 100)
COMMIT_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)

MOST_MODELS = 50
"""Models that have series of their own; the first that are met."""
LOCAL, OTHER = "(local)", "(other)"
"""Stand for steps that call no model, and for all models beyond those."""


class WorkerMeter:
    """Attempts, errors of providers and transactions of this process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._models: set[str] = set()
        self._attempts = Histogram(
            "toolflow_attempt_seconds",
            "Seconds that attempts took, by the model that was asked and what came of them.",
            ("model", "outcome"),
            buckets=ATTEMPT_BUCKETS,
            registry=self.registry,
        )
        self._errors = Counter(
            "toolflow_provider_errors",
            "Calls of the model that brought no answer, by what went wrong.",
            ("model", "code"),
            registry=self.registry,
        )
        self._batches = Histogram(
            "toolflow_recorder_batch_writes",
            "Writes of runs that were stored in one transaction.",
            buckets=BATCH_BUCKETS,
            registry=self.registry,
        )
        self._commits = Histogram(
            "toolflow_recorder_commit_seconds",
            "Seconds that a transaction with writes of runs took.",
            buckets=COMMIT_BUCKETS,
            registry=self.registry,
        )

    def note_attempt(self, *, model: str | None, outcome: str, seconds: float, error: str | None) -> None:
        """Count an attempt that ended; ``error`` is the code of what went wrong with its call."""
        name = LOCAL if model is None else self._name_model(model)
        self._attempts.labels(name, outcome).observe(seconds)
        if error is not None:
            self._errors.labels(name, error).inc()

    def note_batch(self, *, writes: int, seconds: float) -> None:
        """Count a transaction that stored what ``writes`` runs did."""
        self._batches.observe(writes)
        self._commits.observe(seconds)

    def _name_model(self, model: str) -> str:
        if model not in self._models:
            if len(self._models) >= MOST_MODELS:
                return OTHER
            self._models.add(model)
        return model
