"""Why an attempt passed or failed: every check that its output went through, passed ones too.

Derived from the step's definition and the stored issues alone; ``flows.engine.judging`` has the order of the checks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flows.engine.audits import AUDIT_ERROR, build_type_audit
from flows.engine.expression_functions import FUNCTIONS
from flows.engine.history import Outcome, Severity
from flows.engine.json_values import dump_line, resolve_pointer, shorten
from flows.engine.plugins import PREFIX, registry
from flows.engine.rule_explanation import PassRule, RuleExplanation, format_sum
from flows.engine.spec import AuditSpec, StepSpec
from runs import models
from runs.attempt_rules import Check, find_check, find_reached
from runs.formatting import format_count, format_plural
from runs.history.issues import find_pages, show_place
from runs.history.texts import SHORT_TEXT, cut_text, show_invisible

BLOCKS, WARNS = "Blocks", "Warns"
MAX_VALUES = 4
"""Offending values that one check shows."""
MAX_RULE_LENGTH = 1_000
"""Characters of a pass rule that are shown."""
_VALUE_LENGTH = 48

_OF_RULE = frozenset({"not_accepted", AUDIT_ERROR})
"""Codes of issues that a pass rule leads to; it doesn't read them."""
_MEMBER = re.compile(r"\.\s*([A-Za-z_]\w*)", re.ASCII)
_ALWAYS_READ = frozenset({"code", "severity", "description", "audit", "path"})
"""Fields of issues that a page with thousands of them has, too."""
_CLEANED = "cleaned_output"
_SANITIZER_ERROR = "sanitizer_error"


_STATES = {
    "passed": "passed",
    "failed": "failed",
    "warned": "warned",
    "error": "could not be evaluated",
    "unreached": "not reached",
}


@dataclass(frozen=True, slots=True)
class Place:
    """A place that an issue is about, with what is there."""

    severity: str
    place: str
    value: str
    href: str
    """Empty where the issue is on a further page of issues."""


@dataclass(frozen=True, slots=True)
class CheckRow:
    """A check that an output goes through."""

    name: str
    state: str
    """``passed``, ``failed``, ``warned``, ``error`` or ``unreached``."""
    role: str
    """Empty where it can't be known."""
    found: str = ""
    weight: str = ""
    """What its issues add to the sum of the pass rule; empty if that has none."""
    places: Sequence[Place] = ()
    """The first places that its issues are about, …"""
    more: int = 0
    """… and how many others there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleRow(CheckRow):
    """The custom pass rule of a step."""

    text: str
    is_python: bool = False
    explanation: RuleExplanation | None = None
    """None where its values are not known."""


@dataclass(frozen=True, slots=True)
class Checklist:
    """All checks of an attempt."""

    title: str
    summary: str
    checks: Sequence[CheckRow]
    """In the order in which the output goes through them."""
    rule: RuleRow | None
    """None where the audits decide by their own criteria."""
    has_weights: bool
    weights: str
    """What issues of each severity weigh; empty if the rule weighs none."""


def build_checklist(
    step: StepSpec,
    outcome: str,
    issues: Sequence[models.Issue],
    output: Any,
    *,
    prefix: str | None,
) -> Checklist | None:
    """Explain the outcome of an attempt of ``step``; None for one without an output to judge.

    ``issues`` are all of the attempt, in their order; ``prefix`` begins their ids on the page, None where they have
    none. ``output`` is None where it is not known (any more): a rule that reads it is then shown without values.
    """
    if outcome not in (Outcome.PASSED, Outcome.FAILED, Outcome.INVALID):
        return None
    return _Building(step, Outcome(outcome), issues, output, prefix).build()


class _Building:
    def __init__(
        self, step: StepSpec, outcome: Outcome, issues: Sequence[models.Issue], output: Any, prefix: str | None
    ) -> None:
        self.step = step
        self.outcome = outcome
        self.output = output
        self.prefix = prefix
        self.reached = find_reached(outcome, [issue.code for issue in issues]) or Check.READ
        self.pages = find_pages(issues)
        self.notes = [issue for issue in issues if issue.code == _CLEANED and not issue.audit]
        """What was replaced before anything was checked."""
        self.issues = [issue for issue in issues if issue.code != _CLEANED or issue.audit]
        self.rule: PassRule | None = None
        """The custom pass rule, as far as its values are known."""
        self.explanation: RuleExplanation | None = None
        text = step.pass_expression
        is_brief = any("context" in issue.get_deferred_fields() for issue in issues)
        is_known = text is not None and not (is_brief and set(_MEMBER.findall(text)) - FUNCTIONS.keys() - _ALWAYS_READ)
        if self.reached is Check.AUDITS and text is not None and is_known and not text.startswith(PREFIX):
            judged = [_dump_issue(issue) for issue in self.issues if issue.audit or issue.code not in _OF_RULE]
            rule = PassRule(text, {"issues": judged} | ({} if output is None else {"output": output}))
            explanation = rule.explain()
            # What is stored may be less than what was judged: redacted, or partly removed.
            if explanation and explanation.result == (outcome == Outcome.PASSED):
                self.rule, self.explanation = rule, explanation

    def build(self) -> Checklist:
        checks = [*self.list_own_checks(), *self.list_audits()]
        rule = self.explain_rule()
        every = [*checks, rule] if rule else checks
        counts = Counter(check.state for check in every)
        parts = [f"{format_count(counts[name])} {words}" for name, words in _STATES.items() if counts[name]]
        return Checklist(
            title="Why it passed" if self.outcome is Outcome.PASSED else "Why it failed",
            summary=f"{format_plural(len(every), 'check')}: {', '.join(parts)}",
            checks=checks,
            rule=rule,
            has_weights=any(check.weight for check in every),
            weights=_WEIGHTS if self.rule and "weight(" in (self.step.pass_expression or "") else "",
        )

    def list_own_checks(self) -> Iterator[CheckRow]:
        """What the engine itself checks, before any audit."""
        step = self.step
        read = f"{format_plural(len(self.notes), 'place')} replaced" if self.notes else "Readable"
        first = self.check("Computed output" if step.is_local else "Tool call", Check.READ, read)
        yield first
        if step.output_sanitizer is not None:
            faults = [issue for issue in self.issues if issue.code == _SANITIZER_ERROR and not issue.audit]
            is_broken = faults and self.outcome is Outcome.INVALID
            state = "error" if is_broken else "unreached" if first.state == "failed" else "passed"
            yield CheckRow("Output sanitizer", state, BLOCKS, _describe_first(faults))
        if step.output_schema is not None:
            yield self.check("Output schema", Check.SCHEMA, "Valid")
        if step.output_type is not None:
            yield self.check(f"Output type {show_invisible(step.output_type)}", Check.TYPE, "Valid")

    def check(self, name: str, check: Check, fine: str) -> CheckRow:
        """A check of the engine, with the issues by which it refused the output there."""
        if self.reached < check:
            return CheckRow(name, "unreached", BLOCKS)
        own = [issue for issue in self.issues if not issue.audit and issue.code != _SANITIZER_ERROR]
        found = [issue for issue in own if find_check(self.outcome, issue.code) is check]
        if not found:
            return CheckRow(name, "passed", BLOCKS, fine)
        places, more = self.list_places(found)
        words = format_plural(len(found), "issue") if places else _describe_first(found)
        return CheckRow(name, "failed", BLOCKS, words, places=places, more=more)

    def list_audits(self) -> Iterator[CheckRow]:
        by_audit: dict[str, list[models.Issue]] = {}
        for issue in self.issues:
            by_audit.setdefault(issue.audit, []).append(issue)
        of_type = self.step.output_type
        known = registry.find_type(of_type)
        has_type_audit = known is not None and callable(getattr(known.model, "audit", None))
        if of_type is not None and (has_type_audit or of_type in by_audit):
            yield self.check_audit(build_type_audit(of_type), by_audit.get(of_type, ()))
        for audit in self.step.audits:
            yield self.check_audit(audit, by_audit.get(audit.name, ()))

    def check_audit(self, audit: AuditSpec, found: Sequence[models.Issue]) -> CheckRow:
        name = show_invisible(audit.name)
        issues = [_dump_issue(issue) for issue in found]
        severities = [Severity(issue.severity) for issue in found]
        example = {"code": audit.name, "severity": audit.severity.value, "description": "", "audit": audit.name}
        one = issues[:1] or [{**example, "path": None, "context": {}, "suggestions": []}]
        # Whether one issue is enough to fail the output.
        passes = self.passes_with(audit, [audit.severity, *severities], one)
        role = "" if passes is None else WARNS if passes else BLOCKS
        if self.reached < Check.AUDITS:
            return CheckRow(name, "unreached", role)
        weight = self.weigh(issues)
        if not found:
            return CheckRow(name, "passed", role, "No issues", weight=weight)
        faults = [issue for issue in found if issue.code == AUDIT_ERROR]
        if faults:
            return CheckRow(name, "error", role, _describe_first(faults), weight=weight)
        passes = self.passes_with(audit, severities, issues)
        is_refused = self.outcome is Outcome.FAILED if passes is None else not passes
        state, words = "failed" if is_refused else "warned", format_plural(len(found), "issue")
        return CheckRow(name, state, role, words, weight, *self.list_places(found))

    def passes_with(
        self, audit: AuditSpec, severities: Sequence[Severity], issues: Sequence[Mapping[str, Any]]
    ) -> bool | None:
        """Whether an output with just these issues of an audit passes; None if that is not known."""
        if self.step.pass_expression is None:
            return audit.threshold is None or max(severities) < audit.threshold
        return self.rule.passes_with(issues) if self.rule else None

    def weigh(self, issues: Sequence[Mapping[str, Any]], *, is_total: bool = False) -> str:
        """What issues add to the sum of the pass rule; empty if it has none."""
        numbers = self.rule.list_weights(issues) if self.rule else None
        return "" if numbers is None else format_sum([sum(numbers)] if is_total else numbers)

    def list_places(self, found: Sequence[models.Issue]) -> tuple[Sequence[Place], int]:
        """The first places that issues are about, and how many more there are."""
        placed = [issue for issue in found if issue.path is not None]
        places = []
        for issue in placed[:MAX_VALUES]:
            try:
                value = shorten(_format(resolve_pointer(self.output, issue.path or "")), _VALUE_LENGTH)
            except (LookupError, ValueError):
                value = ""
            is_here = self.prefix is not None and self.pages.get(issue.position, 1) == 1
            href = f"#{self.prefix}i{issue.position}" if is_here else ""
            places.append(Place(issue.severity, show_place(issue), show_invisible(value), href))
        return places, len(placed) - len(places)

    def explain_rule(self) -> RuleRow | None:
        """The custom pass rule of the step."""
        text = self.step.pass_expression
        if text is None:
            return None
        is_python = text.startswith(PREFIX)
        shown = str(cut_text(text.removeprefix(PREFIX), MAX_RULE_LENGTH))
        if self.reached < Check.AUDITS:
            return RuleRow("Pass rule", "unreached", BLOCKS, text=shown, is_python=is_python)
        faults = [issue for issue in self.issues if issue.code == AUDIT_ERROR and not issue.audit]
        if faults or self.explanation is None:
            state = "error" if faults else "passed" if self.outcome is Outcome.PASSED else "failed"
            found = _describe_first(faults) or ("Accepts the output" if state == "passed" else "Refuses the output")
            return RuleRow("Pass rule", state, BLOCKS, found, text=shown, is_python=is_python)
        weight = self.weigh([_dump_issue(issue) for issue in self.issues if issue.audit], is_total=True)
        return RuleRow("Pass rule", self.outcome.value, BLOCKS, weight=weight, text=shown, explanation=self.explanation)


_WEIGHTS = " · ".join(f"{severity.value} {severity.weight}" for severity in Severity).capitalize()


def _describe_first(faults: Sequence[models.Issue]) -> str:
    return str(cut_text(faults[0].description, SHORT_TEXT)) if faults else ""


def _dump_issue(issue: models.Issue) -> Mapping[str, Any]:
    """An issue as a pass rule reads it, without what was not read of its row."""
    fields: dict[str, Any] = {name: getattr(issue, name) for name in _ALWAYS_READ}
    if "context" in issue.get_deferred_fields():
        return fields
    return {**fields, "context": issue.context, "suggestions": list(issue.suggestions), **issue.added_fields}


def _format(value: Any) -> str:
    """A value in a few characters: of a list or a map only how much it holds."""
    if isinstance(value, list | dict):
        return format_plural(len(value), "item" if isinstance(value, list) else "key")
    return value[: _VALUE_LENGTH + 1] if isinstance(value, str) else dump_line(value)
