"""What stood in the history when an attempt called its model: read from rows for the page that shows the call."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Q

from flows.engine import history as engine
from flows.engine.history import History, Outcome
from flows.engine.prompt import build_sections
from runs import models
from runs.history.feedback import ToldFeedback, find_told_feedback
from runs.history.issue_links import IssueLink, find_pages, link_issue
from runs.pages.known_steps import read_spec
from runs.pages.model_request import Told
from runs.stored_history import read_issue


@dataclass(frozen=True, slots=True)
class CallHistory:
    """What a call must have told by the history before it; of a version that can't be read nothing is known."""

    told: Told | None
    feedback: ToldFeedback | None
    """What it told and what it hid; None for a local step."""


def load_call_history(row: models.Attempt) -> CallHistory:
    """Read those attempts that could be told of in the call of ``row``, with their outputs and issues: two queries."""
    run, index = row.step.run, row.step.index
    spec = read_spec(run)
    if spec is None:
        return CallHistory(None, None)
    step = spec.step(index)
    earlier = list(
        models.Attempt.objects.filter(
            Q(step__index__in=[position for position in step.include_results if position < index])
            | Q(step__index=index, number__lt=row.number),
            step__run=run,
        )
        .exclude(outcome="")
        .select_related("step")
        .only("step", "number", "outcome", "output", "raw_output")
        .prefetch_related("issues")
        .order_by("step__index", "number")
    )
    issues = {one.pk: list(one.issues.all()) for one in earlier}
    links: dict[tuple[int, int], list[IssueLink]] = {}
    steps: list[list[engine.Attempt]] = [[] for _ in range(index + 1)]
    for one in earlier:
        place = (one.step.index, one.number)
        pages = find_pages(issues[one.pk])
        links[place] = [link_issue(*place, issue, pages.get(issue.position, 1)) for issue in issues[one.pk]]
        attempt = engine.Attempt.model_construct(
            step=one.step.index,
            number=one.number,
            outcome=Outcome(one.outcome),
            output=one.output,
            raw_output=one.raw_output,
            issues=tuple(map(read_issue, issues[one.pk])),
        )
        steps[one.step.index].append(attempt)
    # Steps that can't be told of are left empty, so that this is no history that could go on.
    history = History("", tuple(map(tuple, steps)))
    told = Told(step.system_message.strip(), build_sections(spec, history, index), links)
    feedback = find_told_feedback(spec, index, [*earlier, row], issues)
    return CallHistory(told, feedback.get(row.number))
