"""What a backtest has found so far, and the sentence that says it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple, Self

from pydantic import TypeAdapter

from flows.engine.backtest_result import BacktestKind, BacktestResult, KindTotals, RunBacktest
from flows.engine.history import NO_USAGE, History, TokenUsage, sum_usage
from runs.formatting import format_cost, format_count, format_plural

UNJUDGED = (BacktestKind.BEYOND, BacktestKind.NOT_REPRODUCIBLE, BacktestKind.REMOVED)
"""Kinds of runs of which history can't say how they would end."""


@dataclass(frozen=True, slots=True)
class WithoutAudit:
    """What leaving out one audit alone would change."""

    step: int
    """From 1."""
    audit: str
    judged: int = 0
    """Runs of which history can say."""
    sooner: int = 0
    """Of these, runs in which a step ends sooner."""
    unpassed: int = 0
    """Of these, runs in which no attempt of the step passed."""
    freed: int = 0
    """Of those, runs that would then no longer fail."""
    retries_saved: int = 0
    saved: TokenUsage = NO_USAGE

    @classmethod
    def of(cls, key: tuple[int, str], result: BacktestResult, history: History) -> Self:
        """What it would change in the run of this history."""
        step, audit = key
        sooner = result.find(BacktestKind.SOONER)
        unpassed = 0 if any(attempt.passed for attempt in history.attempts(step)) else sooner.runs
        return cls(
            step=step,
            audit=audit,
            judged=sum(totals.runs for kind, totals in result.kinds.items() if kind not in UNJUDGED),
            sooner=sooner.runs,
            unpassed=unpassed,
            freed=unpassed - min(unpassed, sooner.failed),
            retries_saved=sooner.retries_saved,
            saved=sooner.saved,
        )

    def __add__(self, other: WithoutAudit) -> WithoutAudit:
        names = ("judged", "sooner", "unpassed", "freed", "retries_saved")
        counts = {name: getattr(self, name) + getattr(other, name) for name in names}
        return replace(self, saved=sum_usage([self.saved, other.saved]), **counts)


class Judged(NamedTuple):
    """A run that is judged. Its history and creation are None where the run is gone."""

    result: RunBacktest
    history: History | None
    created_at: datetime | None


@dataclass(frozen=True, slots=True)
class Totals:
    """The runs that are behind, added up."""

    result: BacktestResult = field(default_factory=BacktestResult)
    without: tuple[WithoutAudit, ...] = ()
    """What leaving out each audit would change, where that is asked."""
    retries: int = 0
    """Retries that there were in the runs that could be judged."""
    outputs: int = 0
    """Outputs of these."""
    other_issues: int = 0
    """Runs that end the same with other issues."""
    first: datetime | None = None
    last: datetime | None = None
    """When the oldest and the newest run were created."""

    def count(self, found: Iterable[Judged]) -> Self:
        """With some more runs."""
        found = list(found)
        retries, outputs, other_issues = self.retries, self.outputs, self.other_issues
        for run, history, _ in found:
            if history is not None and run.kind is not BacktestKind.NOT_REPRODUCIBLE:
                tries = [sum(attempt.counts for attempt in attempts) for attempts in history.steps[1:]]
                outputs += sum(tries)
                retries += sum(max(0, count - 1) for count in tries)
            other_issues += run.kind is BacktestKind.SAME and bool(run.gone or run.new)
        times = [one.created_at for one in found if one.created_at is not None]
        return replace(
            self,
            result=self.result + BacktestResult.of(one.result for one in found),
            retries=retries,
            outputs=outputs,
            other_issues=other_issues,
            first=min(filter(None, [self.first, *times]), default=None),
            last=max(filter(None, [self.last, *times]), default=None),
        )

    def count_without(self, found: Iterable[WithoutAudit]) -> Self:
        """With what some more runs would be without each audit."""
        sums = {(one.step, one.audit): one for one in self.without}
        for one in found:
            key = (one.step, one.audit)
            sums[key] = sums[key] + one if key in sums else one
        return replace(self, without=tuple(sums.values()))

    def get(self, kind: BacktestKind) -> KindTotals:
        """What the runs of one kind add up to."""
        return self.result.find(kind)

    @property
    def unjudged(self) -> int:
        """Runs of which history can't say how they would end."""
        return sum(self.get(kind).runs for kind in UNJUDGED)

    @property
    def differing(self) -> int:
        """Runs that have a row of their own."""
        return self.result.runs - self.get(BacktestKind.SAME).runs - self.get(BacktestKind.REMOVED).runs

    @property
    def retries_saved(self) -> int:
        """Retries that there would not be: of runs that end sooner, and of those that are refused before them."""
        return self.get(BacktestKind.SOONER).retries_saved + self.get(BacktestKind.REFUSED).retries_saved

    @property
    def retry_change(self) -> float | None:
        """By which share retries would change, at least where calls would be added; None without retries."""
        if not self.retries:
            return None
        return (self.get(BacktestKind.REFUSED).further_calls - self.retries_saved) / self.retries

    def to_document(self) -> dict[str, Any]:
        """The totals as JSON types; ``from_document`` reads them back."""
        document: dict[str, Any] = _TOTALS.dump_python(self, mode="json")
        return document

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Totals:
        """Read what ``to_document`` made; an empty document is not a run."""
        return _TOTALS.validate_python(document, strict=False)


_TOTALS = TypeAdapter(Totals)


# ---------------------------------------------------------------------------------------------------------------
# In words


def describe_totals(totals: Totals) -> str:
    """One sentence, of runs that happened: "Of 1,000 runs 962 end the same, 23 sooner (41 retries, $0.42), …"."""
    return "".join(text for text, _ in list_pieces(totals))


def list_pieces(totals: Totals) -> list[tuple[str, str]]:
    """The pieces of that sentence, each with the tone of a count, empty for other words."""
    same, sooner, refused = map(totals.get, (BacktestKind.SAME, BacktestKind.SOONER, BacktestKind.REFUSED))
    counts = (
        (same.runs, "same", " ends the same" if same.runs == 1 else " end the same"),
        (sooner.runs, "passed", f" sooner{describe_saved(sooner)}{describe_open(sooner)}"),
        (refused.runs, "failed", f" would be refused{describe_further(refused)}"),
        (totals.unjudged, "errored", " can’t be judged"),
    )
    pieces = [(f"Of {format_plural(totals.result.runs, 'run')} ", "")]
    for position, (count, tone, words) in enumerate(counts, 1):
        tone = tone if count else "same"
        pieces += [(format_count(count), tone), (f"{words}{',' if position < len(counts) else '.'}", "")]
        pieces += [(" ", "")] * (position < len(counts))
    return pieces


def describe_saved(totals: KindTotals) -> str:
    """What runs that end sooner would save, in brackets; empty for none."""
    retries = format_retries(totals.retries_saved) if totals.retries_saved else ""
    cost = format_cost(totals.saved.cost, totals.saved.unpriced) if totals.saved.cost else ""
    pieces = ", ".join(filter(None, [retries, cost]))
    return f" ({pieces})" if pieces else ""


def describe_open(totals: KindTotals) -> str:
    """How many of the runs that end a step sooner have an end that history doesn't show; empty for none."""
    return f", {format_count(totals.open)} of them with an open end" if totals.open else ""


def format_retries(count: int) -> str:
    """``1 retry``, ``2 retries``."""
    return "1 retry" if count == 1 else f"{format_count(count)} retries"


def describe_further(totals: KindTotals) -> str:
    """What refused runs would take at least, in brackets; empty for nothing."""
    if not totals.further_calls:
        return ""
    calls = format_plural(totals.further_calls, "more call")
    cost = format_cost(totals.further.cost, totals.further.unpriced) if totals.further.cost else ""
    return f" (at least {calls}{f', about {cost}' if cost else ''})"
