"""What holds a run back: what it waits for in the queue, and the limits that it was given."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from django.conf import settings

from runs import formatting
from runs.history.json_lines import show_invisible
from runs.models import Priority, Run, RunStatus


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a queued run waits for."""

    sentence: str
    until: datetime | None
    """When it goes on, or is looked at again."""
    gives_up_at: datetime | None
    """When it ends as errored if nothing comes."""


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit of a run. ``icon`` is the name of a solid heroicon; ``moment`` ends the words, if there is one."""

    icon: str
    words: str
    moment: datetime | None = None


def view_waiting(run: Run, now: datetime) -> Waiting | None:
    """What a run waits for; None if it doesn't, or for nothing but a free worker."""
    if run.status != RunStatus.QUEUED:
        return None
    until = run.available_at if run.available_at > now else None
    if run.waiting_since is not None:
        gives_up_at = run.waiting_since + timedelta(seconds=settings.TOOLFLOW_PLUGIN_WAIT)
        return Waiting(show_invisible(run.waiting_for), until, gives_up_at)
    if until is None:
        return None
    return Waiting(show_invisible(run.waiting_for) or "Waits for the time that it was put off to.", until, None)


def list_limits(run: Run) -> tuple[Limit, ...]:
    """Priority, budgets with what is used of them, and time limit, as far as the run has them."""
    limits = []
    if run.priority != Priority.NORMAL:
        icon = "chevron-double-up" if run.priority == Priority.HIGH else "chevron-double-down"
        limits.append(Limit(icon, f"{Priority(run.priority).label} priority"))
    if run.token_budget is not None:
        used, budget = formatting.format_count(run.total_tokens), formatting.format_count(run.token_budget)
        limits.append(Limit("calculator", f"{used} of {budget} tokens"))
    if run.cost_budget is not None:
        # Nothing used costs nothing; what was used at an unknown price stays unknown.
        cost = Decimal(0) if run.cost is None and not run.unpriced_count else run.cost
        used, budget = formatting.format_cost(cost, run.unpriced_count), formatting.format_budget(run.cost_budget)
        limits.append(Limit("currency-dollar", f"{used} of {budget}"))
    if run.time_limit is not None:
        length = formatting.format_duration(run.time_limit.total_seconds())
        words = f"Time limit {length.removesuffix(' 00 s').removesuffix(' 00 min').removesuffix(' 00 h')}"
        if run.deadline_at is None or run.has_ended:
            limits.append(Limit("clock", words))
        else:
            limits.append(Limit("clock", f"{words}: until", run.deadline_at))
    return tuple(limits)
