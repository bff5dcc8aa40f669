"""What helps to write flows: check a definition, see the request of a step, and have an output audited."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Literal, Self

from django.http import HttpRequest
from pydantic import Field, model_validator
from rest_framework import exceptions
from rest_framework.request import Request
from rest_framework.response import Response

from flows.engine.errors import Problem
from flows.engine.history import Severity
from flows.engine.json_values import clean_value, format_pointer
from flows.engine.model_calls import resolve_spec
from flows.engine.plugins import registry
from flows.engine.spec import MAX_STEPS
from flows.engine.spec_check import freeze_schemas
from flows.models import Flow as FlowRow
from flows.portability import plan_load
from flows.providers import build_providers, default_model_settings, find_flow_warnings
from flows.throttle import count_request
from runs.api.access import CHANGE_FLOWS, READ_FLOWS, require_permission
from runs.api.base import ApiView, operation
from runs.api.flow_documents import FLOW_BODY, FLOW_PARSERS, FlowDocument, parse_definition, parse_flow_body
from runs.api.flows import Flows
from runs.api.problems import InvalidBody
from runs.documents.base import WHOLE, Answer, Body, Count, FreeObject, Positive, TextOrNull
from runs.documents.run import Issue
from runs.stored_history import load_history
from runs.try_out.trial import Trial, TrialError, fetch_run, find_audited_output, try_on_run, try_on_values


class FlowWarning(Answer):
    """Warnings: allowed, but probably not intended."""

    detail: str = Field(validation_alias="message", description="What may be wrong and how to fix it.")
    pointer: str = Field(validation_alias="path", description="JSON pointer into the document.")


class ValidFlow(Answer):
    """What storing a flow would do that has no mistakes."""

    valid: bool = Field(description="true: problems are answered with 422.")
    name: str = Field(description="The name of the flow.")
    digest: str = Field(description="SHA-256 of the definition.")
    would_make_version: int | None = Field(description="The version that storing it makes; null if nothing is new.")
    warnings: list[FlowWarning] = Field(description="Warnings: allowed, but probably not intended.")


class StepTrial(Body):
    """A step of a flow, and what it works on: either `run`, or `input` and `outputs`."""

    document: FlowDocument = Field(description="The definition of the flow; it need not be stored.")
    step: Annotated[int, Field(ge=1, le=MAX_STEPS), WHOLE] = Field(description="The number of the step, from 1.")
    run: Positive | None = Field(None, description="An earlier run of the flow whose results the step uses.")
    after_attempt: Annotated[int, Field(ge=0), WHOLE] | None = Field(
        None, description="How many of the run’s attempts of the step come before the next one; 0 by default."
    )
    input: FreeObject | None = Field(None, description="The input of the flow.")
    outputs: dict[str, FreeObject | None] | None = Field(
        None, description="The outputs of the steps before this one, by number; a step left out, or null, had none."
    )

    @model_validator(mode="after")
    def _check_basis(self) -> Self:
        has_run, has_input = self.run is not None, self.input is not None
        misplaced = self.outputs if has_run else self.after_attempt
        if has_run == has_input or misplaced:
            raise ValueError("Say what the step works on: either “run” and “after_attempt”, or “input” and “outputs”.")
        return self


class AuditTrial(StepTrial):
    """A step of a flow, what it works on, and what is to be audited: either `output`, or `attempt` of `run`."""

    output: FreeObject | None = Field(None, description="An output of the step, as the model would give it.")
    attempt: Positive | None = Field(None, description="An attempt of the step in `run`, to audit its output.")

    @model_validator(mode="after")
    def _check_output(self) -> Self:
        if (self.attempt is None) == (self.output is None) or (self.run is None and self.attempt is not None):
            raise ValueError("Say what to audit: either “output”, or “attempt” of “run”.")
        return self


class TriedStep(Answer):
    """A step that was tried."""

    step: int = Field(description="The number of the step, from 1.")
    name: str = Field(description="The name of the step.")
    notes: list[str] = Field(description="Problems with the values that the step works on, a sentence each.")


class Preview(TriedStep):
    """What the next attempt of a step begins with."""

    request: dict[str, Any] | None = Field(description="The exact body that a model step would send.")
    output: dict[str, Any] | None = Field(description="What a local step computes.")
    issues: list[Issue] = Field(description="What had to be changed in `output` so that it can be stored.")
    problem: TextOrNull = Field(description="Why neither is available, such as a failing expression.")


class TriedAudit(Answer):
    """What one audit says."""

    name: str = Field(description="The name of the audit.")
    fail_at: Severity | Literal["never"] = Field(description="The severity that fails it.")
    passed: bool = Field(description="Whether none of its issues reaches `fail_at`.")
    issue_count: Count = Field(description="How many issues it raised.")


class Verdict(TriedStep):
    """What would become of an output."""

    outcome: Literal["passed", "failed", "invalid"] = Field(description="The outcome that the attempt would have.")
    output: dict[str, Any] | None = Field(description="The output after its sanitizer.")
    raw_output: Any | None = Field(description="What came in, where the sanitizer changed it.")
    failure_reason: TextOrNull = Field(description="Why it did not pass, by the step’s own rule.")
    issues: list[Issue] = Field(description="All that is wrong with it.")
    audits: list[TriedAudit] = Field(description="Empty where the output doesn’t fit its schema.")


_operation = partial(operation, tag="Flows")
MAX_TRIES_PER_MINUTE = 60
"""Try-outs of one user, in the editor and here together: expressions and plug-ins may take long."""


class FlowTools(ApiView):
    """Addresses below ``/flows`` that a flow may have as well: other methods are those of that flow."""

    @_operation("POST flows/preview", "Preview the request of a step", CHANGE_FLOWS)
    def preview_flow_step(self, request: Request, body: StepTrial) -> Preview:
        """The exact request that the next attempt of a step would send, or what a local step computes. No model is
        called, and nothing is stored.
        """
        trial = build_trial(request, body)
        found = trial.preview(registry)
        issues = [issue.model_dump() for issue in found.notes]
        return Preview.model_validate({**found._asdict(), **_describe_trial(trial), "issues": issues})

    @_operation("POST flows/try-audits", "Audit an output", CHANGE_FLOWS)
    def try_flow_audits(self, request: Request, body: AuditTrial) -> Verdict:
        """Judges an output as an attempt of the step would: its issues, and whether it passes. No model is called, and
        nothing is stored.
        """
        trial = build_trial(request, body)
        attempt, audits = trial.judge(_find_output(trial, body), registry)
        return Verdict.model_validate({**attempt.model_dump(), **_describe_trial(trial), "audits": audits})

    def http_method_not_allowed(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Response:
        """What the flow of this name answers. Raises ``MethodNotAllowed`` if there is none."""
        name = request.path.rpartition("/")[2]
        if not FlowRow.objects.filter(name=name).exists():
            raise exceptions.MethodNotAllowed(str(request.method))
        # The answer has one of its own.
        del self.headers["Allow"]
        actions: Any = {"get": "get_flow", "put": "put_flow", "delete": "delete_flow"}
        answer: Any = Flows.as_view(actions)(self.request._request, name=name)
        found: Response = answer
        return found


class FlowCheck(FlowTools):
    """A tool that takes flow files as well."""

    parser_classes = FLOW_PARSERS

    # No expression is evaluated and no plug-in is called: it takes no more than reading.
    @_operation("POST flows/validate", "Check a flow without saving it", READ_FLOWS, body=FLOW_BODY)
    def validate_flow(self, request: Request) -> ValidFlow:
        """By the same rules by which it would be stored. All mistakes are answered at once. A token with the scope
        `read` is enough: a pipeline needs no other one to check what is only proposed.
        """
        plan = plan_load(parse_flow_body(request))
        return ValidFlow.model_validate(
            {
                "valid": True,
                "name": plan.spec.name,
                "digest": plan.spec.digest,
                "would_make_version": None if plan.is_unchanged else plan.number,
                "warnings": find_flow_warnings(plan.spec),
            }
        )


def _describe_trial(trial: Trial) -> dict[str, Any]:
    return {"step": trial.index, "name": trial.step.name, "notes": trial.notes}


# ---------------------------------------------------------------------------------------------------------------------
# Trials


def build_trial(request: Request, body: StepTrial) -> Trial:
    """The step that a body tries, and what it works on.

    Raises ``InvalidBody`` with what is wrong, ``Throttled`` for too many tries, and ``PermissionDenied`` if the user
    may read no runs.
    """
    if wait := count_request("try", request.user.pk, most=MAX_TRIES_PER_MINUTE, seconds=60, now=time.time()):
        raise exceptions.Throttled(wait)
    spec = parse_definition(body.document, "/document")
    spec = resolve_spec(freeze_schemas(spec, registry), default_model_settings(), build_providers())
    if body.step > len(spec.steps):
        raise InvalidBody([Problem("/step", f"Step {body.step} does not exist: the flow has {len(spec.steps)}.")])
    try:
        if body.run is None:
            return try_on_values(spec, body.step, body.input or {}, _parse_outputs(body.outputs or {}, body.step))
        require_permission(request, "runs.view_run")
        flow_id = FlowRow.objects.filter(name=spec.name).values_list("pk", flat=True).first()
        run = fetch_run(flow_id, body.run)
        return try_on_run(spec, body.step, run, load_history(run), feedback_count=body.after_attempt or 0)
    except TrialError as error:
        raise InvalidBody([Problem(f"/{error.field}", str(error))]) from None


def _parse_outputs(outputs: Mapping[str, Any], step: int) -> dict[int, dict[str, Any] | None]:
    before = {str(position): position for position in range(1, step)}
    if unknown := [name for name in outputs if name not in before]:
        sentence = f"The keys of “outputs” must be the numbers of steps before step {step}."
        raise InvalidBody([Problem(format_pointer(["outputs", name]), sentence) for name in unknown])
    return {before[name]: output for name, output in outputs.items()}


def _find_output(trial: Trial, body: AuditTrial) -> dict[str, Any]:
    """The output to audit, which can be stored. Raises ``InvalidBody`` for an attempt that has none."""
    if body.attempt is None:
        cleaned: dict[str, Any] = clean_value(body.output).value
        return cleaned
    attempt = next((attempt for attempt in trial.attempts if attempt.number == body.attempt), None)
    output = None if attempt is None else find_audited_output(attempt)
    if output is None:
        sentence = f"The run has no attempt {body.attempt} of step {trial.index} with an output that could be audited."
        raise InvalidBody([Problem("/attempt", sentence)])
    return output
