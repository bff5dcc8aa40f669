"""What the retries of a run cost, and whether they were worth it; ``runs.statistics.sums`` has the rule for shares."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from typing import Any

from flows.engine.history import COUNTED, TokenUsage, sum_usage
from runs.attempt_rules import FIRST, USEFUL, WASTED, classify_attempts
from runs.formatting import format_cost, format_count, format_share
from runs.statistics.sums import TITLES, CostPart, split_cost


def build_retry_cost(
    calls: Sequence[tuple[int, str, TokenUsage | None]], open_steps: Collection[int]
) -> dict[str, Any] | None:
    """Split the usage of the calls of a run, each given as its step, its state and what it used; None without retries.

    Steps that are ``open_steps`` may still pass. What still runs is taken for a try of its step. ``parts`` are what
    first attempts, retries of steps that passed in the end, and retries of steps that did not used, as text, with their
    places on the bar; ``spent`` is what the retries cost. ``notes`` say what the numbers leave out or count in.
    """
    kinds = classify_attempts([call[:2] for call in calls])
    tries = [state == "running" or state in COUNTED for _, state, _ in calls]
    retried = {call[0] for call, kind, is_try in zip(calls, kinds, tries, strict=True) if kind != FIRST and is_try}
    if not retried:
        return None
    usages: dict[str, list[TokenUsage]] = {FIRST: [], USEFUL: [], WASTED: []}
    for (_, _, usage), kind in zip(calls, kinds, strict=True):
        if usage is not None:
            usages[kind].append(usage)
    sums = {name: sum_usage(own) for name, own in usages.items()}
    is_reported = all(usage.reported for usage in sums.values())
    parts, by_cost = split_cost({name: (usage.total, usage.cost, usage.unpriced) for name, usage in sums.items()})
    is_open = not retried.isdisjoint(open_steps)
    notes = {
        "Attempts whose tokens were not reported count as nothing.": not is_reported,
        # A simulated run has no prices at all, and misses none.
        "Some prices are unknown, so shares are shares of the tokens.": any(part.unpriced for part in parts.values()),
        "Attempts without an output do not count as retries: they count towards the attempt that replaced them.": (
            not all(tries)
        ),
    }
    return {
        "is_by_cost": by_cost,
        "spent": sum((parts[kind].cost or Decimal(0) for kind in (USEFUL, WASTED)), Decimal(0)),
        "sentence": _sum_up(parts, by_cost=by_cost, is_reported=is_reported, is_open=is_open),
        "notes": [words for words, holds in notes.items() if holds],
        "parts": _list_rows(parts, kinds, is_open=is_open),
    }


def _sum_up(parts: Mapping[str, CostPart], *, by_cost: bool, is_reported: bool, is_open: bool) -> str:
    """“Retries cost 38 % of this run: $0.0124 of $0.0331; $0.0090 of it led to a pass.”"""

    def show(amount: Decimal) -> str:
        return format_cost(amount) if by_cost else format_count(int(amount))

    amounts = {kind: part.amount for kind, part in parts.items()}
    whole, retries = sum(amounts.values()), amounts[USEFUL] + amounts[WASTED]
    if not whole:
        return "No tokens were used." if is_reported else "No tokens were reported."
    share, spent = format_share(float(retries / whole)), f"{show(retries)} of {show(whole)}"
    if by_cost:
        words, it = f"Retries cost {share} of this run: {spent}", "it"
    else:
        words, it = f"Retries used {share} of this run’s tokens: {spent}", "them"
    if not retries:
        return f"{words}."
    if not amounts[WASTED]:
        return f"{words}; all of {it} led to a pass."
    if not amounts[USEFUL]:
        return f"{words}; none of {it} led to a pass{' yet' if is_open else ''}."
    return f"{words}; {show(amounts[USEFUL])} of {it} led to a pass."


def _list_rows(parts: Mapping[str, CostPart], kinds: Sequence[str], *, is_open: bool) -> Sequence[dict[str, Any]]:
    rows, begin = [], 0.0
    for part in parts.values():
        width = 100 * (part.share or 0.0)
        rows.append(
            {
                "name": part.kind,
                "title": "Retries, no pass yet" if part.kind == WASTED and is_open else TITLES[part.kind],
                "attempts": kinds.count(part.kind),
                "tokens": format_count(part.tokens),
                "cost": format_cost(part.cost, part.unpriced),
                "share": format_share(part.share),
                "x": f"{begin:.2f}%",
                "width": f"{width:.2f}%",
            }
        )
        begin += width
    return rows
