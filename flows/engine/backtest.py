"""What another definition of a flow would have decided over stored runs, at zero tokens.

Each run is first judged again by its own definition: what does not come out as stored is left out and counted. Then the
candidate decides attempt by attempt over the same outputs, until it ends or history can't answer any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any

from flows.engine.backtest_result import BacktestKind, BacktestResult, RunBacktest
from flows.engine.candidate_walk import INPUT_FIELDS, PROMPT_FIELDS, Walk
from flows.engine.differences import pair_steps
from flows.engine.errors import Problem
from flows.engine.history import History
from flows.engine.json_values import format_pointer
from flows.engine.plugins import Registry
from flows.engine.plugins import registry as default_registry
from flows.engine.spec import FlowSpec, StepSpec
from flows.engine.stored_run import StoredRun

_BATCH_SIZE = 100
"""Runs that are added up at once."""
_MODEL_FIELDS = ("model", "temperature", "max_tokens", "reasoning_effort", "service_tier")

PastRun = tuple[FlowSpec, History]
"""A stored run: the executable spec that it ran under, with its own limits, and its history."""


async def backtest_run(
    spec: FlowSpec,
    candidate: FlowSpec,
    history: History,
    *,
    registry: Registry = default_registry,
    is_removed: bool = False,
) -> RunBacktest:
    """What ``candidate`` would have made of a run under ``spec`` with that ``history``.

    Both specs are prepared (``prepare_spec``) and have the limits that hold for the run (``with_limits``). What the
    candidate asks of a model otherwise is not taken into account: see ``find_untestable``. ``is_removed`` says that
    outputs were removed from the history. Never raises for what a rule or a plug-in does.
    """
    past = StoredRun(spec, history, registry)
    return (await past.find_obstacle(is_removed=is_removed)) or await Walk(past, candidate).walk()


async def backtest_runs(
    candidate: FlowSpec, runs: Iterable[PastRun], *, registry: Registry = default_registry
) -> BacktestResult:
    """The totals of ``backtest_run`` over many runs, which are taken one by one."""
    result, batch = BacktestResult(), []
    for spec, history in runs:
        batch.append(await backtest_run(spec, candidate, history, registry=registry))
        if len(batch) == _BATCH_SIZE:
            result, batch = result + BacktestResult.of(batch), []
    return result + BacktestResult.of(batch)


def backtest_runs_sync(candidate: FlowSpec, runs: Iterable[PastRun], **options: Any) -> BacktestResult:
    """``backtest_runs`` for scripts without an event loop; takes the same options."""
    return asyncio.run(backtest_runs(candidate, runs, **options))


async def leave_one_out(
    spec: FlowSpec, runs: Iterable[PastRun], *, registry: Registry = default_registry
) -> dict[tuple[int, str], BacktestResult]:
    """What each audit of ``spec`` does, by step and name: a backtest without it. The figures don't add up.

    ``spec`` is prepared. The runs may be those of other versions, too.
    """
    candidates = dict(_leave_each_out(spec))
    results = dict.fromkeys(candidates, BacktestResult())
    for own, history in runs:
        past = StoredRun(own, history, registry)
        obstacle = await past.find_obstacle()
        for key, candidate in candidates.items():
            found = obstacle
            if found is None and own == spec and not past.has_fired(*key):
                found = RunBacktest(BacktestKind.SAME, ended=past.end, ends=past.end)
            results[key] += BacktestResult.of([found or await Walk(past, candidate).walk()])
    return results


def _leave_each_out(spec: FlowSpec) -> Iterator[tuple[tuple[int, str], FlowSpec]]:
    for index, step in enumerate(spec.steps):
        for audit in step.audits:
            rest = tuple(other for other in step.audits if other is not audit)
            steps = list(spec.steps)
            steps[index] = step.model_copy(update={"audits": rest})
            yield (index + 1, audit.name), spec.model_copy(update={"steps": tuple(steps)})


def find_untestable(spec: FlowSpec, candidate: FlowSpec) -> list[Problem]:
    """What history can't say anything about, by JSON pointers into the candidate: changed prompts, models and inputs.

    Only a trial can: another question brings another answer. Where an input expression comes out the same for a run,
    the run is not affected.
    """
    found = [
        Problem(f"/{field}", "Runs that are over can't tell what this changes.")
        for field in ("input_schema", "redact", "time_limit")
        if getattr(spec, field) != getattr(candidate, field)
    ]
    origins = {after: before for before, after in pair_steps(spec.steps, candidate.steps).items()}
    for index, step in enumerate(candidate.steps):
        if step.is_local:
            continue
        old = spec.steps[origins[index]] if index in origins else None
        if old is None or old.is_local:
            message = "This step asks a model for what the runs never asked."
            found.append(Problem(format_pointer(("steps", index)), message))
            continue
        message = "Another question brings another answer; only a trial can tell what this changes."
        for field in (*PROMPT_FIELDS, *INPUT_FIELDS, "tool_name", "time_limit", "last_model", *_MODEL_FIELDS):
            if _find_setting(spec, old, field) != _find_setting(candidate, step, field):
                is_own = field not in _MODEL_FIELDS or getattr(old, field) != getattr(step, field)
                pointer = format_pointer(("steps", index, field)) if is_own else f"/{field}"
                found.append(Problem(pointer, message))
    return list(dict.fromkeys(found))


def _find_setting(spec: FlowSpec, step: StepSpec, field: str) -> Any:
    own = getattr(step, field)
    return getattr(spec, field) if own is None and field in _MODEL_FIELDS else own
