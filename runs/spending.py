"""What flows with a budget of their own have used in the current period.

Only such flows have rows: for all others nothing is counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal

from django.db import transaction
from django.db.models import F, Q, QuerySet, Sum

from flows.engine.history import TokenUsage
from flows.engine.planner import EndReason, EndStatus, Finish, describe_used_cost, describe_used_tokens
from flows.models import BudgetPeriod, Flow
from runs.models import FlowSpending, Run


@dataclass(slots=True)
class FlowBudget:
    """What all runs of a flow together may use in a period, and have used of it.

    A drain loads the stored sum again and again on its database thread, and adds there what it stores in between.
    """

    title: str
    period: str
    token_budget: int | None
    cost_budget: Decimal | None
    tokens: int = 0
    cost: Decimal = Decimal(0)
    in_flight: dict[int, TokenUsage] = field(default_factory=dict)
    """What attempts used that are not stored yet, by run."""

    def add_stored(self, run_id: int, usage: TokenUsage) -> None:
        """Count what an attempt used that was in flight and is stored now."""
        self.in_flight.pop(run_id, None)
        self.tokens += usage.total
        self.cost += usage.cost or 0

    def find_end(self) -> Finish | None:
        """How a run of the flow ends before its next attempt; None while something of the budget is left."""
        # A copy: the database thread takes away what it has stored.
        in_flight = list(self.in_flight.values())
        tokens = sum((usage.total for usage in in_flight), self.tokens)
        cost = sum((usage.cost or Decimal(0) for usage in in_flight), self.cost)
        if self.token_budget is not None and tokens >= self.token_budget:
            used = describe_used_tokens(self.token_budget, tokens)
        elif self.cost_budget is not None and cost >= self.cost_budget:
            used = describe_used_cost(self.cost_budget, cost)
        else:
            return None
        sentence = f"All runs of the flow “{self.title}” share a budget for the {self.period} (UTC): {used}."
        return Finish(EndStatus.ERRORED, EndReason.BUDGET_EXCEEDED, sentence)


def find_period_start(period: str, day: date) -> date:
    """The first day of the period that ``day`` is in."""
    return day if period == BudgetPeriod.DAY else day.replace(day=1)


def _current_rows(today: date) -> QuerySet[FlowSpending]:
    return FlowSpending.objects.filter(period_start__in={find_period_start(one, today) for one in BudgetPeriod.values})


def load_budgets() -> dict[int, FlowBudget]:
    """The budgets of all flows that have one, by flow, with what was used of them as far as it is stored."""
    budgeted = Flow.objects.filter(Q(total_token_budget__isnull=False) | Q(total_cost_budget__isnull=False))
    today = datetime.now(UTC).date()
    flows = list(budgeted.only("title", "budget_period", "total_token_budget", "total_cost_budget"))
    rows = {(row.flow_id, row.period_start): row for row in _current_rows(today)}
    keys = {flow.pk for flow in flows}
    if stale := [row.pk for row in rows.values() if row.flow_id not in keys]:
        # Nothing is counted for a flow without a budget: with the next one its runs are summed up again.
        FlowSpending.objects.filter(pk__in=stale).delete()
    budgets = {}
    for flow in flows:
        start = find_period_start(flow.budget_period, today)
        row = rows.get((flow.pk, start)) or _begin_period(flow.pk, start)
        budgets[flow.pk] = FlowBudget(
            flow.title, flow.budget_period, flow.total_token_budget, flow.total_cost_budget, row.tokens, row.cost
        )
    return budgets


def _begin_period(flow_id: int, start: date) -> FlowSpending:
    """The row of a flow for a period, created from its runs: a budget may be set at any time."""
    with transaction.atomic():
        Flow.objects.select_for_update().get(pk=flow_id)
        beginning = datetime(start.year, start.month, start.day, tzinfo=UTC)
        used = Run.objects.filter(flow=flow_id, started_at__gte=beginning).aggregate(
            tokens=Sum("total_tokens", default=0), cost=Sum("cost", default=Decimal(0))
        )
        row, _ = FlowSpending.objects.get_or_create(flow_id=flow_id, period_start=start, defaults=used)
    return row


def add_spending(used: Iterable[tuple[int, int, Decimal]]) -> None:
    """Count what attempts used: flow, tokens, USD. Flows without a budget are left out by the caller."""
    tokens: dict[int, int] = defaultdict(int)
    costs: dict[int, Decimal] = defaultdict(Decimal)
    for flow_id, count, cost in used:
        tokens[flow_id] += count
        costs[flow_id] += cost
    if not tokens:
        return
    current = _current_rows(datetime.now(UTC).date())
    with transaction.atomic():
        # In one order, so that no two hosts wait for each other.
        for flow_id in sorted(tokens):
            rows = current.filter(flow=flow_id)
            more = {"tokens": F("tokens") + tokens[flow_id], "cost": F("cost") + costs[flow_id]}
            if not rows.update(**more):
                # Another process may be creating the row from sums that lack what this transaction stores: wait for it.
                # One that creates it later waits for this transaction, and its sums hold what it has stored.
                list(Flow.objects.select_for_update(no_key=True).filter(pk=flow_id).values_list("pk"))
                rows.update(**more)
