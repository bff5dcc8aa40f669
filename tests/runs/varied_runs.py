"""Ended runs of all kinds, drawn by chance: rows as workers leave them."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from random import Random

from flows.engine.history import Attempt, Issue, TokenUsage
from flows.models import FlowVersion
from runs.models import Run
from tests.engine.builders import NOON, make_attempt, make_flow, make_issue, make_step
from tests.runs.builders import make_run, make_version
from tests.runs.pages.history_builders import store_attempt

MIDNIGHT = NOON.replace(hour=0)
STEPS = 3
SEVERITIES = ("low", "medium", "high", "critical")
OUTCOMES = ("passed", "failed", "failed", "invalid", "errored", "interrupted", "cancelled")


MODELS = (("gpt-4.1",) * STEPS, (None,) * STEPS, ("gpt-4.1", "gpt-5", None), ("gpt-5-mini", None, "gpt-5-mini"))
"""The models that the steps of each version name; the settings of runs say what others ask."""


def make_versions() -> list[FlowVersion]:
    """Two versions of each of two flows."""
    names = ("example", "other", "example", "other")
    return [
        make_version(
            make_flow(*(make_step(step, model=model) for step, model in enumerate(models, start=1))).model_copy(
                update={"name": name, "description": f"Version {number}."}
            )
        )
        for number, (name, models) in enumerate(zip(names, MODELS, strict=True))
    ]


def make_varied_runs(count: int, *, seed: int = 1) -> list[Run]:
    """Ended runs that are not counted yet."""
    chance = Random(seed)
    versions = make_versions()
    return [_make_run(chance, chance.choice(versions)) for _ in range(count)]


def _make_run(chance: Random, version: FlowVersion) -> Run:
    status = chance.choice(("succeeded", "succeeded", "failed", "errored", "cancelled"))
    was_started = status != "cancelled" or chance.random() < 0.5
    ended_at = _draw_moment(chance)
    # A clock of the database that was set back makes a duration negative.
    lasted = timedelta(seconds=chance.choice((0, -1, chance.expovariate(0.2), chance.expovariate(0.001))))
    run = make_run(
        version,
        status=status,
        is_simulated=chance.random() < 0.3,
        started_at=ended_at - lasted if was_started else None,
        ended_at=ended_at,
    )
    for step in range(1, chance.randint(0, STEPS) + 1 if was_started else 0):
        for number in range(1, chance.randint(1, 5) + 1):
            store_attempt(run, _draw_attempt(chance, step, number))
    return run


def _draw_moment(chance: Random) -> datetime:
    """A moment in four days, often at or just before midnight."""
    moment = MIDNIGHT + timedelta(days=chance.randint(0, 3))
    return moment + chance.choice(
        (timedelta(0), -timedelta(microseconds=1), timedelta(seconds=chance.randint(1, 80_000)))
    )


def _draw_attempt(chance: Random, step: int, number: int) -> Attempt:
    outcome = chance.choice(OUTCOMES)
    has_issues = outcome in {"passed", "failed", "invalid"}
    return make_attempt(
        step,
        number,
        outcome,
        model=chance.choice(("gpt-5", "gpt-5-mini", None)),
        usage=_draw_usage(chance),
        issues=tuple(_draw_issue(chance) for _ in range(chance.randint(0, 3) if has_issues else 0)),
    )


def _draw_usage(chance: Random) -> TokenUsage:
    prompt, completion = chance.randint(0, 5_000), chance.randint(0, 900)
    cost = Decimal(chance.randint(0, 10**9)) / 10**8
    is_priced = chance.random() < 0.7
    return TokenUsage(
        prompt=prompt,
        completion=completion,
        total=prompt + completion,
        cached=prompt // 2,
        reasoning=completion // 3,
        cost=cost if is_priced else None,
        unpriced=0 if is_priced else chance.randint(0, 1),
    )


def _draw_issue(chance: Random) -> Issue:
    audit, codes = chance.choice(
        [("Hex format", ("hex_format",)), ("Contrast", ("too_faint", "too_loud")), ("", ("schema_mismatch", "refusal"))]
    )
    return make_issue(chance.choice(SEVERITIES), code=chance.choice(codes), audit=audit)
