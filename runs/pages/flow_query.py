"""What the address of a flow's page asks for: period, version, model, which runs, what charts and tables show."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from runs.history.json_lines import show_invisible
from runs.pages.addresses import find_address
from runs.pages.periods import PERIODS, USUAL

REAL, SIMULATED = "real", "simulated"
COST, TOKENS = "cost", "tokens"
FIRED = "fired"
NAMES = ("period", "version", "model", "runs", "measure", "sort")
"""What an address may ask for."""

_MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class FlowQuery:
    """What is asked for; an empty value leaves it to the page."""

    flow: str
    period: str = USUAL
    version: int | None = None
    model: str = ""
    runs: str = ""
    """``real`` or ``simulated``."""
    measure: str = ""
    """``cost`` or ``tokens``: what the chart of use shows."""
    sort: str = FIRED
    """``fired`` or ``cost``: the order of audits."""

    def build_url(self, anchor: str = "", **changes: str | int | None) -> str:
        """The address of the page with ``changes``."""
        changed = replace(self, **changes)  # type: ignore[arg-type]  # each has the type of its field
        wanted = {
            "period": "" if changed.period == USUAL else changed.period,
            "version": changed.version or "",
            "model": changed.model,
            "runs": changed.runs,
            "measure": changed.measure,
            "sort": "" if changed.sort == FIRED else changed.sort,
        }
        query = urlencode({name: value for name, value in wanted.items() if value})
        address = find_address("runs:flow", self.flow)
        return f"{address}{f'?{query}' if query else ''}{f'#{anchor}' if anchor else ''}"


def read_flow_query(query: Mapping[str, str], flow: str, versions: Collection[int]) -> tuple[FlowQuery, list[str]]:
    """What a query string asks for, with a sentence for each value or name that makes no sense and is left out.

    Whether there is such a model is not judged here.
    """
    problems = []
    if unknown := [f"“{_quote(name)}”" for name in query if name not in NAMES]:
        shown = " or ".join(unknown[:_MOST_NAMED])
        problems.append(f"There is no choice {shown}; the choices are {', '.join(NAMES)}.")
    period = query.get("period") or USUAL
    if period not in PERIODS:
        problems.append(f"“{_quote(period)}” is no period; it can be {_join(PERIODS)}. The last 30 days are shown.")
        period = USUAL
    text = query.get("version", "").removeprefix("v")
    version = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
    if text and version not in versions:
        problems.append(f"There is no version “{_quote(text)}” of this flow; all versions are shown.")
        version = None
    chosen = {}
    for name, choices in (("runs", (REAL, SIMULATED)), ("measure", (COST, TOKENS)), ("sort", (FIRED, COST))):
        value = query.get(name, "")
        if value and value not in choices:
            problems.append(f"“{_quote(value)}” is no choice for “{name}”; it can be {_join(choices)}.")
            value = ""
        chosen[name] = value
    return (
        FlowQuery(
            flow=flow,
            period=period,
            version=version,
            model=query.get("model", ""),
            runs=chosen["runs"],
            measure=chosen["measure"],
            sort=chosen["sort"] or FIRED,
        ),
        problems,
    )


def quote_model(model: str) -> str:
    """The sentence for a model that nothing was counted for."""
    return f"No attempt by a model “{_quote(model)}” was counted in this period; all models are shown."


def _quote(text: str) -> str:
    shown = show_invisible(text[:40])
    return shown if len(text) <= 40 else f"{shown}…"


def _join(words: Collection[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} or {last}"
