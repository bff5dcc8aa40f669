"""The charts of a run: when its attempts ran, and the tokens of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from runs.models import RunStatus
from runs.pages.token_columns import AttemptTokens, TokenColumns, plot_tokens
from runs.pages.waterfall import AttemptSpan, Waterfall, plot_waterfall

if TYPE_CHECKING:
    from runs.pages.run_page import RunPage


@dataclass(frozen=True, slots=True)
class RunCharts:
    """Each is None while there is nothing to draw."""

    waterfall: Waterfall | None
    tokens: TokenColumns | None


def draw_run(page: RunPage) -> RunCharts:
    """The charts of a run as it is at ``page.now``. That of tokens is no higher than the other one needs to be."""
    run = page.run
    begun = [attempt for attempt in page.attempts if attempt.started_at]
    origin = min((attempt.started_at for attempt in begun if attempt.started_at), default=page.now)
    if run.started_at:
        origin = min(origin, run.started_at)
    spans = []
    for attempt in begun:
        begin = attempt.started_at or origin
        end = page.now if attempt.is_running else attempt.ended_at or begin
        error = attempt.error or {}
        spans.append(
            AttemptSpan(
                step=attempt.step,
                step_name=page.steps[attempt.step - 1].name,
                number=attempt.number,
                outcome=attempt.state,
                begin=(begin - origin).total_seconds(),
                end=max((end - origin).total_seconds(), (begin - origin).total_seconds()),
                error_code=str(error.get("code", "")),
                asked_wait=error.get("retry_after"),
            )
        )
    pending = None
    if spans and run.status == RunStatus.QUEUED:
        pending = max((page.now - origin).total_seconds() - max(span.end for span in spans), 0.0)
    queued = max((origin - run.created_at).total_seconds(), 0.0)
    waterfall = plot_waterfall(spans, queued=queued, pending=pending)
    tokens = plot_tokens(
        [
            AttemptTokens(
                step=attempt.step,
                number=attempt.number,
                prompt=attempt.usage.prompt,
                cached=attempt.usage.cached,
                completion=attempt.usage.completion,
                reasoning=attempt.usage.reasoning,
                is_known=attempt.usage.reported,
            )
            for attempt in page.attempts
            if attempt.usage is not None and not attempt.is_local
        ],
        height=float(waterfall.height) if waterfall else None,
    )
    return RunCharts(waterfall, tokens)
