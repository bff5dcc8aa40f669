"""What the variables of an expression held in an earlier run: real values to write against.

Values are shown as trees, each part with the path that an expression reads it by.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import URLPattern, path
from django.utils.formats import date_format
from django.utils.timezone import localtime
from django.views.decorators.http import require_POST

from flows.admin.access import has_permission, require_permission
from flows.admin.feedback import VARIABLES
from flows.admin.flow_admin import FlowAdmin
from flows.admin.posted_json import PostedError, get_number, get_text, read_posted_json, refuse_unreadable
from flows.engine.errors import ExpressionError, SpecError
from flows.engine.evaluation import Evaluator, step_variables
from flows.engine.expressions import FIELD_VARIABLES, parse_expression
from flows.engine.history import Attempt, History
from flows.engine.json_values import clean_value, dump_json
from flows.engine.plugins import PREFIX, registry
from flows.engine.spec import MAX_STEPS, FlowSpec, StepSpec
from flows.throttle import limit_rate
from runs.models import Run, Step
from runs.pages.badges import STATES
from runs.stored_history import load_history
from runs.try_out.trial import begin_time_budget, find_audited_output

MAX_RUNS_OFFERED = 10
MAX_REQUESTS_PER_MINUTE = 120
MAX_BYTES = 40_000
"""Of all values of one answer together, roughly."""
MAX_DEPTH = 8
MAX_ELEMENTS = 5
"""Elements of a list that are shown: the others are much like them."""
MAX_KEYS = 60
MAX_TEXT_LENGTH = 100
"""Characters of a value's preview, and of a key that is shown."""

_MAX_ID = 2**63 - 1
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED = frozenset({"false", "in", "null", "true"})
_NODE_BYTES = 60
"""The size of a node beside its texts."""
_ITEM = "The element of the rule’s list that the issue is about; null if the rule gives false."

Reading = tuple[Any, str]
"""A value, and a sentence where there is none or where it is not quite what the variable holds."""


def list_urls(flow_admin: FlowAdmin) -> list[URLPattern]:
    """The address of the values, below those of flows."""
    view = require_permission("flows.view_flow")(values_view)
    return [path("values/", flow_admin.admin_site.admin_view(view), name="flows_flow_values")]


@require_POST
@limit_rate("flow-values", most=MAX_REQUESTS_PER_MINUTE, seconds=60)
@refuse_unreadable
def values_view(request: HttpRequest) -> HttpResponse:
    """The latest runs of a flow, and what the variables of one field of one step held in one of them.

    Posted is ``{"flow", "step", "names", "field"}``: the key of the flow, the step's index from 1, the names of the
    page's steps in their order, and the field. ``run`` chooses a run; ``rule`` is the audit's rule, for ``item``;
    ``part`` asks for the element of ``steps`` with that index instead of the variables.
    """
    if not has_permission(request, "runs.view_run"):
        return JsonResponse({"note": "You may not see runs: your account lacks “runs.view_run”.", "runs": []})
    posted = read_posted_json(request)
    flow_id, step = get_number(posted, "flow", most=_MAX_ID), get_number(posted, "step", most=MAX_STEPS)
    names, field = _get_names(posted), get_text(posted, "field")
    if flow_id is None or not step or step > len(names) or field not in FIELD_VARIABLES:
        raise PostedError("“flow”, “step”, “names” or “field” is missing or not valid.")
    part, rule = get_number(posted, "part", most=step - 1), get_text(posted, "rule")
    newest = Run.objects.filter(flow=flow_id).order_by("-created_at", "-pk")
    runs = list(newest.only("status", "created_at")[:MAX_RUNS_OFFERED])
    if not runs:
        return JsonResponse({"note": "No runs of this flow yet: there are no values to show.", "runs": []})
    run = _fetch_run(runs, get_number(posted, "run", most=_MAX_ID), names[step - 1])
    values = EarlierValues(run, names, step)
    if part is not None:
        return JsonResponse({"tree": build_tree(values.variables["steps"][part], MAX_BYTES, segment=f"[{part}]")})
    variables: list[dict[str, Any]] = []
    for name in (name for name in VARIABLES if name in FIELD_VARIABLES[field]):
        if name == "steps":
            variables.append({"name": name, "note": "", "tree": values.outline_steps()})
            continue
        value, note = values.read(name, field, rule.strip())
        is_shown = value is not None or not note
        tree = build_tree(value, MAX_BYTES // 3, segment=name) if is_shown else None
        variables.append({"name": name, "note": note, "tree": tree})
    offered = [{"id": one.pk, "words": _describe_run(one)} for one in runs]
    return JsonResponse({"note": "", "runs": offered, "run": run.pk, "variables": variables})


def _get_names(posted: dict[str, Any]) -> list[str]:
    names = posted.get("names")
    if not isinstance(names, list) or len(names) > MAX_STEPS or not all(isinstance(name, str) for name in names):
        raise PostedError(f"“names” must be a list of at most {MAX_STEPS} names of steps.")
    cleaned: list[str] = clean_value(names).value
    return cleaned


def _fetch_run(runs: list[Run], wanted: int | None, step_name: str) -> Run:
    """The run that was chosen, else the latest one that reached the step, else the latest one."""
    if wanted is not None:
        chosen = next((run for run in runs if run.pk == wanted), None)
        if chosen is None:
            raise PostedError(f"Run {wanted} is no longer among the latest runs of this flow. Choose another one.")
        return chosen
    steps = Step.objects.filter(run__in=[run.pk for run in runs], name=step_name[:100])
    reached = set(steps.values_list("run_id", flat=True))
    return next((run for run in runs if run.pk in reached), runs[0])


def _describe_run(run: Run) -> str:
    return f"Run {run.pk}, {STATES[run.status].word.lower()}, {date_format(localtime(run.created_at), 'j F, H:i')}"


class EarlierValues:
    """What the variables of a step of an editor's page held in a run.

    ``names`` are those of the page's steps, ``step`` is the index of one, from 1. Steps of the run are found by name,
    since they may have been moved since; one that was renamed, by its position.
    """

    def __init__(self, run: Run, names: Sequence[str], step: int) -> None:
        self._run = run
        self._step = step
        stored = load_history(run)
        by_name = dict(Step.objects.filter(run=run).order_by("index").values_list("name", "index"))
        self._places = [0, *(_find_place(by_name, index, names) for index in range(1, step + 1))]
        """The indices of the page's steps in the run; -1 for a step that the run lacks."""
        steps = tuple(stored.attempts(place) for place in self._places)
        self._history = History(stored.run_id, steps)
        # Of the flow as it is being written, variables have the names only.
        named = tuple(StepSpec.model_construct(name=name) for name in names)
        spec = FlowSpec.model_construct(name="values", steps=named)
        self.variables = step_variables(spec, self._history, step)

    def read(self, name: str, field: str, rule: str) -> Reading:
        """What a variable of ``field`` held, all but ``steps``; ``rule`` is that of the audit, for ``item``."""
        final = self._history.final(self._step)
        match name:
            case "input":
                return self.variables["input"], ""
            case "previous":
                return self._explain(self._step - 1, self.variables["previous"])
            case "output":
                return self._explain(self._step, final.usable_output if final else None)
            case "issues":
                issues = [issue.model_dump(mode="json") for issue in final.issues] if final else None
                return self._explain(self._step, issues)
            case "value":
                return self._read_value(final, field) if final else self._explain(self._step, None)
            case _:
                return self._read_item(final, rule)

    def outline_steps(self) -> dict[str, Any]:
        """The variable ``steps`` as a tree whose parts are asked for one by one: their outputs may be large."""
        parts = [{"segment": "[0]", "preview": "the input", "part": 0}]
        for index, step in enumerate(self.variables["steps"][1:], start=1):
            final = self._history.final(index)
            preview = f"“{step['name']}”, {final.outcome if final else 'not in this run'}"
            parts.append({"segment": f"[{index}]", "preview": preview, "part": index})
        return {"segment": "steps", "preview": _preview(parts), "parts": parts}

    def _read_value(self, final: Attempt, field: str) -> Reading:
        """What the sanitizer was given, as far as it was kept."""
        if field == "output_sanitizer":
            value = find_audited_output(final)
            return value, "" if value is not None else "No output in this run."
        try:
            was_changed = self._run.version.flow_spec.step(self._places[self._step]).input_sanitizer is not None
        except SpecError:
            return final.input, "Perhaps as a sanitizer left it: this ToolFlow can’t read the version of this run."
        return final.input, "As the sanitizer of then left it; what it was given is not kept." if was_changed else ""

    def _read_item(self, final: Attempt | None, rule: str) -> Reading:
        """The first element that the rule gives now for the output of then."""
        if not rule or rule.startswith(PREFIX):
            return None, _ITEM
        try:
            names = parse_expression(rule, variables=FIELD_VARIABLES["rule"]).variables
        except ExpressionError:
            return None, f"{_ITEM} The rule can’t be read yet."
        output = final.usable_output if final else None
        if output is None and "output" in names:
            return None, _ITEM
        evaluator = Evaluator({**self.variables, "output": output}, registry, begin_time_budget())
        try:
            found = asyncio.run(evaluator.evaluate("rule", rule))
        except ExpressionError:
            return None, f"{_ITEM} The rule could not be evaluated over this output."
        if isinstance(found, list) and found:
            return found[0], "The first of the rule’s list."
        return None, f"{_ITEM} Here the rule gives {'an empty list' if found == [] else 'no list'}."

    def _explain(self, index: int, value: Any) -> Reading:
        if value is not None:
            return value, ""
        if self._history.final(index) is not None:
            return None, "No usable output in this run."
        return None, f"Run {self._run.pk} did not reach this step." if index == self._step else "Not in this run."


def _find_place(by_name: dict[str, int], index: int, names: Sequence[str]) -> int:
    """The index in the run of the page's step at ``index``, -1 if the run has none like it."""
    if names[index - 1] in by_name:
        return by_name[names[index - 1]]
    name = next((name for name, place in by_name.items() if place == index), None)
    return -1 if name is None or name in names else index


def build_tree(value: Any, max_bytes: int, *, segment: str = "") -> dict[str, Any]:
    """``value`` as nested parts: the ``segment`` that leads to each (``.total``, ``[0]``), a ``preview``, its parts.

    Levels are built one after the other until ``max_bytes`` are used up; ``more`` counts what is left out.
    """
    root: dict[str, Any] = {"segment": segment, "preview": _preview(value)}
    left = max_bytes
    waiting = deque([(root, value, 1)])
    while waiting:
        node, value, depth = waiting.popleft()
        if depth > MAX_DEPTH or not isinstance(value, dict | list):
            continue
        parts: list[dict[str, Any]] = []
        for part_segment, part_value in _list_parts(value):
            part = {"segment": part_segment, "preview": _preview(part_value)}
            left -= _NODE_BYTES + len(json.dumps(list(part.values())))
            if left < 0:
                break
            parts.append(part)
            waiting.append((part, part_value, depth + 1))
        if parts:
            node["parts"] = parts
        if len(parts) < len(value):
            node["more"] = len(value) - len(parts)
    return root


def _list_parts(value: dict[str, Any] | list[Any]) -> Iterator[tuple[str, Any]]:
    if isinstance(value, list):
        for index, item in enumerate(value[:MAX_ELEMENTS]):
            yield f"[{index}]", item
        return
    for key in list(value)[:MAX_KEYS]:
        if len(key) <= MAX_TEXT_LENGTH:
            is_name = _NAME.fullmatch(key) and key not in _RESERVED
            yield f".{key}" if is_name else f"[{json.dumps(key, ensure_ascii=False)}]", value[key]


def _preview(value: Any) -> str:
    if isinstance(value, list):
        return "[]" if not value else f"{len(value):,} element{'' if len(value) == 1 else 's'}"
    if isinstance(value, dict):
        text = f"{{{', '.join(list(value)[:MAX_KEYS])}}}"
    else:
        # A text of megabytes is not written out for its beginning.
        text = dump_json(value[: MAX_TEXT_LENGTH + 1] if isinstance(value, str) else value)
    return text if len(text) <= MAX_TEXT_LENGTH else f"{text[: MAX_TEXT_LENGTH - 1]}…"
