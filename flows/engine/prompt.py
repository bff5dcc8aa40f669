"""The request of a model call, built from spec and history.

The system message is the step's own text and up to two sections: what earlier steps produced (*previous step
results*) and what this step produced so far (*current step attempts*). Both show every attempt of a step, each with
its number, its output and its issues; both are filtered by one function, ``select_issues``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from flows.engine.errors import ExpressionError
from flows.engine.evaluation import step_variables
from flows.engine.history import Attempt, History, Issue, Outcome, Severity
from flows.engine.json_values import dump_line, dump_visible
from flows.engine.message_template import fill_placeholders, list_placeholders
from flows.engine.model_api import render_request
from flows.engine.model_calls import adapt_settings, plan_call
from flows.engine.providers import Providers
from flows.engine.settling import find_called_step
from flows.engine.spec import FlowSpec, StepSpec

PREVIOUS_STEPS_HEADING = "## Previous step results"
PREVIOUS_STEPS_NOTE = (
    "Outputs of earlier steps and the issues found in each of them. Take care not to carry these issues over."
)
CURRENT_STEP_HEADING = "## Current step attempts"
CURRENT_STEP_NOTE = (
    "Your earlier outputs for this step and the issues found in each of them. "
    "Give a new, complete output that resolves these issues."
)
ATTEMPT_HEADING = "### Attempt {number}"
STEP_ATTEMPT_HEADING = "### Step {step} “{name}”, attempt {number}"

ISSUES_LABEL = "Issues:"

MAX_RAW_TEXT = 4_000
"""Characters of an unusable answer that are shown to the model again."""


@dataclass(frozen=True, slots=True)
class FeedbackAttempt:
    """An earlier attempt as a call shows it, with those of its issues that ``select_issues`` gives: at least one."""

    attempt: Attempt
    heading: str
    output: str
    issues: tuple[Issue, ...]

    @property
    def text(self) -> str:
        return "\n".join([self.heading, self.output, ISSUES_LABEL, *map(render_issue, self.issues)])


@dataclass(frozen=True, slots=True)
class PromptSection:
    """A section of the system message that shows earlier attempts: at least one."""

    heading: str
    note: str
    attempts: tuple[FeedbackAttempt, ...]

    @property
    def text(self) -> str:
        return join_parts([self.heading, self.note, *(shown.text for shown in self.attempts)])


def build_request(
    spec: FlowSpec, history: History, index: int, input: Any, *, providers: Providers | None = None
) -> dict[str, Any]:
    """The exact body of the next call of step ``index``, given the step's ``input``.

    ``spec`` is checked and resolved: its model steps name their model. JSON appears here and nowhere earlier. Raises
    ``UnsupportedCallError`` if the model can't be asked at its provider, and what ``build_own_message`` raises.
    """
    step, known = find_called_step(spec.step(index), history.attempts(index)), providers or Providers()
    if step.model is None or step.tool_name is None or step.output_schema is None:
        raise ValueError(f"Step {index} is not ready to be called: resolve and freeze the spec first.")
    if step is not spec.step(index):
        step = adapt_settings(step, known)
    plan = plan_call(step.model or "", step.reasoning_effort, known)
    return render_request(
        plan,
        step,
        system_message=build_system_message(spec, history, index),
        user_message=dump_visible(input),
    )


def build_system_message(spec: FlowSpec, history: History, index: int) -> str:
    """The step's own system message followed by the sections that have something to say."""
    own = build_own_message(spec, history, index)
    return join_parts([own, *(section.text for section in build_sections(spec, history, index))])


def build_own_message(spec: FlowSpec, history: History, index: int) -> str:
    """The step's own system message, its placeholders filled in.

    Raises ``ExpressionError``, with a sentence that names the step, where one leads to nothing.
    """
    step = spec.step(index)
    own = step.system_message.strip()
    if not any(list_placeholders(own)):
        return own
    try:
        return fill_placeholders(own, step_variables(spec, history, index))
    except ExpressionError as error:
        raise ExpressionError(f"Step {index} “{step.name}”, system_message: {error}") from error


def build_sections(spec: FlowSpec, history: History, index: int) -> list[PromptSection]:
    """The sections of a system message that show earlier attempts; those with nothing to show are left out."""
    step = spec.step(index)
    minimum = step.issue_severity_filter
    earlier = []
    for position in filter(None, step.include_results):  # the input has no issues
        name = _one_line(spec.step(position).name)
        for number, attempt, issues in select_attempts(spec.step(position), history.attempts(position), minimum):
            heading = STEP_ATTEMPT_HEADING.format(step=position, name=name, number=number)
            earlier.append(FeedbackAttempt(attempt, heading, _render_output(attempt), issues))
    current = [
        FeedbackAttempt(attempt, ATTEMPT_HEADING.format(number=number), _render_output(attempt), issues)
        for number, attempt, issues in select_attempts(step, history.attempts(index), minimum)
    ]
    sections = [
        PromptSection(PREVIOUS_STEPS_HEADING, PREVIOUS_STEPS_NOTE, tuple(earlier)),
        PromptSection(CURRENT_STEP_HEADING, CURRENT_STEP_NOTE, tuple(current)),
    ]
    return [section for section in sections if section.attempts]


def join_parts(parts: Iterable[str]) -> str:
    """The parts of a message, with an empty line between two; empty ones are left out."""
    return "\n\n".join(part for part in parts if part)


def select_attempts(
    step: StepSpec, attempts: Iterable[Attempt], minimum: Severity
) -> list[tuple[int, Attempt, tuple[Issue, ...]]]:
    """The attempts of ``step`` that have issues to show, each with just those issues.

    They are numbered by outputs: calls that brought none are unknown to the model.
    """
    outputs = [attempt for attempt in attempts if attempt.counts]
    return [
        (number, attempt, issues)
        for number, attempt in enumerate(outputs, start=1)
        if (issues := select_issues(step, attempt.outcome, attempt.issues, minimum))
    ]


def select_issues(step: StepSpec, outcome: str, issues: Iterable[Any], minimum: Severity) -> tuple[Any, ...]:
    """The issues of one attempt of ``step`` that calls show: from severity ``minimum`` on, and those that failed it.

    Each is an ``Issue``, or a row with the same ``severity`` and ``audit``.
    """
    thresholds: dict[str, Severity] = {}
    if outcome == Outcome.FAILED:
        if step.pass_expression is not None:
            return tuple(issues)
        thresholds = {audit.name: min(minimum, audit.threshold or minimum) for audit in step.audits}
    return tuple(issue for issue in issues if Severity(issue.severity) >= thresholds.get(issue.audit, minimum))


def _render_output(attempt: Attempt) -> str:
    # One line of JSON holds no line break, so that nothing a model wrote can pass for a heading.
    if attempt.output is not None:
        return f"Output: {dump_visible(attempt.output)}"
    if attempt.raw_output is None:
        return "Output: none"
    raw = attempt.raw_output if isinstance(attempt.raw_output, str) else dump_visible(attempt.raw_output)
    return f"Unusable output: {dump_line(raw[:MAX_RAW_TEXT])}"


def render_issue(issue: Issue) -> str:
    """What a model is shown of an issue: one line, and a second one for suggestions."""
    # A pointer holds keys as the model wrote them, line breaks and all.
    place = f" (at {_one_line(issue.path)})" if issue.path else ""
    line = f"- {issue.severity}{place}: {_one_line(issue.description)}"
    if issue.suggestions:
        line += f"\n  Suggestions: {'; '.join(_one_line(suggestion) for suggestion in issue.suggestions)}"
    return line


def _one_line(text: str) -> str:
    return " ".join(text.split())
