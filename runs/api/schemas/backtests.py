"""Backtests in the API: what is asked, what was found, and the runs that differ."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from flows.engine.backtest_result import BacktestKind, BacktestReason
from flows.engine.history import Severity
from flows.engine.planner import EndStatus
from runs.api.run_filters import Filters, ShownFilters
from runs.api.schemas.flows import FlowDocument
from runs.backtests.requests import DEFAULT_LIMIT, MAX_LIMIT
from runs.documents.base import WHOLE, Amount, Answer, Body, Count, Page, RowPaging, Text, TextOrNull, Url
from runs.models import WorkState

RowKind = Literal[BacktestKind.REFUSED, BacktestKind.BEYOND, BacktestKind.NOT_REPRODUCIBLE, BacktestKind.SOONER]


class NewBacktest(Body):
    """What is judged by: `document`, or a `version` of `flow`; and the runs."""

    document: FlowDocument | Annotated[Text, Field(max_length=1_000_000)] | None = Field(
        None,
        description="The definition of a flow, as an object or as the text of a flow file. Nothing is stored of it.",
    )
    flow: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        None, description="The name of the flow whose runs are judged; that of `document` if left out."
    )
    version: Annotated[int, Field(ge=1, le=999_999_999), WHOLE] | None = Field(
        None, description="The number of a version of `flow`."
    )
    filters: Filters | None = Field(
        None, description="Only runs that match these filters, which are those of `listRuns`."
    )
    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT), WHOLE] = Field(
        DEFAULT_LIMIT, description="How many runs at most: those that ended, the newest first."
    )


class BacktestTotals(Answer):
    """What was found of the runs that are judged so far; `same`, `sooner`, `refused` and `unknown` are all of them."""

    runs: Count = Field(description="Runs that are judged.")
    same: Count = Field(description="Runs that end the same.")
    other_issues: Count = Field(description="Of these, runs with other issues.")
    sooner: Count = Field(description="Runs in which a step ends at an earlier attempt.")
    open: Count = Field(description="Of these, runs that would then go on with another input: their end is unknown.")
    refused: Count = Field(description="Runs that would fail, or need at least one more call.")
    beyond: Count = Field(description="Runs that would go on with another input: history can’t answer.")
    not_reproducible: Count = Field(
        description="Runs that don’t come out as stored under their own version, and are left out."
    )
    removed: Count = Field(description="Runs whose outputs are gone.")
    unknown: Count = Field(description="The last three added up: runs that can’t be judged to the end.")
    retries: Count = Field(description="Retries that there were in the runs that could be judged.")
    retries_saved: Count = Field(description="How many of them there would not be, also in refused runs.")
    tokens_saved: Count = Field(description="Tokens of all attempts that the runs that end sooner would not make.")
    cost_saved: Amount = Field(description="USD of these, as far as prices are known.")
    unpriced: Count = Field(description="How many of these used tokens at an unknown price.")
    calls_more: Count = Field(description="Calls that the refused runs would make at least.")
    cost_more: Amount = Field(description="About what these would cost at least, in USD.")
    unpriced_more: Count = Field(description="How many of these have an unknown price.")


class BacktestAudit(Answer):
    """What becomes of one audit over the outputs that were judged."""

    step: Count = Field(description="The step, from 1.")
    audit: str = Field(description="Its name, or a code of ToolFlow’s own.")
    fired_before: Count = Field(description="Outputs in which it raised an issue.")
    fired_after: Count = Field(description="The same, as judged now.")
    gone: Count = Field(description="Issues that it raised only then.")
    new: Count = Field(description="Issues that it raises only now.")


class Backtest(Answer):
    """What another definition would have made of runs that ended. No model is called."""

    id: int = Field(ge=1, description="The number of the backtest.")
    flow: str = Field(description="The name of the flow.")
    version: int | None = Field(description="The version that is judged by; null for a draft.")
    base_version: int | None = Field(description="The number of the live version that it was compared with.")
    digest: str = Field(description="SHA-256 of the definition that is judged by.")
    status: WorkState = Field(description="`waiting` and `working` go on; a user stopped a `stopped` one.")
    problem: TextOrNull = Field(description="Why it failed, in a sentence.")
    sentence: str = Field(description="What was found so far, in a sentence.")
    run_count: Count = Field(description="The number of its runs, fixed when it is requested.")
    limit: Count = Field(description="The limit that was given.")
    filters: ShownFilters = Field(description="The filters that its runs match.")
    percent: int = Field(ge=0, le=100, description="The share of its runs that is judged.")
    totals: BacktestTotals = Field(description="What was found so far.")
    started_by: str | None = Field(description="The user who requested it.")
    created_at: datetime = Field(description="UTC.")
    started_at: datetime | None = Field(description="UTC; null until the first batch is judged.")
    ended_at: datetime | None = Field(description="UTC; null while it is in progress.")
    url: Url = Field(description="Its address.")
    page_url: Url = Field(description="Its page.")
    runs_url: Url = Field(description="The list of the runs that differ.")
    audits: list[BacktestAudit] = Field(description="What becomes of each audit, by step and name.")


class BacktestIssue(Answer):
    """An issue that an output would no longer have, or has only now."""

    step: Count = Field(description="The step of the run, from 1.")
    attempt: Count = Field(description="Its attempt.")
    severity: Severity = Field(description="How severe it is.")
    audit: str = Field(description="The audit that raised it; empty for ToolFlow itself.")
    code: str = Field(description="What kind of finding it is.")
    path: str | None = Field(description="A JSON pointer into the output.")
    description: str = Field(description="What is wrong, the first characters of it.")


class BacktestRun(Answer):
    """A run that differs, or of which history can’t tell how it would end."""

    run: int = Field(description="The number of the run.")
    kind: RowKind = Field(description="How it differs.")
    reason: BacktestReason | None = Field(description="Why history can’t say more.")
    sentence: TextOrNull = Field(description="The same in words.")
    step: int | None = Field(description="The first step that differs; null if none does.")
    attempt: int | None = Field(description="The first attempt of it that differs.")
    ended: EndStatus | None = Field(description="How the run ended.")
    ends: EndStatus | None = Field(description="How it would end; null where history can’t say.")
    is_hypothetical: bool = Field(description="Whether an output that was judged answers another text.")
    attempts_saved: Count = Field(description="Attempts that it would not have made.")
    tokens_saved: Count = Field(description="Tokens of these.")
    cost_saved: Amount | None = Field(description="USD of these; null if unknown.")
    unpriced: Count = Field(description="How many of these used tokens at an unknown price.")
    further_calls: Count = Field(description="Calls that it would make at least.")
    gone: list[BacktestIssue] = Field(description="Issues that only its own version raised; at most 20.")
    new: list[BacktestIssue] = Field(description="Issues that only the new definition raises; at most 20.")
    run_url: Url = Field(description="The run.")
    page_url: Url = Field(description="The page of the attempt that decides, or of the run.")


class BacktestRunPage(Page):
    """A page of runs that differ."""

    items: list[BacktestRun] = Field(description="The newest run first.")


class BacktestRunQuery(RowPaging):
    """Which runs of a backtest."""

    kind: RowKind | None = Field(None, description="Only runs that differ in this way.")


def build_totals(totals: Any) -> dict[str, Any]:
    """The fields of ``BacktestTotals`` of what was found."""
    kinds = {kind: totals.get(kind) for kind in BacktestKind}
    saved, further = kinds[BacktestKind.SOONER], kinds[BacktestKind.REFUSED]
    return {
        **{kind.value: one.runs for kind, one in kinds.items()},
        "runs": totals.result.runs,
        "other_issues": totals.other_issues,
        "unknown": totals.unjudged,
        "retries": totals.retries,
        "open": saved.open,
        "retries_saved": totals.retries_saved,
        "tokens_saved": saved.saved.total,
        "cost_saved": saved.saved.cost or 0,
        "unpriced": saved.saved.unpriced,
        "calls_more": further.further_calls,
        "cost_more": further.further.cost or 0,
        "unpriced_more": further.further.unpriced,
    }
