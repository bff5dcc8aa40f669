"""What invented runs of the example flows are about: inputs that read like real ones, and answers, right and wrong."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from decimal import Decimal
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from flows.engine.history import TokenUsage
from flows.engine.simulated_model import Faults
from flows.engine.spec import FlowSpec
from flows.flow_file import parse_document
from runs.seeding.simulation import Course, Simulation

MODELS = {"gpt-5-mini": Decimal("0.0000006"), "gpt-5": Decimal("0.000003"), "in-house-7b": None}
"""Invented prices of a token; one model has none."""
SLIPS = (0.32, 0.27, 0.22)
"""How often an answer is wrong, by version: editors learn."""
STUBBORN_SLIPS = 0.9
"""How often it is in the first course of a version, so that each version has a run that fails."""
REMARKS = 0.15
"""How often an answer has something that audits remark on and let pass."""
FAULTS = {
    "malformed": 0.008,
    "truncated": 0.008,
    "wrong_tool": 0.004,
    "refusal": 0.004,
    "rate_limited": 0.008,
    "server_error": 0.008,
    "reset": 0.004,
}
REFUSALS = 0.002
"""How often a call is refused, which ends the run."""


async def play_courses(spec: FlowSpec, cases: list[dict[str, Any]], *, version: int, seeds: list[str]) -> list[Course]:
    """A course for each of ``seeds`` that runs of ``spec`` may take; ``version`` counts from 0."""
    faults = Faults(FAULTS, retry_after=20.0)
    simulation = Simulation(spec, price=price_invented, faults=faults)
    slips = [STUBBORN_SLIPS, *[SLIPS[version]] * len(seeds)]
    return [await _play(simulation, cases, rate, seed) for rate, seed in zip(slips, seeds, strict=False)]


async def _play(simulation: Simulation, cases: list[dict[str, Any]], slips: float, seed: str) -> Course:
    random = Random(seed)  # noqa: S311  # repeatable, not secret
    case = random.choice(cases)
    return await simulation.play(
        case["input"],
        lambda tool, _number: _choose_answer(case[tool], slips, random),
        model=random.choices(list(MODELS), weights=(6, 3, 1))[0],
        seed=seed,
        refuses=lambda: random.random() < REFUSALS,
    )


def _choose_answer(known: Mapping[str, Any], slips: float, random: Random) -> dict[str, Any]:
    roll = random.random()
    if roll < slips:
        return _replace(known["answer"], random.choice(known["slips"]))
    if roll < slips + REMARKS and "remarks" in known:
        return _replace(known["answer"], random.choice(known["remarks"]))
    return _replace(known["answer"], {})


def _replace(answer: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of an answer with other values at some paths, and without those of null."""
    changed: Any = copy.deepcopy(answer)
    for path, value in changes.items():
        *parents, last = (int(part) if part.isdigit() else part for part in path.split("/"))
        place = changed
        for parent in parents:
            place = place[parent]
        if value is None:
            del place[last]
        else:
            place[last] = value
    return changed  # type: ignore[no-any-return]  # as the answer is


def price_invented(model: str, usage: TokenUsage, **_: object) -> TokenUsage:
    """``usage`` at the invented price of its model."""
    price = MODELS[model]
    cost = None if price is None else (usage.prompt + 4 * usage.completion) * price
    return usage.model_copy(update={"cost": cost, "unpriced": int(cost is None)})


@cache
def load_cases() -> dict[str, list[dict[str, Any]]]:
    """The cases of each example flow, by its name."""
    return parse_document(Path(__file__).with_name("cases.yaml").read_bytes())
