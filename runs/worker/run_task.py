"""One claimed run, taken as far as it goes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import partial

from django.conf import settings
from django.db import transaction

from flows.engine.call_gate import CallGate
from flows.engine.errors import ProblemsError, SpecError
from flows.engine.execution import Execution, ExecutionEnd, Progress, Received
from flows.engine.history import History, Outcome, TokenUsage
from flows.engine.planner import Call, Finish, Wait, next_action
from flows.engine.plugins import registry
from flows.engine.providers import ModelClient, Provider, Providers
from flows.engine.settling import find_called_step
from flows.engine.spec import FlowSpec, ModelSettings
from flows.engine.spec_check import prepare_spec
from flows.models import FlowVersion
from flows.plugin_use import find_missing_names
from flows.providers import price_call
from runs.group_commit import LeaseLostError
from runs.models import EndReason, Run, RunStatus
from runs.models.run import CANCELLED_SENTENCE
from runs.observability.log_events import note_run_end
from runs.queue import draining
from runs.recorder import RunRecorder, end_held_run, end_running_attempts
from runs.spending import FlowBudget
from runs.stored_history import load_history, load_original_input, load_received_attempt, make_run_id, read_received
from runs.worker.database_thread import DATABASE_ERRORS, DatabaseThread, WriteRefusedError
from runs.worker.run_events import RunEvents, note_wait

logger = logging.getLogger(__name__)

MAX_WAIT_SECONDS = 5.0
"""A run that waits longer is handed back and costs no slot."""
MAX_PREPARED = 256
"""Executable specs that a process keeps."""


class MissingPluginsError(Exception):
    """This process lacks plug-ins that a version needs; another worker may have them."""


class PreparedVersions:
    """Executable specs by version and model settings: versions never change. The oldest are dropped first."""

    def __init__(self, providers: Providers) -> None:
        self._providers = providers
        self._specs: dict[tuple[int, ModelSettings], FlowSpec] = {}

    def find(self, run: Run) -> FlowSpec | None:
        """The spec to execute ``run`` with, under its own limits, if its version is prepared already."""
        spec = self._specs.get(_make_key(run))
        time_limit = int(run.time_limit.total_seconds()) if run.time_limit is not None else None
        own = (run.token_budget, run.cost_budget, time_limit)
        if spec is None or own == (spec.token_budget, spec.cost_budget, spec.time_limit):
            return spec
        return spec.with_limits(token_budget=run.token_budget, cost_budget=run.cost_budget, time_limit=time_limit)

    def load(self, run: Run) -> FlowSpec:
        """The same; reads the version from the database and prepares it.

        Raises ``MissingPluginsError`` with a sentence, and ``SpecError`` if the version can't run anywhere.
        """
        key = _make_key(run)
        # Runs that were claimed together ask for the same version together.
        if key not in self._specs:
            version = FlowVersion.objects.get(pk=run.version_id)
            spec = version.flow_spec
            try:
                self._specs[key] = prepare_spec(spec, registry=registry, defaults=key[1], providers=self._providers)
            except SpecError:
                if missing := dict.fromkeys(use.what for use in find_missing_names(spec, registry)):
                    raise MissingPluginsError(
                        f"Waits for a worker with the plug-ins of version {version.number}: {', '.join(missing)}."
                    ) from None
                raise
            if len(self._specs) > MAX_PREPARED:
                del self._specs[next(iter(self._specs))]
        found = self.find(run)
        assert found is not None
        return found


def _make_key(run: Run) -> tuple[int, ModelSettings]:
    return run.version_id, ModelSettings.model_validate(run.model_settings)


class StopReason(Enum):
    """Why a run's task is cancelled."""

    CANCELLED = "a user cancelled the run"
    FORCED = "the worker was forced to stop"
    LOST = "the run is no longer leased by this worker"


@dataclass
class WorkerContext:
    """What all runs of a drain share."""

    database: DatabaseThread
    client: ModelClient
    """The client of the default provider."""
    clients: Mapping[str, ModelClient]
    """The clients of the other providers, by name."""
    versions: PreparedVersions
    gate: CallGate
    stop: asyncio.Event
    """Set when runs are to be handed back at the next boundary between attempts."""
    events: RunEvents
    unable: dict[int, str] = field(default_factory=dict)
    """Versions that this process lacks plug-ins for, with a sentence."""
    budgets: dict[int, FlowBudget] = field(default_factory=dict)
    """The budgets that runs of a flow share, by flow."""


class RunTask:
    """Executes one run that its drain has claimed."""

    def __init__(self, run: Run, context: WorkerContext) -> None:
        self.run = run
        self.stop_reason: StopReason | None = None
        """Set before the task is cancelled."""
        self.is_leaving = False
        """Whether the write is under way with which the run ends or is handed back."""
        self._context = context
        self._recorder: RunRecorder | None = None
        self._spec: FlowSpec | None = None

    async def execute(self) -> None:
        """Take the run as far as it goes. Never raises: an error ends the run or leaves it to the sweep."""
        run = self.run
        self._context.events.begin(run)
        try:
            await self._execute()
        except asyncio.CancelledError:
            await self._interrupt()
        except LeaseLostError as error:
            logger.warning("%s", error)
        except MissingPluginsError as error:
            await self._wait_for_plugins(str(error))
        except ProblemsError as error:
            await self._end(EndReason.CONFIGURATION, f"The run's version can't be executed. {error}")
        except WriteRefusedError as error:
            cause = self._log_failure(f"The database rejects the result of run {run.pk}.", error.__cause__ or error)
            sentence = f"The database rejects the result of the last call. {cause}."
            await self._end(EndReason.INTERNAL_ERROR, sentence)
        except Exception as error:  # noqa: BLE001  # whatever it is, it is logged and ends the run
            cause = self._log_failure(f"Run {run.pk} failed inside ToolFlow.", error)
            sentence = f"Internal error ({cause}). See the worker's log."
            await self._end(EndReason.INTERNAL_ERROR, sentence)
        finally:
            if (budget := self._find_budget()) is not None:
                budget.in_flight.pop(run.pk, None)

    async def record(self, progress: Progress) -> None:
        """Store ``progress``; returns once it is committed."""
        assert self._recorder is not None
        write = self._recorder.prepare(progress, has_flow_budget=self._find_budget() is not None)
        self.is_leaving = progress.finish is not None
        storing = self._context.database.store(write)
        try:
            written = await asyncio.shield(storing)
        except asyncio.CancelledError:
            # What ended is paid for: it is stored before the run is interrupted.
            await storing
            raise
        self._recorder.confirm(write, written)
        assert self._spec is not None
        self._context.events.note(self.run, self._spec, progress)
        if progress.ended is not None:
            self.run.crashes = 0

    def _find_budget(self) -> FlowBudget | None:
        return self._context.budgets.get(self.run.flow_id)

    def _price(self, model: str, usage: TokenUsage, *, provider: Provider, service_tier: str | None) -> TokenUsage:
        """Price what a call used, and count it on the flow's budget at once: storing it takes a moment."""
        priced = price_call(model, usage, provider=provider, service_tier=service_tier)
        if (budget := self._find_budget()) is not None:
            budget.in_flight[self.run.pk] = priced
        return priced

    async def _execute(self) -> None:
        run, context = self.run, self._context
        spec = context.versions.find(run)
        if spec is None:
            spec = await context.database.persist(lambda: context.versions.load(run))
        self._spec = spec
        received = None
        if run.attempt_count or run.is_input_redacted:
            history, self._recorder, received = await context.database.persist(partial(self._load, spec))
        else:
            history = History.begin(run.input, run_id=make_run_id(run))
            self._recorder = RunRecorder(run, spec, history)
        execution = Execution(
            spec=spec,
            client=context.client,
            clients=context.clients,
            registry=registry,
            recorder=self,
            clock=DrainClock(context.stop),
            call_timeout=settings.TOOLFLOW_CALL_TIMEOUT,
            max_wait=MAX_WAIT_SECONDS,
            should_stop=self._should_stop,
            price=self._price,
            gate=context.gate,
            deadline=run.deadline_at,
            before_call=self._before_call,
            plugin_timeout=settings.TOOLFLOW_PLUGIN_TIMEOUT,
        )
        end = await execution.execute(history, received)
        if end.finish is None:
            await self._hand_back(spec, end)

    def _log_failure(self, message: str, error: BaseException) -> str:
        """Log ``error``, and describe it for the end of the run: its type and its message.

        Where the flow redacts something the type and the place must do, as a message may quote what is redacted.
        """
        name = type(error).__name__
        if self._spec is None or not self._spec.redact:
            logger.error("%s", message, exc_info=error)
            return f"{name}: {str(error).strip().removesuffix('.')}"
        frames = traceback.extract_tb(error.__traceback__)
        places = ", ".join(f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames)
        logger.error("%s %s at %s", message, name, places)
        return name

    def _load(self, spec: FlowSpec) -> tuple[History, RunRecorder, Received | None]:
        history = load_history(self.run, input=load_original_input(self.run))
        row = load_received_attempt(self.run)
        return history, RunRecorder(self.run, spec, history, row), None if row is None else read_received(row)

    def _should_stop(self) -> bool:
        # The flag of the process is checked too: the drain sees it at its next tick.
        return self._context.stop.is_set() or draining.is_set()

    def _before_call(self) -> Finish | None:
        budget = self._find_budget()
        return budget.find_end() if budget is not None else None

    async def _hand_back(self, spec: FlowSpec, end: ExecutionEnd) -> None:
        self.is_leaving = True
        delay = max(timedelta(0), end.resume_at - datetime.now(UTC)) if end.resume_at else timedelta(0)
        action = next_action(spec, end.history)
        if isinstance(action, Wait):
            action = action.then
        # None for a local step: nothing limits it.
        next_model = None
        if isinstance(action, Call):
            next_model = find_called_step(spec.step(action.step), end.history.attempts(action.step)).model
        await self._context.database.persist(
            lambda: self.run.hand_back(delay=delay, next_model=next_model or "", waiting_for=end.waits_for)
        )
        self._context.events.note_hand_back(seconds=delay.total_seconds(), waits_for=end.waits_for)

    async def _wait_for_plugins(self, sentence: str) -> None:
        self._context.unable[self.run.version_id] = sentence
        await self._try(lambda: self.run.hand_back(waiting_for=sentence, needs_plugins=True))

    async def _interrupt(self) -> None:
        if self.stop_reason is StopReason.CANCELLED:
            await self._end(EndReason.CANCELLED, CANCELLED_SENTENCE)
        elif self.stop_reason is StopReason.FORCED:
            await self._try(self._hand_back_interrupted)

    def _hand_back_interrupted(self) -> None:
        with transaction.atomic():
            if self.run.hand_back():
                end_running_attempts(self.run.pk, Outcome.INTERRUPTED)

    async def _end(self, reason: EndReason, sentence: str) -> None:
        is_cancelled = reason is EndReason.CANCELLED
        status = RunStatus.CANCELLED if is_cancelled else RunStatus.ERRORED
        outcome = Outcome.CANCELLED if is_cancelled else Outcome.INTERRUPTED
        if await self._try(lambda: end_held_run(self.run, status, reason, sentence, outcome=outcome)):
            note_run_end(status.value, reason.value)

    async def _try(self, write: Callable[[], object]) -> bool:
        self.is_leaving = True
        try:
            await self._context.database.persist(write)
        except (LeaseLostError, *DATABASE_ERRORS) as error:
            # The lease runs out, and the sweep does what is left to do.
            logger.warning("Run %s is left to the sweep: %s", self.run.pk, error)
            return False
        return True


class DrainClock:
    """The engine's clock in a drain: a wait ends early when the drain stops."""

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop

    def now(self) -> datetime:
        """The time of this host."""
        return datetime.now(UTC)

    async def sleep_until(self, moment: datetime) -> None:
        """Wait until ``moment``, or until the drain stops."""
        # Read once: a clock that is set while this waits doesn't make it longer.
        remaining = (moment - self.now()).total_seconds()
        if remaining > 0:
            note_wait(remaining)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), remaining)
