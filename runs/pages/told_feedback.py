"""What a model was told of earlier attempts when it was asked, and what the severity filter kept from it.

Told from the definition and the issues alone, by the rule that the prompt follows (``select_attempts``): the page of a
run reads no requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from flows.engine import history as engine
from flows.engine.history import Outcome
from flows.engine.issues import Issue, Severity
from flows.engine.prompt import select_attempts
from flows.engine.spec import FlowSpec
from runs import models
from runs.pages.figures import format_plural
from runs.pages.issue_links import MOST_LINKS, IssueLink, anchor_attempt, link_issue, name_issue
from runs.pages.issue_pages import find_pages

_UNPASSED = (Outcome.FAILED, Outcome.INVALID)
_WITHOUT_ANSWER = (Outcome.ERRORED, Outcome.INTERRUPTED, Outcome.CANCELLED)


@dataclass(frozen=True, slots=True)
class BlindRetry:
    """A try of which the model was told nothing about the attempt that it was to mend."""

    linked: str
    """The attempt that it retries: “attempt 1”."""
    anchor: str
    reason: str
    """Why nothing was told of it, as a sentence."""
    advice: str
    """What to do about it."""


@dataclass(frozen=True, slots=True)
class ToldFeedback:
    """What one call told of the attempts before it."""

    severity_filter: str
    told: int
    """Issues that the model was told of."""
    hidden: int
    """How many issues the filter kept from the model."""
    hidden_issues: tuple[IssueLink, ...]
    """The first ``MOST_LINKS`` of them, in the order of the attempts."""
    blind_retry: BlindRetry | None
    """Set if the attempt retries a failed one of which the model was told nothing."""

    @property
    def more_hidden(self) -> int:
        """How many of them are not named."""
        return self.hidden - len(self.hidden_issues)

    @property
    def is_lacking(self) -> bool:
        """The model was not told of something that readers should know of."""
        return self.is_blind or bool(self.hidden)

    @property
    def is_blind(self) -> bool:
        """The attempt retries a failed one of which the model was told nothing."""
        return self.blind_retry is not None


@dataclass(frozen=True, slots=True)
class _Told:
    """What calls tell of one attempt, and what they don't."""

    row: models.Attempt
    issues: Sequence[models.Issue]
    told: int
    hidden: Sequence[models.Issue]

    @property
    def links(self) -> Iterator[IssueLink]:
        """To what was hidden."""
        step, number = self.row.step.index, self.row.number
        pages = find_pages(self.issues) if self.hidden else {}
        return (link_issue(step, number, issue, pages.get(issue.position, 1)) for issue in self.hidden)


def find_told_feedback(
    spec: FlowSpec, step: int, rows: Sequence[models.Attempt], issues: Mapping[int, Sequence[models.Issue]]
) -> dict[int, ToldFeedback]:
    """What the calls of one step told, by the attempt's number; ``issues`` are those of all ``rows`` by their keys.

    ``rows`` are attempts of the run in order of step and number. Nothing for a local step, which calls nobody.
    """
    definition = spec.step(step)
    if definition.is_local:
        return {}
    minimum = definition.issue_severity_filter
    told = _find_told_severities(minimum)
    before = [
        _tell(row, issues.get(row.pk, ()), told)
        for position in definition.include_results
        for row in rows
        if row.step.index == position < step
    ]
    own = [row for row in rows if row.step.index == step]
    found = {}
    for row in own:
        found[row.number] = ToldFeedback(
            severity_filter=minimum.value,
            told=sum(one.told for one in before),
            hidden=sum(len(one.hidden) for one in before),
            hidden_issues=tuple(islice(chain.from_iterable(one.links for one in before), MOST_LINKS)),
            blind_retry=_find_blindness(row, [one for one in before if one.row.step.index == step], minimum),
        )
        before.append(_tell(row, issues.get(row.pk, ()), told))
    return found


def _find_told_severities(minimum: Severity) -> frozenset[str]:
    """The severities of issues that pass the filter, by the prompt's own rule."""
    probe = [Issue(code=severity.value, severity=severity, description="") for severity in Severity]
    attempt = engine.Attempt(step=1, number=1, outcome=Outcome.FAILED, issues=tuple(probe))
    return frozenset(issue.severity.value for _, issues in select_attempts([attempt], minimum) for issue in issues)


def _tell(row: models.Attempt, issues: Sequence[models.Issue], told: frozenset[str]) -> _Told:
    hidden = [issue for issue in issues if issue.severity not in told]
    return _Told(row, issues, len(issues) - len(hidden), hidden)


def _find_blindness(row: models.Attempt, earlier: Sequence[_Told], minimum: Severity) -> BlindRetry | None:
    """Whether ``row`` is a blind retry. An attempt that brought no answer made nothing of what it was told."""
    mended = next((one for one in reversed(earlier) if one.row.outcome in _UNPASSED), None)
    if mended is None or mended.told or row.outcome in _WITHOUT_ANSWER:
        return None
    linked, anchor = f"attempt {mended.row.number}", anchor_attempt(mended.row.step.index, mended.row.number)
    if not mended.issues:
        return BlindRetry(
            linked,
            anchor,
            "It did not pass, and there was no issue that could have been told.",
            "Let an audit raise an issue that says what to mend.",
        )
    gravest = max(mended.issues, key=lambda issue: Severity(issue.severity).rank)
    count = len(mended.issues)
    how_many = "Both of its issues" if count == 2 else f"All of its {format_plural(count, 'issue')}"
    which = "Its only issue is" if count == 1 else f"{how_many} are"
    return BlindRetry(
        linked,
        anchor,
        f"{which} below the step’s severity filter, {minimum.value}.",
        f"Lower the filter to {gravest.severity}, or raise the severity of “{name_issue(gravest)}”.",
    )
