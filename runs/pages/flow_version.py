"""What a version of a flow does, what it changed, and its page.

Versions never change, so their parsed definitions and what they changed are cached by their digests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, timedelta
from functools import lru_cache
from typing import Any

from django.db.models import Sum
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, render
from django.utils import timezone

from flows.engine.differences import compare_specs, summarise_changes
from flows.engine.errors import SpecError
from flows.engine.spec import AuditSpec, FlowSpec, StepSpec
from flows.models import Flow, FlowVersion
from runs.backtests.predictions import load_prediction
from runs.formatting import format_duration, format_plural
from runs.history.texts import cut_text
from runs.models import DailyRuns, DailySteps
from runs.pages.access import require_viewer
from runs.pages.addresses import link_runs
from runs.pages.badges import SEVERITIES
from runs.pages.flow_figures import OF_VERSION, list_cells
from runs.pages.input_form import resolve_schema
from runs.statistics.figures import Scope
from runs.statistics.sums import RunSums, StepSums

MAX_VERSIONS = 12
"""Rows of the table of versions, the newest first."""
MAX_PROPERTIES = 12
"""Fields that the short form of a schema names."""
MAX_INSTRUCTIONS = 4_000
"""Characters of a step's instructions that a page shows."""
YEAR = timedelta(days=364)
"""How far back figures of versions reach."""
_SHORT = 160
_CACHE_SIZE = 500
_specs: dict[str, FlowSpec | None] = {}

_WEIGHTS = re.compile(r"issues\.map\((\w+), weight\(\1\.severity\)\)\.sum\(\) (<=?) (\d+)")
_COUNT = re.compile(r"(?:issues\.size\(\)|size\(issues\)) (<=?|==) (\d+)")
_NONE = re.compile(r"!issues\.exists\((\w+), \1\.severity == ['\"](\w+)['\"]\)")
_COMPARED = {"<=": "at most", "<": "fewer than", "==": "exactly"}


# What a version does


def load_specs(versions: Iterable[FlowVersion]) -> dict[int, FlowSpec | None]:
    """The definitions by the versions' keys, None where this release can't read one. At most one query."""
    versions = list(versions)
    if len(_specs) > _CACHE_SIZE:
        _specs.clear()
    missing = {version.pk: version.digest for version in versions if version.digest not in _specs}
    if missing:
        for key, document in FlowVersion.objects.filter(pk__in=missing).order_by().values_list("pk", "spec"):
            try:
                _specs[missing[key]] = FlowSpec.from_document(document)
            except SpecError:
                _specs[missing[key]] = None
    return {version.pk: _specs.get(version.digest) for version in versions}


def build_definition(spec: FlowSpec) -> dict[str, Any]:
    """The version as its page shows it; ``takes`` has the fields of the input in short form."""
    limits = []
    if spec.token_budget is not None:
        limits.append(f"{spec.token_budget:,} tokens")
    if spec.cost_budget is not None:
        limits.append(f"${spec.cost_budget.normalize():f}")
    if spec.time_limit is not None:
        limits.append(format_duration(spec.time_limit))
    return {
        "description": cut_text(spec.description),
        "takes": shorten_schema(spec.input_schema),
        "limits": ", ".join(limits),
        "steps": [_build_step(number, step, spec) for number, step in enumerate(spec.steps, start=1)],
        "audit_count": sum(len(step.audits) for step in spec.steps),
    }


def _build_step(number: int, step: StepSpec, spec: FlowSpec) -> dict[str, Any]:
    """A step; ``instructions`` are the system message, or else the description of the tool."""
    instructions = (step.system_message or step.description).strip()
    settings = {
        "Computes": step.compute,
        "Input": step.input_expression,
        "Input sanitizer": step.input_sanitizer,
        "Output sanitizer": step.output_sanitizer,
        "Tool": step.tool_name,
        "Output type": step.output_type,
        "Temperature": step.temperature,
        "Max tokens": step.max_tokens,
        "Reasoning effort": step.reasoning_effort and step.reasoning_effort.value,
        "Service tier": step.service_tier and step.service_tier.value,
        "Sees results of steps": ", ".join(map(str, step.include_results)),
        "Time limit": step.time_limit and format_duration(step.time_limit),
    }
    return {
        "number": number,
        "spec": step,
        "model": step.model or spec.model or "Default model",
        "instructions": cut_text(instructions, MAX_INSTRUCTIONS),
        # They don't fit into two lines.
        "is_long": len(instructions) > _SHORT or "\n" in instructions,
        "returns": shorten_schema(step.output_schema),
        "audits": [_build_audit(audit, step) for audit in step.audits],
        "pass_rule": describe_pass_rule(str(step.pass_expression or "")),
        "settings": [
            (name, cut_text(str(value).strip())) for name, value in settings.items() if value not in (None, "")
        ],
    }


def _build_audit(audit: AuditSpec, step: StepSpec) -> dict[str, Any]:
    if step.pass_expression:
        role, role_help = "Rule decides", "The pass rule of the step decides what its issues count"
    elif audit.threshold is None or audit.severity < audit.threshold:
        role, role_help = "Warns", "Its issues don’t fail an attempt"
    else:
        role, role_help = "Blocks", "Its issues fail the attempt"
    rule = str(audit.rule).strip()
    if audit.for_each:
        rule = f"for each item of {str(audit.for_each).strip()}: {rule}"
    look = {"severity": SEVERITIES[audit.severity.value], "role": role, "role_help": role_help}
    return {"name": audit.name, "rule": cut_text(rule), **look}


def describe_pass_rule(rule: str) -> str:
    """A pass rule in words; empty for one with a condition that has a shape of its own."""
    rule = " ".join(rule.split())
    if rule.startswith("python:"):
        return f"Passes when {rule.removeprefix('python:')} (Python) accepts the output"
    conditions = [_describe_condition(condition) for condition in rule.split(" && ")]
    return f"Passes when {' and '.join(conditions)}" if all(conditions) else ""


def _describe_condition(condition: str) -> str:
    if found := _WEIGHTS.fullmatch(condition):
        how = "at most" if found[2] == "<=" else "less than"
        return f"the weights of all issues add up to {how} {found[3]}"
    if found := _COUNT.fullmatch(condition):
        count = int(found[2])
        how_many = f"{_COMPARED[found[1]]} {format_plural(count, 'issue')}" if count else "no issue"
        return f"there {'are' if count > 1 else 'is'} {how_many}"
    found = _NONE.fullmatch(condition)
    return f"there is no {found[2]} issue" if found else ""


def shorten_schema(schema: Mapping[str, Any] | None) -> str:
    """The fields of a schema in short form: ``verdict, risks[]: number, level``."""
    fields = list(_list_fields(schema or {}, schema or {}))
    if len(fields) == 1 and fields[0][1]:
        return ": ".join(fields[0])
    return ", ".join(f"{name} ({inner})" if inner else name for name, inner in fields)


def _list_fields(schema: Any, root: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The fields of an object, each with the names of those of the object or the objects that it holds."""
    properties = resolve_schema(root, schema)[0].get("properties")
    properties = properties if isinstance(properties, Mapping) else {}
    for name, part in list(properties.items())[:MAX_PROPERTIES]:
        (part, _), shown = resolve_schema(root, part), str(cut_text(str(name), 60))
        if part.get("type") == "array":
            least, most = part.get("minItems"), part.get("maxItems")
            shown += f"[{least if least == most and least is not None else ''}]"
            part = part.get("items")
        # Fields of fields of fields are left out.
        yield shown, ", ".join(inner for inner, _ in _list_fields(part, root)) if schema is root else ""
    if len(properties) > MAX_PROPERTIES:
        yield "…", ""


# The table of versions


def list_versions(versions: Sequence[FlowVersion]) -> list[tuple[FlowVersion, FlowVersion | None, str]]:
    """The newest of ``versions``, each with the one before and what it changed in words. At most one query.

    They come newest first.
    """
    shown = versions[: MAX_VERSIONS + 1]
    load_specs(shown)
    rows = []
    for version, before in zip(shown[:MAX_VERSIONS], [*shown[1:], None], strict=False):
        change = _summarise(before.digest, version.digest) if before else "First version" * (version.number == 1)
        rows.append((version, before, change))
    return rows


@lru_cache(maxsize=_CACHE_SIZE)
def _summarise(old: str, new: str) -> str:
    """What a version changed, by the digests of two versions whose definitions are loaded."""
    before, after = _specs[old], _specs[new]
    if before is None or after is None:
        return "This release can’t read the definition"
    return summarise_changes(compare_specs(before, after))


def fetch_version_sums(
    flow: Flow, today: date, *, is_simulated: bool, version: FlowVersion | None = None, model: str = ""
) -> dict[int, RunSums | StepSums]:
    """What was counted of each version in a year, by its key, without durations: attempts of a model, or runs."""
    kind: type[RunSums | StepSums] = StepSums if model else RunSums
    rows: Any = DailySteps.objects.all() if model else DailyRuns.objects.all()
    own = ("passed", "first_passed") if model else ("runs", "succeeded", "accepted", "cancelled", "first_time")
    columns = ("total_tokens", "cost", "unpriced", "attempts", "retries", "begun", *own)
    scope = Scope(today - YEAR, today, is_simulated, flow, version.pk if version else None, model or None)
    groups = scope.narrow(rows).values_list("version").annotate(*map(Sum, columns))
    return {key: kind(**dict(zip(columns, sums, strict=True))) for key, *sums in groups}


# The page


def fetch_flow(name: str) -> Flow:
    """The flow of that name with its live version. Raises ``Http404``."""
    columns = ("name", "title", "description", "is_archived", "live_version__number", "live_version__flow")
    return get_object_or_404(Flow.objects.select_related("live_version").only(*columns), name=name)


@require_viewer
def show_version(request: HttpRequest, flow_name: str, number: int) -> HttpResponse:
    """One version of a flow: what it does, what it changed, and its figures of the last 12 months."""
    flow = fetch_flow(flow_name)
    versions = FlowVersion.objects.filter(flow=flow).defer("spec").order_by("number")
    version = get_object_or_404(versions.select_related("created_by"), number=number)
    before = versions.filter(number__lt=number).last()
    specs = load_specs([version, before] if before else [version])
    spec, old = specs[version.pk], specs[before.pk] if before else None
    today = timezone.now().astimezone(UTC).date()
    # Simulated runs count only where there are no others.
    for is_simulated in (False, True):
        sums = fetch_version_sums(flow, today, is_simulated=is_simulated, version=version).get(version.pk)
        if sums:
            break
    cells = list_cells(OF_VERSION, sums or RunSums(), is_simulated=is_simulated)
    context = {
        "flow": flow,
        "version": version,
        "before": before,
        "after": versions.filter(number__gt=number).first(),
        "definition": build_definition(spec) if spec else None,
        "changes": compare_specs(old, spec) if spec and old else None,
        "figures": [(column.title, cell) for column, cell in zip(OF_VERSION, cells, strict=True)],
        "runs_url": link_runs(flow=flow.name, version=number),
        "prediction": load_prediction(version),
    }
    return render(request, "runs/flow_version.html", context)


@require_viewer
def show_version_document(request: HttpRequest, flow_name: str, number: int) -> JsonResponse:
    """The definition of one version as JSON."""
    version = get_object_or_404(FlowVersion.objects.only("spec"), flow__name=flow_name, number=number)
    return JsonResponse(version.spec, json_dumps_params={"indent": 2, "ensure_ascii": False})
