"""What a flow file would have changed: a gate for CI that calls no model."""

from __future__ import annotations

import operator
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import typer

from runs.client import options, terminal
from runs.client.runs import POLL_INTERVAL
from runs.client.server import ERRORED, FAILED, SUCCEEDED, ClientError, Server

RUN_COUNTS = ("same", "other_issues", "sooner", "open", "refused", "beyond", "not_reproducible", "removed", "unknown")
"""Figures that count runs, which conditions may compare in per cent as well."""
AMOUNTS = ("retries_saved", "tokens_saved", "cost_saved", "calls_more", "cost_more")
UNFINISHED = ("waiting", "working")

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_CONDITION = re.compile(r"\s*([a-z_]+)\s*(>=|<=|>|<)\s*([0-9]{1,12}(?:\.[0-9]{1,8})?)\s*(%?)\s*")


@dataclass(frozen=True, slots=True)
class Condition:
    """One ``--fail-if``, such as ``refused>0.5%``."""

    text: str
    figure: str
    comparison: str
    bound: Decimal
    is_share: bool

    def holds(self, totals: dict[str, Any]) -> bool:
        """Whether it is true of what the API says; a share of no runs is none."""
        value = Decimal(totals[self.figure])
        if self.is_share:
            value = 100 * value / totals["runs"] if totals["runs"] else Decimal(0)
        return _COMPARISONS[self.comparison](value, self.bound)


def parse_condition(text: str) -> Condition:
    """A condition of the command line. Raises ``ClientError`` with what is allowed."""
    found = _CONDITION.fullmatch(text)
    if found is None or found[1] not in (*RUN_COUNTS, *AMOUNTS):
        figures = ", ".join((*RUN_COUNTS, *AMOUNTS))
        raise ClientError(f"“{text[:60]}” is not a condition such as refused>0.5%. Figures are {figures}.")
    figure, comparison, number, percent = found.groups()
    if percent and figure in AMOUNTS:
        raise ClientError(f"“{text}”: only counts of runs are compared in per cent: {', '.join(RUN_COUNTS)}.")
    return Condition(text, figure, comparison, Decimal(number), bool(percent))


@options.with_options("filters", options.FILTERS)
def backtest_flow(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A flow file, in YAML or JSON; its name is the flow’s.")],
    *,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="The newest runs, up to N.")] = 1_000,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(metavar="CONDITION", help="Exit with 1 if this holds: refused>0.5%; may be repeated."),
    ] = None,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", min=0, help="How long to wait for the end.")] = 600,
    as_json: options.AS_JSON = False,
    filters: dict[str, Any],
) -> int:
    """Judge ended runs of a flow again by a flow file: what would it have changed? No model is called.

    The exit status is 1 if a condition of --fail-if holds, and 2 if it has not ended in time.
    """
    conditions = [parse_condition(text) for text in fail_if or ()]
    text, _ = options.read_text(str(file))
    server = options.connect(context)
    filters = options.apply_view(server, filters)
    if "status" in filters:
        filters["status"] = filters["status"].split(",")
    backtest = _wait(server, server.post("backtests", document=text, limit=limit, filters=filters), timeout)
    terminal.print_result(backtest, backtest["sentence"], as_json=as_json)
    if backtest["status"] != "done":
        terminal.print_line(backtest["problem"] or _explain(backtest, timeout), is_error=True)
        return ERRORED
    terminal.print_line(backtest["page_url"], is_error=True)
    held = [condition for condition in conditions if condition.holds(backtest["totals"])]
    for condition in held:
        terminal.print_line(
            f"✗ {condition.text}: {condition.figure} is {backtest['totals'][condition.figure]}.", is_error=True
        )
    return FAILED if held else SUCCEEDED


def _explain(backtest: dict[str, Any], timeout: float) -> str:
    """Why there is no result."""
    if backtest["status"] == "waiting":
        return f"No worker took it within {timeout:g} s. Is one running? See {backtest['page_url']}"
    if backtest["status"] == "working":
        return f"It has not ended within {timeout:g} s and goes on; stop it at {backtest['page_url']}"
    return f"The backtest was {backtest['status']}."


def _wait(server: Server, backtest: dict[str, Any], timeout: float) -> dict[str, Any]:
    """The backtest once it has ended, or after ``timeout`` seconds; Ctrl-C leaves it going on."""
    deadline = time.monotonic() + timeout
    title = f"Backtest {backtest['id']}"
    remark = f"{title} continues; stop it at {backtest['page_url']}"
    with server.wait(remark) as show:
        while backtest["status"] in UNFINISHED and time.monotonic() < deadline:
            show(f"{title}: {backtest['totals']['runs']:,} of {backtest['run_count']:,} runs", backtest["percent"], 100)
            time.sleep(POLL_INTERVAL)
            backtest = dict(server.get(f"backtests/{backtest['id']}"))
    return backtest
