"""The step of a flow that a request tries, read from the body."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.exceptions import PermissionDenied
from rest_framework.request import Request

from flows.engine.errors import Problem
from flows.engine.json_values import clean_value, format_pointer
from flows.engine.model_calls import resolve_spec
from flows.engine.plugins import registry
from flows.engine.spec import FlowSpec
from flows.engine.spec_check import freeze_schemas
from flows.models import Flow
from flows.providers import build_providers, default_model_settings
from runs.api.flow_reading import read_flow_document
from runs.api.problems import InvalidBody
from runs.api.reading import StrictSerializer, read_body
from runs.stored_history import load_history
from runs.try_out.trial import Trial, TrialError, fetch_run, find_audited_output, try_on_run, try_on_values

_TYPED = ("input", "outputs")
_OF_RUN = ("after_attempt", "attempt")


def read_trial(request: Request, kind: type[StrictSerializer]) -> tuple[Trial, Mapping[str, Any]]:
    """Read a body of that kind: the trial, and the fields. Raises ``InvalidBody`` with all that is wrong."""
    values: Mapping[str, Any] = read_body(kind, request)
    spec = read_flow_document(values["document"], "/document")
    spec = resolve_spec(freeze_schemas(spec, registry), default_model_settings(), build_providers())
    index: int = values["step"]
    if index > len(spec.steps):
        count = "one step" if len(spec.steps) == 1 else f"{len(spec.steps)} steps"
        raise InvalidBody([Problem("/step", f"There is no step {index}: the flow has {count}.")])
    has_run = "run" in values
    if has_run == ("input" in values):
        raise InvalidBody([Problem("", "Say what the step works on: either “run”, or “input” and “outputs”.")])
    misplaced = [name for name in (_TYPED if has_run else _OF_RUN) if name in values]
    if misplaced:
        sentence = "With “run”, its own values count; leave this out." if has_run else "This is for a “run” only."
        raise InvalidBody([Problem(f"/{name}", sentence) for name in misplaced])
    try:
        if has_run:
            return _try_on_run(request, values, spec, index), values
        return try_on_values(spec, index, values["input"], _read_outputs(values, index)), values
    except TrialError as error:
        raise InvalidBody([Problem(f"/{error.field}", str(error))]) from None


def read_audited_output(trial: Trial, values: Mapping[str, Any]) -> dict[str, Any]:
    """The output to audit, which can be stored. Raises ``InvalidBody`` if the body has none, or two."""
    number = values.get("attempt")
    if (number is None) == ("output" not in values):
        raise InvalidBody([Problem("", "Say what to audit: either “output”, or “attempt” of “run”.")])
    if number is None:
        cleaned: dict[str, Any] = clean_value(values["output"]).value
        return cleaned
    attempt = next((attempt for attempt in trial.attempts if attempt.number == number), None)
    output = None if attempt is None else find_audited_output(attempt)
    if output is None:
        what = "left no output that could be audited" if attempt else f"is none of step {trial.index} in this run"
        raise InvalidBody([Problem("/attempt", f"Attempt {number} {what}.")])
    return output


def _try_on_run(request: Request, values: Mapping[str, Any], spec: FlowSpec, index: int) -> Trial:
    if not request.user.has_perm("runs.view_run"):
        raise PermissionDenied("Your account lacks the permission “runs.view_run”: send “input” and “outputs” instead.")
    flow_id = Flow.objects.filter(name=spec.name).values_list("pk", flat=True).first()
    run = fetch_run(flow_id, values["run"])
    return try_on_run(spec, index, run, load_history(run), feedback_count=values.get("after_attempt", 0))


def _read_outputs(values: Mapping[str, Any], index: int) -> dict[int, dict[str, Any] | None]:
    positions = {str(position): position for position in range(1, index)}
    outputs = values.get("outputs", {})
    if unknown := [name for name in outputs if name not in positions]:
        sentence = f"Outputs are named by the numbers of the steps before step {index}."
        raise InvalidBody([Problem(format_pointer(["outputs", name]), sentence) for name in unknown])
    return {positions[name]: output for name, output in outputs.items()}
