"""A flow with known truths: backtests say of each change what is known by construction, to the last run and cent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from flows.engine import SimulatedModel, run_flow, running, simulated_client
from flows.engine.backtest import PastRun, backtest_run, backtest_runs_sync, leave_one_out
from flows.engine.backtest_result import BacktestKind, BacktestReason, BacktestResult, KindTotals
from flows.engine.history import History
from flows.engine.model_calls import resolve_spec
from flows.engine.spec import FlowSpec, ModelSettings
from flows.examples.order_confirmation import KINDS
from flows.examples.scripts import example_script
from runs.models import Run
from runs.seeding import seed_history
from runs.seeding.planted import (
    COST,
    CYCLE,
    MODEL,
    TOKENS,
    VARIANTS,
    load_planted_document,
    play_planted,
    price_planted,
)
from runs.seeding.simulation import Course, Simulation
from runs.stored_history import load_history

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
CYCLES = 2
RUNS = CYCLES * sum(CYCLE.values())
KIND = BacktestKind
CLOSING, NAME, DATE, PIECES, NUMBER = (
    "Closing line",
    "Names the customer",
    "Mentions the delivery date",
    "Pieces of each article",
    "Number is in the order",
)
SANITIZER = """value.body.endsWith('Kind regards, Alder Foods') ? value
    : {'subject': value.subject, 'body': value.body + ' Kind regards, Alder Foods'}"""

Document = dict[str, Any]


def find_audit(document: Document, name: str) -> Document:
    return next(audit for step in document["steps"] for audit in step.get("audits", ()) if audit["name"] == name)


def remove(name: str) -> Callable[[Document], None]:
    def change(document: Document) -> None:
        for step in document["steps"]:
            step["audits"] = [audit for audit in step.get("audits", ()) if audit["name"] != name]

    return change


def update_audit(name: str, **fields: object) -> Callable[[Document], None]:
    return lambda document: find_audit(document, name).update(fields)


def update_steps(*indices: int, **fields: object) -> Callable[[Document], None]:
    def change(document: Document) -> None:
        for index in indices:
            document["steps"][index - 1].update(fields)

    return change


def require_pieces(document: Document) -> None:
    items = document["steps"][0]["output_schema"]["properties"]["items"]["items"]
    items["properties"]["pieces"]["minimum"] = 1


@dataclass(frozen=True)
class Truth:
    """A change, and what it would have changed in each cycle of 50 runs. Those that are not named stay the same."""

    change: Callable[[Document], None]
    sooner: int = 0
    refused: int = 0
    beyond: int = 0
    saved: int = 0
    """Attempts that would not have been made."""
    further: int = 0
    """Calls that would have been needed at least."""
    gone: int = 0
    new: int = 0
    reasons: dict[BacktestReason, int] = field(default_factory=dict)


TRUTHS = {
    # The useless audit: 12 runs are retried for it alone, and it fires in 2 more.
    "without the useless audit": Truth(remove(CLOSING), sooner=12, saved=12, gone=14),
    "the useless audit only warns": Truth(update_audit(CLOSING, fail_at="never"), sooner=12, saved=12),
    "a pass rule that lets one high issue pass": Truth(
        update_steps(3, pass_expression="issues.map(issue, weight(issue.severity)).sum() < 8"), sooner=12, saved=12
    ),
    "a sanitizer that writes the line itself": Truth(
        update_steps(3, output_sanitizer=SANITIZER), sooner=12, saved=12, gone=14
    ),
    "without the audit that never fires": Truth(remove(NUMBER)),
    "the useful audit only warns": Truth(update_audit(NAME, fail_at="never"), sooner=6, saved=6),
    "another severity that blocks as well": Truth(update_audit(PIECES, severity="medium"), gone=16, new=16),
    "one retry": Truth(update_steps(1, 3, max_retries=1), sooner=4, saved=8),
    "no retry": Truth(update_steps(1, 3, max_retries=0), sooner=4, refused=20, saved=12 + 20),
    "stop when stuck": Truth(update_steps(1, stall_after=2), sooner=4, saved=8),
    "accept the best when tries run out": Truth(
        update_steps(1, on_exhausted="accept_best"), beyond=4, reasons={BacktestReason.NOT_REACHED: 4}
    ),
    "the remark blocks": Truth(update_audit(DATE, fail_at="medium"), refused=4, further=4),
    "without the audit of the stuck step": Truth(
        remove(PIECES), sooner=4, saved=12, gone=4, reasons={BacktestReason.NOT_REACHED: 4}
    ),
    "another schema for the stuck step": Truth(require_pieces, gone=16, new=16),
    "another input of the last step": Truth(
        update_steps(3, input_expression="{'customer': input.customer, 'order': steps[1].output}"),
        beyond=46,
        reasons={BacktestReason.INPUT_DIFFERS: 46},
    ),
}


def prepare(document: Document) -> FlowSpec:
    return resolve_spec(FlowSpec.from_document(document), ModelSettings(model=MODEL))


def build_candidate(name: str) -> FlowSpec:
    document = load_planted_document()
    TRUTHS[name].change(document)
    return prepare(document)


def load_runs() -> Iterator[PastRun]:
    for run in Run.objects.select_related("version").order_by("pk"):
        yield resolve_spec(run.version.flow_spec, ModelSettings(model=run.model_settings["model"])), load_history(run)


@pytest.fixture(scope="module")
def runs(django_db_setup: None, django_db_blocker: Any) -> list[PastRun]:
    """The histories of two cycles as they are read from the database."""
    from django.db import transaction

    with django_db_blocker.unblock(), transaction.atomic():
        seed_history(runs=0, planted=RUNS, until=NOON)
        found = list(load_runs())
        transaction.set_rollback(True)
    return found


def sum_found(result: BacktestResult, name: str) -> int:
    return sum(getattr(change, name) for change in result.audits)


@pytest.mark.parametrize("name", TRUTHS)
def test_a_backtest_finds_just_what_was_planted(name: str, runs: list[PastRun]) -> None:
    truth, result = TRUTHS[name], backtest_runs_sync(build_candidate(name), runs)
    counts = {KIND.SOONER: truth.sooner, KIND.REFUSED: truth.refused, KIND.BEYOND: truth.beyond}
    counts[KIND.SAME] = sum(CYCLE.values()) - sum(counts.values())
    assert {kind: totals.runs for kind, totals in result.kinds.items()} == {
        kind: count * CYCLES for kind, count in counts.items() if count
    }
    totals = sum(result.kinds.values(), KindTotals())
    assert totals.attempts_saved == truth.saved * CYCLES
    assert (totals.saved.cost or 0, totals.saved.total) == (COST * truth.saved * CYCLES, TOKENS * truth.saved * CYCLES)
    assert totals.further_calls == truth.further * CYCLES
    assert (totals.further.cost or 0) == COST * truth.further * CYCLES
    assert (sum_found(result, "gone"), sum_found(result, "new")) == (truth.gone * CYCLES, truth.new * CYCLES)
    assert result.reasons == {reason: count * CYCLES for reason, count in truth.reasons.items()}


def test_each_audit_left_out_in_turn_costs_what_was_planted(runs: list[PastRun]) -> None:
    results = asyncio.run(leave_one_out(prepare(load_planted_document()), runs))
    saved = {name: result.find(KIND.SOONER).saved.cost for (_, name), result in results.items()}
    expected = {CLOSING: 12, NAME: 6, PIECES: 12}
    assert saved == {name: COST * count * CYCLES for name, count in expected.items()} | {DATE: None, NUMBER: None}
    assert all(result.find(KIND.REFUSED).runs == 0 for result in results.values())


@pytest.fixture(scope="module")
def courses() -> list[tuple[str, int, Course]]:
    """What runs of each kind and variant do."""
    simulation = Simulation(prepare(load_planted_document()), price=price_planted)

    async def play() -> list[tuple[str, int, Course]]:
        return [
            (kind, variant, await play_planted(simulation, kind, variant))
            for kind in CYCLE
            for variant in range(VARIANTS)
        ]

    return asyncio.run(play())


@pytest.mark.parametrize("name", TRUTHS)
async def test_run_again_on_the_simulated_model_runs_end_as_a_backtest_said(
    name: str, courses: list[tuple[str, int, Course]]
) -> None:
    own, candidate = prepare(load_planted_document()), build_candidate(name)
    after = Simulation(candidate, price=price_planted)
    for kind, variant, stored in courses:
        again = await play_planted(after, kind, variant)
        history = History.begin(stored.input, run_id="again")
        for attempt in stored.attempts:
            history = history.append(attempt)
        said = await backtest_run(own, candidate, history)
        if said.kind is KIND.REFUSED:
            assert again.status == "failed" and stored.status == "succeeded"
        if said.ends is not None:
            assert again.status == said.ends.value
            assert len(again.attempts) == len(stored.attempts) - said.attempts_saved
        elif said.further_calls:
            assert len(again.attempts) >= len(stored.attempts) + said.further_calls


@pytest.mark.parametrize(("left_out", "retries"), [(None, 6), (CLOSING, 4)])
async def test_new_runs_on_the_simulated_model_come_out_like_the_history(
    left_out: str | None, retries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = load_planted_document()
    if left_out:
        remove(left_out)(document)
    (input,) = document["input_schema"]["examples"]
    statuses, tries = [], 0
    for number in range(7, 7 + len(KINDS)):
        names = SimpleNamespace(hex=f"installation-{number}")
        monkeypatch.setattr(running, "uuid", SimpleNamespace(uuid4=lambda names=names: names))
        async with simulated_client(SimulatedModel(script=example_script())) as client:
            result = await run_flow(FlowSpec.from_document(document), input, client=client)
        statuses.append(result.status.value)
        tries += sum(len(step.attempts) - 1 for step in result.steps if step.attempts)
    assert sorted(statuses) == ["failed"] + ["succeeded"] * 9
    assert tries == retries
