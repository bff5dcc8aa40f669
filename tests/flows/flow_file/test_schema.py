"""The JSON Schema of flow files, which editors complete and check them with."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from flows.engine.errors import SpecError
from flows.engine.spec import AuditSpec, FlowSpec, StepSpec
from flows.examples import load_documents
from flows.flow_file import SCHEMA_PATH, parse_document, render_flow
from tests.engine.builders import TEXT_SCHEMA

ROOT = Path(__file__).resolve().parents[3]
SCHEMA: dict[str, Any] = json.loads(SCHEMA_PATH.read_text(encoding="utf-8"))
VALIDATOR = jsonschema_rs.validator_for(SCHEMA)

STEP = {"name": "Pour", "tool_name": "pour", "output_schema": TEXT_SCHEMA}


def make_document(step: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    return {"name": "tea", "steps": [{**STEP, **(step or {})}], **fields}


def test_the_committed_schema_is_what_the_classes_and_the_reference_say() -> None:
    made = subprocess.run(
        [sys.executable, ROOT / "scripts" / "write_flow_schema.py", "-"], capture_output=True, check=True, timeout=60
    )
    assert made.stdout.decode() == SCHEMA_PATH.read_text(encoding="utf-8"), (
        "Write it anew: .venv/bin/python scripts/write_flow_schema.py"
    )


@pytest.mark.parametrize(("kind", "model"), [(None, FlowSpec), ("StepSpec", StepSpec), ("AuditSpec", AuditSpec)])
def test_every_field_is_described_with_its_type_and_default(kind: str | None, model: Any) -> None:
    schema = SCHEMA["definitions"][kind] if kind else SCHEMA
    assert list(schema["properties"]) == list(model.model_fields)
    assert schema["additionalProperties"] is False
    for name, field in schema["properties"].items():
        assert field["description"], name
        assert field.keys() & {"type", "enum"}, name
        assert ("default" in field) == (
            model.model_fields[name].default not in (None, ...) and name not in schema["required"]
        )


@pytest.mark.parametrize("document", load_documents().values(), ids=lambda document: document["name"])
def test_the_examples_fit_the_schema_as_they_are_and_as_they_are_written(document: dict[str, Any]) -> None:
    VALIDATOR.validate(document)
    VALIDATOR.validate(parse_document(render_flow(FlowSpec.from_document(document))))


def test_every_kind_of_field_fits_the_schema() -> None:
    audit = {"name": "Hot", "rule": "true", "severity": "low", "fail_at": "never", "message": "'Cold'", "path": None}
    step = {"temperature": 0.5, "max_retries": 0, "stop_on_failure": False, "include_results": [0], "audits": [audit]}
    step |= {"reasoning_effort": "low", "service_tier": "flex", "retry_window": 0}
    VALIDATOR.validate(
        make_document(step, cost_budget=0.5, token_budget=10, time_limit=60, model=None, input_schema={})
    )


@pytest.mark.parametrize(
    "fields",
    [
        *({"steps": []}, {"name": "Tea Time"}, {"titel": "Tea"}, {"title": 12}, {"cost_budget": 0}),
        *({"max_tokens": 1.5}, {"input_schema": "{}"}),
    ],
)
def test_what_is_no_flow_does_not_fit_the_schema(fields: dict[str, Any]) -> None:
    refuse(make_document(**fields))


@pytest.mark.parametrize(
    "step",
    [
        *({"max_retries": 101}, {"max_retries": "3"}, {"issue_severity_filter": "grave"}, {"compute": ""}),
        *({"stop_on_failure": "no"}, {"tool_name": "pour it"}, {"audits": [{"name": "Hot"}]}),
        {"audits": [{"name": "Hot", "rule": "true", "fail_at": "grave"}]},
    ],
)
def test_what_is_no_step_does_not_fit_either(step: dict[str, Any]) -> None:
    refuse(make_document(step))


def refuse(document: Any) -> None:
    assert not VALIDATOR.is_valid(document)
    with pytest.raises(SpecError):
        FlowSpec.from_document(document)


def test_a_step_calls_the_model_or_is_local() -> None:
    typed, local = {"tool_name": "pour", "output_type": "cup"}, {"compute": "{}"}
    for step, fits in (({}, False), ({"tool_name": "pour"}, False), (local, True), (typed, True)):
        assert VALIDATOR.is_valid({"name": "tea", "steps": [{"name": "Pour", **step}]}) is fits
