"""What a call showed its model of earlier attempts, and what the severity filter hid.

Derived from the definition and the issues alone, by the rule that the prompt follows (``select_issues``): the page of a
run reads no requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from flows.engine.history import Severity
from flows.engine.prompt import select_issues
from flows.engine.spec import FlowSpec, StepSpec
from runs import models
from runs.history.issue_links import MAX_LINKS, IssueLink, find_pages, link_issue


@dataclass(frozen=True, slots=True)
class ToldFeedback:
    """What one call did not show of the attempts before it."""

    severity_filter: str
    hidden: int
    """How many issues the filter kept from the model."""
    hidden_issues: tuple[IssueLink, ...]
    """The first ``MAX_LINKS`` of them, in the order of the attempts."""

    @property
    def more_hidden(self) -> int:
        """How many of them are not named."""
        return self.hidden - len(self.hidden_issues)


@dataclass(frozen=True, slots=True)
class _Told:
    """One attempt, and what calls don't show of it."""

    row: models.Attempt
    issues: Sequence[models.Issue]
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
    """What the calls of one step hid, by the attempt's number; ``issues`` are those of all ``rows`` by their keys.

    ``rows`` are attempts of the run in order of step and number. Nothing for a local step, which calls no model.
    """
    definition = spec.step(step)
    if definition.is_local:
        return {}
    minimum = definition.issue_severity_filter
    before = [
        _tell(spec.step(position), row, issues.get(row.pk, ()), minimum)
        for position in definition.include_results
        for row in rows
        if row.step.index == position < step
    ]
    own = [row for row in rows if row.step.index == step]
    found = {}
    for row in own:
        found[row.number] = ToldFeedback(
            severity_filter=minimum.value,
            hidden=sum(len(one.hidden) for one in before),
            hidden_issues=tuple(islice(chain.from_iterable(one.links for one in before), MAX_LINKS)),
        )
        before.append(_tell(definition, row, issues.get(row.pk, ()), minimum))
    return found


def _tell(step: StepSpec, row: models.Attempt, issues: Sequence[models.Issue], minimum: Severity) -> _Told:
    told = {issue.position for issue in select_issues(step, row.outcome, issues, minimum)}
    return _Told(row, issues, [issue for issue in issues if issue.position not in told])
