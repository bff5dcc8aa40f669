"""A step of a flow that a request wants to try: read from the body, with what the step works on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from django.core.exceptions import PermissionDenied
from rest_framework.request import Request

from flows.engine.errors import Problem
from flows.engine.json_values import clean_value, dump_json, format_pointer
from flows.engine.plugins import registry
from flows.engine.spec import FlowSpec
from flows.engine.spec_check import freeze_schemas
from flows.models import Flow
from flows.providers import build_providers, default_model_settings
from runs.api.flow_reading import read_flow_document
from runs.api.problems import InvalidBody
from runs.api.reading import StrictSerializer, read_body
from runs.stored_history import load_history
from runs.try_out.basis import Basis, BasisError, base_on_run, base_on_texts, find_run
from runs.try_out.verdict import find_output

_TYPED = ("input", "outputs")
_OF_RUN = ("after_attempt", "attempt")


@dataclass(frozen=True, slots=True)
class Trial:
    """A step, ``index`` counted from 1, of a flow as it would run, and what the step works on."""

    spec: FlowSpec
    index: int
    basis: Basis
    values: Mapping[str, Any]
    """The fields of the body."""

    @classmethod
    def read(cls, request: Request, kind: type[StrictSerializer]) -> Self:
        """Read a body of that kind. Raises ``InvalidBody`` with all that is wrong."""
        values: Mapping[str, Any] = read_body(kind, request)
        spec = read_flow_document(values["document"], "/document")
        spec = freeze_schemas(spec, registry).resolve(default_model_settings(), build_providers())
        index: int = values["step"]
        if index > len(spec.steps):
            count = "one step" if len(spec.steps) == 1 else f"{len(spec.steps)} steps"
            raise InvalidBody([Problem("/step", f"There is no step {index}: the flow has {count}.")])
        return cls(spec, index, _find_basis(request, values, spec, index), values)

    def describe(self) -> dict[str, Any]:
        """What every answer says of the step."""
        return {"step": self.index, "name": self.spec.step(self.index).name, "notes": list(self.basis.notes)}

    def find_output(self) -> dict[str, Any]:
        """The output to audit, which can be stored. Raises ``InvalidBody`` if the body has none, or two."""
        number = self.values.get("attempt")
        if (number is None) == ("output" not in self.values):
            raise InvalidBody([Problem("", "Say what to audit: either “output”, or “attempt” of “run”.")])
        if number is None:
            cleaned: dict[str, Any] = clean_value(self.values["output"]).value
            return cleaned
        attempt = next((one for one in self.basis.attempts if one.number == number), None)
        output = None if attempt is None else find_output(attempt)
        if output is None:
            what = "left no output that could be audited" if attempt else f"is none of step {self.index} in this run"
            raise InvalidBody([Problem("/attempt", f"Attempt {number} {what}.")])
        return output


def _find_basis(request: Request, values: Mapping[str, Any], spec: FlowSpec, index: int) -> Basis:
    has_run = "run" in values
    if has_run == ("input" in values):
        raise InvalidBody([Problem("", "Say what the step works on: either “run”, or “input” and “outputs”.")])
    misplaced = [name for name in (_TYPED if has_run else _OF_RUN) if name in values]
    if misplaced:
        sentence = "With “run”, its own values count; leave this out." if has_run else "This is for a “run” only."
        raise InvalidBody([Problem(f"/{name}", sentence) for name in misplaced])
    try:
        if has_run:
            return _find_course(request, values, spec, index)
        outputs = {position: dump_json(output) for position, output in _read_outputs(values, index).items()}
        return base_on_texts(spec, index, input=dump_json(values["input"]), outputs=outputs)
    except BasisError as error:
        raise InvalidBody(
            [Problem(f"/{name.replace('output-', 'outputs/')}", sentence) for name, sentence in error.problems.items()]
        ) from None


def _find_course(request: Request, values: Mapping[str, Any], spec: FlowSpec, index: int) -> Basis:
    if not request.user.has_perm("runs.view_run"):
        raise PermissionDenied("Your account lacks the permission “runs.view_run”: send “input” and “outputs” instead.")
    flow_id = Flow.objects.filter(name=spec.name).values_list("pk", flat=True).first()
    run = find_run(flow_id, str(values["run"]))
    return base_on_run(run, load_history(run), spec, index, told_of=values.get("after_attempt", 0))


def _read_outputs(values: Mapping[str, Any], index: int) -> dict[int, dict[str, Any]]:
    outputs: dict[int, dict[str, Any]] = {}
    problems = []
    for name, output in values.get("outputs", {}).items():
        if not re.fullmatch(r"[1-9][0-9]?", name, re.ASCII) or int(name) >= index:
            sentence = f"Outputs are named by the numbers of the steps before step {index}."
            problems.append(Problem(format_pointer(["outputs", name]), sentence))
        elif output is not None:
            outputs[int(name)] = output
    if problems:
        raise InvalidBody(problems)
    return outputs
