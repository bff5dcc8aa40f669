"""What other limits of a step would have saved: just what a backtest of them says."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from flows.engine.backtest_result import BacktestKind
from flows.engine.spec import FlowSpec, OnExhausted
from flows.models import Flow
from runs.backtests import requests, savings
from runs.backtests.savings import PastTries, describe_savings, load_past_tries, sum_saving
from runs.backtests.totals import Totals
from runs.models import Run
from runs.seeding import seed_history
from runs.seeding.planted import COST
from tests.runs.backtest_rows import finish, make_audited_flow, store_history
from tests.runs.builders import make_version

pytestmark = pytest.mark.django_db

READ, WRITE = "Read the order", "Write the confirmation"
SAVINGS = "/admin/flows/flow/savings/"


@pytest.fixture
def flow() -> Flow:
    """Fifty runs of the flow with known truths."""
    seed_history(runs=0, planted=50, until=timezone.now())
    return Flow.objects.select_related("live_version").get()


def change(flow: Flow, index: int, **changes: Any) -> FlowSpec:
    """The live definition with other limits in a step."""
    spec = flow.live_version.flow_spec  # type: ignore[union-attr]  # it has one
    steps = list(spec.steps)
    steps[index - 1] = steps[index - 1].model_copy(update=changes)
    return spec.model_copy(update={"steps": tuple(steps)})


@pytest.mark.parametrize(
    ("index", "changes", "expected"),
    [
        (1, {"stall_after": 2}, (8, 0)),
        (1, {"stall_after": 3}, (4, 0)),
        (1, {"max_retries": 0}, (12, 0)),
        (3, {"max_retries": 1}, (0, 0)),
        (3, {"max_retries": 0}, (20, 20)),
    ],
)
def test_savings_are_those_of_a_backtest(
    flow: Flow, index: int, changes: dict[str, int], expected: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = change(flow, index, **changes)
    step = spec.steps[index - 1]
    saving = sum_saving(step, load_past_tries(flow, step.name))
    assert (saving.retries, saving.lost) == expected
    assert (saving.usage.cost or 0) == COST * saving.retries
    monkeypatch.setattr(requests, "send_task", lambda _: None)
    totals = Totals.from_document(finish(requests.request_backtest(flow=flow, candidate=spec)).totals)
    kinds = [totals.get(kind) for kind in (BacktestKind.SOONER, BacktestKind.REFUSED)]
    assert sum(kind.retries_saved for kind in kinds) == saving.retries
    assert sum(kind.saved.cost or 0 for kind in kinds) == (saving.usage.cost or 0)
    assert kinds[1].runs == saving.lost


@pytest.mark.sql
def test_sentences_say_over_how_many_runs(flow: Flow) -> None:
    steps = {step.name: step for step in flow.live_version.flow_spec.steps}  # type: ignore[union-attr]  # it has one
    assert describe_savings(steps[READ], load_past_tries(flow, READ)) == {
        "max_retries": "Over the last 50 runs 0 would have been enough: 12 retries, $0.0480 less.",
        "stall_after": "Over the last 50 runs after 2: 8 retries, $0.0320 less; after 3: 4 retries, $0.0160 less.",
        "on_exhausted": "Over the last 50 runs 4 that failed here would have gone on with the best output.",
    }
    said = describe_savings(steps[WRITE], load_past_tries(flow, WRITE))
    # Four runs ended before this step.
    assert all("last 46 runs" in sentence for sentence in said.values())
    assert describe_savings(steps[READ], PastTries(0, ())) == {}


def test_runs_that_passed_later_are_counted() -> None:
    store_history()
    flow = Flow.objects.get()
    step = make_audited_flow().steps[0]
    past = load_past_tries(flow, step.name)
    saving = sum_saving(step.model_copy(update={"stall_after": 2}), past)
    # Both fail for the same issue twice; one of them passes in its third attempt.
    assert (saving.retries, saving.lost) == (3, 1)
    Run.objects.update(outputs_removed_at=timezone.now())
    assert load_past_tries(flow, step.name) == PastTries(0, [])


def test_what_is_said_fits_the_settings_that_there_are(flow: Flow) -> None:
    step, past = flow.live_version.flow_spec.steps[0], load_past_tries(flow, READ)  # type: ignore[union-attr]  # it has one
    one_more = step.model_copy(update={"stall_after": 2, "last_model": "gpt-5"})
    # The last model is asked once more where it is stuck.
    assert sum_saving(one_more, past).retries == 4
    stopped = PastTries(past.runs, [attempts[:2] for attempts in past.tries])
    said = describe_savings(step.model_copy(update={"stall_after": 2}), stopped)
    assert "another number would have saved nothing" in said["stall_after"]
    assert "4 that failed here would have gone on" in said["on_exhausted"]
    accepting = step.model_copy(update={"on_exhausted": OnExhausted.ACCEPT_BEST})
    assert "4 went on with the best output" in describe_savings(accepting, past)["on_exhausted"]


def test_nothing_is_said_of_more_issues_than_are_read(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(savings, "MAX_ISSUES", 3)
    assert load_past_tries(flow, READ) == PastTries(0, ())


class TestView:
    def test_has_a_sentence_for_each_field(self, admin_client: Client, flow: Flow) -> None:
        answer = admin_client.post(SAVINGS, {"flow": flow.pk, "step": READ}, content_type="application/json")
        assert answer.json().keys() == {"max_retries", "stall_after", "on_exhausted"}

    @pytest.mark.parametrize("step", ["Pick the carrier", "No such step", ""])
    def test_has_none_for_other_steps(self, admin_client: Client, flow: Flow, step: str) -> None:
        answer = admin_client.post(SAVINGS, {"flow": flow.pk, "step": step}, content_type="application/json")
        assert (answer.status_code, answer.json()) == (200, {})

    @pytest.mark.parametrize("posted", [{"flow": "x"}, {"flow": 1, "step": 1}, [], "nothing"])
    def test_refuses_what_is_no_question(self, admin_client: Client, posted: Any) -> None:
        assert admin_client.post(SAVINGS, posted, content_type="application/json").status_code == 400

    def test_takes_no_more_queries_for_more_runs(self, django_assert_max_num_queries: Any) -> None:
        version = make_version(make_audited_flow())
        store_history()
        with django_assert_max_num_queries(5):
            load_past_tries(version.flow, version.flow_spec.steps[0].name)
