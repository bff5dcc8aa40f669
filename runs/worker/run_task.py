"""One claimed run, taken as far as it goes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import partial

from django.conf import settings
from django.db import transaction

from flows.engine.call_gate import CallGate
from flows.engine.errors import ProblemsError
from flows.engine.execution import Execution, ExecutionEnd, Progress, Received
from flows.engine.history import History, Outcome
from flows.engine.model_client import ModelClient
from flows.engine.planner import Call, Finish, Wait, next_action
from flows.engine.plugins import registry
from flows.engine.providers import Provider
from flows.engine.spec import FlowSpec
from flows.engine.usage import TokenUsage
from runs.group_commit import LeaseLostError
from runs.logs.run_ends import note_run_end
from runs.models import EndReason, Run, RunStatus
from runs.models.run import CANCELLED_SENTENCE
from runs.provider import price_call
from runs.recorder import RunRecorder, end_held_run, end_running_attempts
from runs.spending import FlowBudget
from runs.stop_flags import stopping
from runs.stored_history import (
    load_history,
    load_original_input,
    load_received_attempt,
    make_run_id,
    read_received,
)
from runs.worker.database_thread import DATABASE_ERRORS, DatabaseThread, WriteRefusedError
from runs.worker.run_events import RunEvents, note_wait
from runs.worker.versions import MissingPluginsError, PreparedVersions
from runs.worker.wordless_errors import leave_out_words

logger = logging.getLogger(__name__)

MAX_WAIT_SECONDS = 5.0
"""Seconds; a run that waits longer is handed back and costs no slot."""


class Interruption(Enum):
    """Why a run's task is cut off."""

    CANCELLED = "somebody cancelled the run"
    HURRY = "the worker stops at once"
    LOST = "the run is no longer held by this worker"


@dataclass
class Workplace:
    """What all runs of a drain share."""

    database: DatabaseThread
    client: ModelClient
    """Of the default provider."""
    clients: Mapping[str, ModelClient]
    """Of the others, by their names."""
    versions: PreparedVersions
    gate: CallGate
    stop: asyncio.Event
    """Set when runs are to be handed back at the next boundary between attempts."""
    unable: dict[int, str] = field(default_factory=dict)
    """Versions that this process lacks plug-ins for, with a sentence."""
    budgets: dict[int, FlowBudget] = field(default_factory=dict)
    """The budgets that runs of a flow share, by flow."""
    events: RunEvents = field(default_factory=RunEvents)


class RunTask:
    """Executes one run that its drain has claimed."""

    def __init__(self, run: Run, place: Workplace) -> None:
        self.run = run
        self.interruption: Interruption | None = None
        """Set before the task is cancelled, to say why."""
        self.is_leaving = False
        """Whether the write is under way with which the run ends or is given back."""
        self._place = place
        self._recorder: RunRecorder | None = None
        self._spec: FlowSpec | None = None
        self._redacts = False
        """Whether the run's flow redacts something; until its version is known nothing of the run is worked on."""
        self._unsettled: TokenUsage | None = None
        """What the last attempt used, while it is counted on the flow's budget and not stored."""

    async def execute(self) -> None:
        """Take the run as far as it goes. Never raises: what goes wrong ends the run or leaves it to others."""
        run = self.run
        self._place.events.begin(run)
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
            self._log_failure("The database refuses what run %s brought.", error)
            words = f"{type(error.__cause__ or error).__name__}." if self._redacts else str(error)
            await self._end(
                EndReason.INTERNAL_ERROR, f"The database refuses to store what the last call brought. {words}"
            )
        except Exception as error:  # noqa: BLE001  # whatever it is, it is logged and ends the run
            self._log_failure("Run %s failed inside ToolFlow.", error)
            words = type(error).__name__ if self._redacts else f"{type(error).__name__}: {error}"
            sentence = f"ToolFlow itself failed ({words}). The worker's log has the details."
            await self._end(EndReason.INTERNAL_ERROR, sentence)
        finally:
            self._settle(None)

    async def record(self, progress: Progress) -> None:
        """Store ``progress``; returns once it is committed."""
        assert self._recorder is not None
        budget = self._place.budgets.get(self.run.flow_id)
        write = self._recorder.prepare(progress, has_flow_budget=budget is not None)
        self.is_leaving = progress.finish is not None
        storing = asyncio.ensure_future(self._place.database.store(write))
        try:
            stored = await asyncio.shield(storing)
        except asyncio.CancelledError:
            # What ended is paid for: it is stored before the run is cut off.
            await storing
            raise
        self._recorder.confirm(write, stored.written)
        assert self._spec is not None
        self._place.events.note(self.run, self._spec, progress)
        if progress.ended is not None:
            self.run.crashes = 0
        if progress.ended is not None or progress.received is not None:
            self._settle(stored.commits)

    def _price(self, model: str, usage: TokenUsage, *, provider: Provider, service_tier: str | None) -> TokenUsage:
        """Price what a call used, and count it on the flow's budget before anybody asks for that again."""
        priced = price_call(model, usage, provider=provider, service_tier=service_tier)
        if (budget := self._place.budgets.get(self.run.flow_id)) is not None:
            self._unsettled = priced
            budget.expect(priced)
        return priced

    def _settle(self, commits: int | None) -> None:
        if self._unsettled is not None and (budget := self._place.budgets.get(self.run.flow_id)) is not None:
            budget.settle(self._unsettled, commits=commits)
        self._unsettled = None

    async def _execute(self) -> None:
        run, place = self.run, self._place
        spec = place.versions.find(run)
        if spec is None:
            spec = await place.database.persist(lambda: place.versions.prepare(run))
        self._spec, self._redacts = spec, bool(spec.redact)
        if run.attempt_count or run.is_input_redacted:
            history, self._recorder, received = await place.database.persist(partial(self._load, spec))
        else:
            received = None
            history = History.begin(run.input, run_id=make_run_id(run))
            self._recorder = RunRecorder(run, spec, history)
        execution = Execution(
            spec=spec,
            client=place.client,
            clients=place.clients,
            registry=registry,
            recorder=self,
            clock=DrainClock(place.stop),
            call_timeout=settings.TOOLFLOW_CALL_TIMEOUT,
            longest_wait=MAX_WAIT_SECONDS,
            should_stop=self._must_stop,
            price=self._price,
            gate=place.gate,
            deadline=run.deadline_at,
            veto=self._find_veto,
            plugin_timeout=settings.TOOLFLOW_PLUGIN_TIMEOUT,
        )
        end = await execution.execute(history, received)
        if end.finish is None:
            await self._hand_back(end, find_next_model(spec, end.history))

    def _log_failure(self, message: str, error: Exception) -> None:
        """Log the traceback. The words of an exception may quote what was worked on, before it was redacted."""
        logger.error(message, self.run.pk, exc_info=leave_out_words(error) if self._redacts else error)

    def _load(self, spec: FlowSpec) -> tuple[History, RunRecorder, Received | None]:
        history = load_history(self.run, input=load_original_input(self.run))
        row = load_received_attempt(self.run)
        return history, RunRecorder(self.run, spec, history, row), None if row is None else read_received(row)

    def _must_stop(self) -> bool:
        # The flag that other processes raise is looked at here too: the drain sees it only at its next look.
        return self._place.stop.is_set() or stopping.is_set()

    def _find_veto(self) -> Finish | None:
        budget = self._place.budgets.get(self.run.flow_id)
        return budget.find_end() if budget is not None else None

    async def _hand_back(self, end: ExecutionEnd, next_model: str) -> None:
        self.is_leaving = True
        delay = max(timedelta(0), end.resume_at - datetime.now(UTC)) if end.resume_at else timedelta(0)
        await self._place.database.persist(
            lambda: self.run.hand_back(delay=delay, next_model=next_model, waiting_for=end.waits_for)
        )
        self._place.events.note_hand_back(seconds=delay.total_seconds(), waits_for=end.waits_for)

    async def _wait_for_plugins(self, sentence: str) -> None:
        self._place.unable[self.run.version_id] = sentence
        await self._try(
            lambda: self.run.hand_back(next_model=self.run.next_model, waiting_for=sentence, needs_plugins=True)
        )

    async def _interrupt(self) -> None:
        if self.interruption is Interruption.CANCELLED:
            await self._end(EndReason.CANCELLED, CANCELLED_SENTENCE)
        elif self.interruption is Interruption.HURRY:
            await self._try(self._break_off)

    def _break_off(self) -> None:
        with transaction.atomic():
            if self.run.hand_back(next_model=self.run.next_model):
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
            await self._place.database.persist(write)
        except (LeaseLostError, *DATABASE_ERRORS) as error:
            # The lease runs out, and the sweep does what is left to do.
            logger.warning("Run %s is left to the sweep: %s", self.run.pk, error)
            return False
        return True


def find_next_model(spec: FlowSpec, history: History) -> str:
    """The model that a run's next call asks; empty if its next step is local, or nothing is left to do."""
    action = next_action(spec, history)
    if isinstance(action, Wait):
        action = action.then
    return (spec.step(action.step).model or "") if isinstance(action, Call) else ""


class DrainClock:
    """The engine's clock in a drain: a wait ends early when the drain stops."""

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop

    def now(self) -> datetime:
        """The time of this host."""
        return datetime.now(UTC)

    async def sleep_until(self, moment: datetime) -> None:
        """Wait until ``moment``, or until the drain stops."""
        # Looked at once: a clock that somebody sets while this waits doesn't make it longer.
        remaining = (moment - self.now()).total_seconds()
        if remaining > 0:
            note_wait(remaining)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), remaining)
