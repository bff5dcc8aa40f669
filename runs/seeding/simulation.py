"""Courses of runs: what happens in each attempt, executed once on the simulated model and then stored for many runs.

The engine decides and judges as it does in real runs; only the time and the model's replies are invented.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from flows.engine.errors import ModelError, ModelErrorCode
from flows.engine.execution import Execution, Pricing, Progress, Start
from flows.engine.history import Attempt, History
from flows.engine.model_calls import resolve_spec
from flows.engine.openai_client import simulated_client
from flows.engine.plugins import registry
from flows.engine.providers import ModelReply
from flows.engine.simulated_model import Faults, Script, SimulatedModel
from flows.engine.simulated_model.script import NO_FAULTS
from flows.engine.spec import FlowSpec, ModelSettings
from runs.models import EndReason, RunStatus

START = datetime(2026, 1, 1, tzinfo=UTC)
"""When courses begin, until they are stored."""
LATENCY = (1.5, 9.0)
"""Seconds that a call takes."""
REFUSAL = "The provider refused the API key: Incorrect API key provided."

Replies = Callable[[str, int], Mapping[str, Any]]
"""What the model answers, given the tool and the number of the attempt."""
Refusals = Callable[[], bool]
"""Whether the provider refuses the next call."""


@dataclass(frozen=True, slots=True)
class Course:
    """Attempts in order, with times from ``START``, and how the run ends."""

    input: dict[str, Any]
    model: str
    attempts: tuple[Attempt, ...]
    status: RunStatus
    reason: EndReason
    sentence: str
    blocking: tuple[int, int] | tuple[None, None]
    """The step and the attempt that the run ended at."""


class Simulation:
    """Plays courses of one version of a flow, one after the other. It is their clock, model client and recorder."""

    _time: datetime
    _begun: Start
    """The attempt that began last."""
    _history: History
    _replies: Replies
    _refuses: Refusals

    def __init__(self, spec: FlowSpec, *, price: Pricing, faults: Faults = NO_FAULTS) -> None:
        self._spec = spec
        self._price = price
        script = Script({step.tool_name: [self._reply] for step in spec.steps if step.tool_name})
        model = SimulatedModel(script=script, faults=faults, latency=LATENCY, keep_calls=0, sleep=self._pass_time)
        self._client = simulated_client(model)
        self.provider = self._client.provider

    async def play(
        self, input: dict[str, Any], replies: Replies, *, model: str, seed: str, refuses: Refusals = lambda: False
    ) -> Course:
        """Run the flow on ``input`` to its end."""
        self._time, self._replies, self._refuses = START, replies, refuses
        self._history = History.begin(input, run_id=seed)
        spec = resolve_spec(self._spec, ModelSettings(model=model))
        execution = Execution(spec=spec, client=self, registry=registry, recorder=self, clock=self, price=self._price)
        finish = (await execution.execute(self._history)).finish
        assert finish is not None, "Nothing stops it."
        return Course(
            input=input,
            model=model,
            attempts=tuple(attempt for attempt in self._history if attempt.step),
            status=RunStatus(finish.status.value),
            reason=EndReason(finish.reason.value),
            sentence=finish.sentence,
            blocking=finish.blocking or (None, None),
        )

    def _reply(self, _body: dict[str, Any], _input: Any) -> Mapping[str, Any]:
        return self._replies(self._spec.step(self._begun.step).tool_name or "", self._begun.number)

    # As a recorder

    async def record(self, progress: Progress) -> None:
        """Keep the attempt that ended and the one that begins."""
        if progress.ended is not None:
            self._history = self._history.append(progress.ended)
        if progress.begun is not None:
            self._begun = progress.begun

    # As a clock

    def now(self) -> datetime:
        """The invented time."""
        return self._time

    async def sleep_until(self, moment: datetime) -> None:
        """Let time pass until then, at once."""
        self._time = max(self._time, moment)

    async def _pass_time(self, seconds: float) -> None:
        self._time += timedelta(seconds=round(seconds, 3))

    # As a model client

    async def complete(self, request: Mapping[str, Any], *, idempotency_key: str, timeout: float) -> ModelReply:
        """Call the simulated model, unless the call is refused."""
        if self._refuses():
            raise ModelError(ModelErrorCode.UNAUTHORIZED, REFUSAL, status=401)
        return await self._client.complete(request, idempotency_key=idempotency_key, timeout=timeout)

    async def close(self) -> None:
        """Close the client of the simulated model."""
        await self._client.close()
