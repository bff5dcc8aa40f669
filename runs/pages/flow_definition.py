"""What a version of a flow does, as plain values: its steps, models, instructions, outputs, audits and pass rules.

Versions never change, so their parsed definitions and what they changed are cached by their digests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flows.engine.differences import compare_specs, summarise_changes
from flows.engine.errors import SpecError
from flows.engine.spec import AuditSpec, FlowSpec, StepSpec
from flows.models import FlowVersion
from runs.formatting import format_duration, format_plural
from runs.history.texts import CutText, cut_text
from runs.pages.badges import SEVERITIES, Badge

MAX_PROPERTIES = 12
"""Fields that the short form of a schema names."""
MAX_INSTRUCTIONS = 4_000
"""Characters of a step's instructions that a page shows."""
_SHORT = 160
_CACHE_SIZE = 500
_specs: dict[str, FlowSpec | None] = {}
_summaries: dict[tuple[str, str], str] = {}

_WEIGHTS = re.compile(r"issues\.map\((\w+), weight\(\1\.severity\)\)\.sum\(\) (<=?) (\d+)")
_COUNT = re.compile(r"(?:issues\.size\(\)|size\(issues\)) (<=?|==) (\d+)")


@dataclass(frozen=True, slots=True)
class AuditLine:
    """One audit of a step; ``rule`` is its expression."""

    name: str
    severity: Badge
    role: str
    """``Blocks``, ``Warns``, or ``Rule decides`` where the step has a pass rule of its own."""
    role_help: str
    rule: CutText


@dataclass(frozen=True, slots=True)
class StepLine:
    """One step of a version."""

    number: int
    name: str
    model: str
    is_local: bool
    instructions: CutText
    """The system message, or else the description of the tool."""
    is_long: bool
    """The instructions don't fit into two lines."""
    returns: str
    audits: tuple[AuditLine, ...]
    pass_rule: str
    """The step's own pass rule in words; empty if it has none or has no words for it."""
    pass_expression: str
    """The same as an expression, where there are no words."""
    retries: str
    settings: tuple[tuple[str, str], ...]
    """Names and values of what else is set."""


@dataclass(frozen=True, slots=True)
class Definition:
    """A whole version."""

    description: CutText
    takes: str
    """Fields of the input in short form; empty where there is no schema."""
    limits: str
    steps: tuple[StepLine, ...]
    audit_count: int


def load_specs(versions: Iterable[FlowVersion]) -> dict[int, FlowSpec | None]:
    """The definitions by the versions' keys, None where this release can't read one. At most one query."""
    versions = list(versions)
    missing = [version.pk for version in versions if version.digest not in _specs]
    if missing:
        if len(_specs) + len(missing) > _CACHE_SIZE:
            _specs.clear()
        found = FlowVersion.objects.filter(pk__in=missing).order_by().values_list("pk", "spec")
        documents: Mapping[int, Any] = dict(found)
        for version in versions:
            if version.pk in documents:
                _specs[version.digest] = _parse(documents[version.pk])
    return {version.pk: _specs.get(version.digest) for version in versions}


def _parse(document: Any) -> FlowSpec | None:
    try:
        return FlowSpec.from_document(document)
    except SpecError:
        return None


def summarise_version(version: FlowVersion, spec: FlowSpec | None, before: tuple[str, FlowSpec | None] | None) -> str:
    """What a version changed; ``before`` is the digest and the definition of the one before it, if there is one."""
    if before is None:
        return "First version" if version.number == 1 else ""
    if spec is None or before[1] is None:
        return "This release can’t read the definition"
    key = (before[0], version.digest)
    if key not in _summaries:
        if len(_summaries) > _CACHE_SIZE:
            _summaries.clear()
        _summaries[key] = summarise_changes(compare_specs(before[1], spec))
    return _summaries[key]


def build_definition(spec: FlowSpec) -> Definition:
    """The version as its page shows it."""
    limits = []
    if spec.token_budget is not None:
        limits.append(f"{spec.token_budget:,} tokens")
    if spec.cost_budget is not None:
        limits.append(f"${spec.cost_budget.normalize():f}")
    if spec.time_limit is not None:
        limits.append(format_duration(spec.time_limit))
    return Definition(
        description=cut_text(spec.description),
        takes=shorten_schema(spec.input_schema),
        limits=", ".join(limits),
        steps=tuple(_build_step(number, step, spec) for number, step in enumerate(spec.steps, start=1)),
        audit_count=sum(len(step.audits) for step in spec.steps),
    )


def _build_step(number: int, step: StepSpec, spec: FlowSpec) -> StepLine:
    instructions = (step.system_message or step.description).strip()
    rule = str(step.pass_expression or "").strip()
    words = describe_pass_rule(rule)
    return StepLine(
        number=number,
        name=step.name,
        model="" if step.is_local else step.model or spec.model or "",
        is_local=step.is_local,
        instructions=cut_text(instructions, MAX_INSTRUCTIONS),
        is_long=len(instructions) > _SHORT or "\n" in instructions,
        returns=shorten_schema(step.output_schema),
        audits=tuple(_build_audit(audit, has_rule=bool(rule)) for audit in step.audits),
        pass_rule=words,
        pass_expression="" if words else rule,
        retries="" if step.is_local else _describe_retries(step),
        settings=tuple(_list_settings(step)),
    )


def find_role(audit: AuditSpec, *, has_rule: bool) -> tuple[str, str]:
    """What an audit's issues do to an attempt, in a word and in a sentence."""
    if has_rule:
        return "Rule decides", "The pass rule of the step decides what its issues count"
    if audit.threshold is None or audit.severity < audit.threshold:
        return "Warns", "Its issues don’t fail an attempt"
    return "Blocks", "Its issues fail the attempt"


def _build_audit(audit: AuditSpec, *, has_rule: bool) -> AuditLine:
    role, role_help = find_role(audit, has_rule=has_rule)
    return AuditLine(audit.name, SEVERITIES[audit.severity.value], role, role_help, cut_text(str(audit.rule).strip()))


def describe_pass_rule(rule: str) -> str:
    """A pass rule in words; empty for one that has a shape of its own."""
    rule = " ".join(rule.split())
    if rule.startswith("python:"):
        return f"Passes when {rule.removeprefix('python:')} (Python) accepts the output"
    if found := _WEIGHTS.fullmatch(rule):
        how = "at most" if found[2] == "<=" else "less than"
        return f"Passes when the weights of all issues add up to {how} {found[3]}"
    if found := _COUNT.fullmatch(rule):
        if found[2] == "0":
            return "Passes when there is no issue"
        how = {"<=": "at most", "<": "fewer than", "==": "exactly"}[found[1]]
        return f"Passes with {how} {format_plural(int(found[2]), 'issue')}"
    return ""


def _describe_retries(step: StepSpec) -> str:
    end = "then the run fails" if step.stop_on_failure else "then the run continues"
    if not step.max_retries:
        return f"No retries: {end.replace('then ', 'if it fails, ')}"
    return f"Up to {step.max_retries} {'retry' if step.max_retries == 1 else 'retries'}, {end}"


def _list_settings(step: StepSpec) -> Iterable[tuple[str, str]]:
    texts = (
        ("Computes", step.compute),
        ("Input", step.input_expression),
        ("Input sanitizer", step.input_sanitizer),
        ("Output sanitizer", step.output_sanitizer),
        ("Tool", step.tool_name),
        ("Output type", step.output_type),
        ("Temperature", step.temperature),
        ("Max tokens", step.max_tokens),
        ("Reasoning effort", step.reasoning_effort and step.reasoning_effort.value),
        ("Service tier", step.service_tier and step.service_tier.value),
        ("Sees results of steps", ", ".join(map(str, step.include_results))),
        ("Time limit", step.time_limit and format_duration(step.time_limit)),
    )
    return ((name, str(cut_text(str(value).strip()))) for name, value in texts if value not in (None, ""))


def shorten_schema(schema: Mapping[str, Any] | None) -> str:
    """The fields of a schema in short form: ``verdict, risks[]: number, level``."""
    if not schema:
        return ""
    names, inner = _name_fields(schema, schema)
    if len(inner) == 1 and len(names) == 1:
        return f"{names[0]}: {inner[names[0]]}"
    return ", ".join(f"{name} ({inner[name]})" if name in inner else name for name in names)


def _name_fields(schema: Mapping[str, Any], root: Mapping[str, Any]) -> tuple[list[str], dict[str, str]]:
    """The fields of an object, and of those that hold objects the fields in them."""
    names, inner = [], {}
    properties = _get_properties(schema, root)
    for name, part in [*properties.items()][:MAX_PROPERTIES]:
        part, shown = _follow(part, root), str(cut_text(str(name), 60))
        if part.get("type") == "array":
            least, most = part.get("minItems"), part.get("maxItems")
            shown += f"[{least if least == most and least is not None else ''}]"
            part = _follow(part.get("items"), root)
        names.append(shown)
        if children := _get_properties(part, root):
            within = [str(cut_text(str(child), 60)) for child in [*children][:MAX_PROPERTIES]]
            inner[shown] = ", ".join([*within, *(["…"] if len(children) > MAX_PROPERTIES else [])])
    return [*names, *(["…"] if len(properties) > MAX_PROPERTIES else [])], inner


def _get_properties(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    found = _follow(schema, root).get("properties")
    return found if isinstance(found, Mapping) else {}


def _follow(part: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """A schema, or the definition that it refers to."""
    if not isinstance(part, Mapping):
        return {}
    reference = part.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/$defs/"):
        found = (root.get("$defs") or {}).get(reference.removeprefix("#/$defs/"))
        return found if isinstance(found, Mapping) else {}
    options = [option for option in part.get("anyOf") or () if isinstance(option, Mapping)]
    return next((_follow(option, root) for option in options if option.get("type") != "null"), part)


def list_audits(spec: FlowSpec) -> Sequence[tuple[int, StepSpec, AuditSpec]]:
    """All audits of a version with the number and the definition of their step."""
    return [(number, step, audit) for number, step in enumerate(spec.steps, start=1) for audit in step.audits]
