"""Flows, their versions and settings, and what is tried with them, as they are sent and answered."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from flows.engine.differences import ChangeKind, Subject
from flows.engine.history import Severity
from flows.engine.spec import MAX_STEPS, MAX_TOKEN_BUDGET
from flows.flow_file import SCHEMA_PATH
from flows.models import MAX_KEEP_DAYS
from flows.publishing import NOTE_LENGTH
from runs.api.schemas.runs import Budget
from runs.documents.base import (
    WHOLE,
    Amount,
    Answer,
    Body,
    Count,
    Flag,
    FreeObject,
    Model,
    Omitted,
    Paging,
    Positive,
    Query,
    Text,
    TextOrNull,
)
from runs.documents.run import Issue

MAX_RUNS_IN_FLIGHT = 2**31 - 1

# ---------------------------------------------------------------------------------------------------------------------
# Definitions


def _describe_document(schema: dict[str, Any]) -> None:
    """Make ``schema`` that of a flow file, with the schemas of steps and audits in it."""
    file: dict[str, Any] = json.loads(SCHEMA_PATH.read_text(encoding="utf-8"))
    step, audit = (file["definitions"][name] for name in ("StepSpec", "AuditSpec"))
    step["properties"]["audits"]["items"] = audit
    file["properties"]["steps"]["items"] = step
    for field in (field for part in (file, step, audit) for field in part["properties"].values()):
        if "enum" in field:
            field.setdefault("type", ["string", "null"] if None in field["enum"] else "string")
    # An amount of money may be written as text, so that no digit is lost on the way.
    file["properties"]["cost_budget"]["type"].append("string")
    schema.clear()
    schema.update({key: value for key, value in file.items() if key not in ("$schema", "definitions")})


class FlowDocument(Model):
    """The document of a flow, whatever it holds; it is described by the schema that editors of flow files have."""

    model_config = ConfigDict(extra="allow", json_schema_extra=_describe_document)


# ---------------------------------------------------------------------------------------------------------------------
# Flows and versions


class Flow(Answer):
    """A flow."""

    name: str = Field(description="Its name in addresses; never changes.")
    title: str = Field(description="Its name on pages.")
    description: TextOrNull = Field(description="What it does, for people who start it.")
    live_version: int | None = Field(validation_alias="live_number", description="The version that new runs use.")
    latest_version: int | None = Field(validation_alias="latest_number", description="Its newest version.")
    is_archived: bool = Field(description="Whether no new runs can be started.")
    created_at: datetime = Field(description="When it was first saved.")
    updated_at: datetime = Field(description="When it was last saved, archived, or got another live version.")


class ListedFlow(Flow):
    """A flow in a list."""

    list_name = "Flow"

    input_schema: dict[str, Any] | Omitted | None = Field(
        None, description="JSON Schema of the live version’s input; only with `input_schema=true`."
    )


class FlowVersion(Answer):
    """A version of a flow. It never changes."""

    list_name = "Version"

    flow: str = Field(description="The name of the flow.")
    number: int = Field(description="Counted from 1.")
    is_live: bool = Field(description="Whether new runs use it.")
    digest: str = Field(description="SHA-256 of the definition: the same for the same definition.")
    note: TextOrNull = Field(description="The author’s note.")
    created_by: str | None = Field(validation_alias="created_by__username", description="The user who created it.")
    created_at: datetime = Field(description="When it was created.")


class WholeVersion(FlowVersion):
    """A version of a flow with its definition."""

    document: FlowDocument = Field(validation_alias="spec", description="The definition, as a flow file holds it.")


class WholeFlow(Flow):
    """A flow with its definitions."""

    live: WholeVersion | None = Field(description="The version that new runs use.")
    latest: WholeVersion | None = Field(description="The newest version.")


class StoredFlow(WholeFlow):
    """A flow that was sent."""

    made_version: int | None = Field(description="The version that this request made; null if nothing was new.")


# ---------------------------------------------------------------------------------------------------------------------
# Differences


class FieldChange(Answer):
    """A field that differs."""

    field: str = Field(description="Its name in the document.")
    kind: ChangeKind = Field(description="How it changed.")
    old: Any | None = Field(description="The old value; null where nothing was set.")
    new: Any | None = Field(description="The new value; null where nothing is set.")
    notes: list[str] = Field(description="The difference in words.")


class AuditChange(Answer):
    """What became of an audit."""

    subject: Subject = Field(description="What this is about.")
    kind: ChangeKind = Field(description="How it changed.")
    name: str = Field(description="The new name, or the old one of what was removed.")
    place: Annotated[int | None, BeforeValidator(lambda place: place or None)] = Field(
        description="Counted from 1: the new place, or the old one of what was removed."
    )
    notes: list[str] = Field(description="Changes other than fields, such as moves.")
    fields: list[FieldChange] = Field(description="The fields that differ.")


class FlowChange(AuditChange):
    """What became of the flow’s own fields, or of a step."""

    audits: list[AuditChange] = Field(description="How the step’s audits changed.")


class FlowDifference(Answer):
    """The difference of two versions of a flow."""

    flow: str = Field(description="The name of the flow.")
    old: int = Field(serialization_alias="from", description="The number of the old version.")
    new: int = Field(serialization_alias="to", description="The number of the new version.")
    summary: str = Field(description="All changes in one short line.")
    changes: list[FlowChange] = Field(description="Empty if both have the same digest.")


# ---------------------------------------------------------------------------------------------------------------------
# Checking and trying


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


# ---------------------------------------------------------------------------------------------------------------------
# Settings

_RUNS = "Maximum number of concurrent runs; others wait in the queue. null: no limit."
_TOKENS = "Once all runs of the flow have used this many tokens, no more calls are made until the next period."
_COST = "The same for the cost of all runs of the flow, in USD."
_PERIOD = "How long the two budgets last; days and months are in UTC."
_DAYS = "Days from the end of a run until it is deleted. 0: never. null: the default of this installation."
_OUTPUT_DAYS = (
    "Days from the end of a run until its inputs and outputs are deleted; its figures are kept. At most `keep_days`. "
    "0: with the run. null: the default of this installation."
)

PeriodName = Literal["day", "month"]
_Runs = Annotated[int, Field(ge=1, le=MAX_RUNS_IN_FLIGHT), WHOLE]
_Tokens = Annotated[int, Field(ge=1, le=MAX_TOKEN_BUDGET), WHOLE]
Days = Annotated[int, Field(ge=0, le=MAX_KEEP_DAYS), WHOLE]


class ChangedSettings(Body):
    """Settings of a flow that change. What is left out stays as it is."""

    max_runs_in_flight: _Runs | None = Field(None, description=_RUNS)
    total_token_budget: _Tokens | None = Field(None, description=_TOKENS)
    total_cost_budget: Budget | None = Field(None, description=_COST)
    budget_period: PeriodName = Field("month", description=_PERIOD)
    keep_days: Days | None = Field(None, description=_DAYS)
    keep_outputs_days: Days | None = Field(None, description=_OUTPUT_DAYS)


class Retention(Answer):
    """For how long runs are kept; null is for ever."""

    keep_days: int | None = Field(description="Days from the end of a run until it is deleted.")
    keep_outputs_days: int | None = Field(
        description="Days until its inputs and outputs are deleted, if that is earlier."
    )


class FlowSettings(Answer):
    """How this installation runs a flow. No part of its definition: a change makes no version and holds at once."""

    flow: str = Field(validation_alias="name", description="The name of the flow.")
    max_runs_in_flight: int | None = Field(description=_RUNS)
    total_token_budget: int | None = Field(description=_TOKENS)
    total_cost_budget: Amount | None = Field(description=_COST)
    budget_period: PeriodName = Field(description=_PERIOD)
    keep_days: int | None = Field(description=_DAYS)
    keep_outputs_days: int | None = Field(description=_OUTPUT_DAYS)
    retention: Retention = Field(description="The values in effect: these, or the defaults of the installation.")
    updated_at: datetime = Field(description="When the flow was last saved, in UTC.")


# ---------------------------------------------------------------------------------------------------------------------
# Parameters

Note = Annotated[Text, Field(max_length=NOTE_LENGTH), BeforeValidator(lambda text: " ".join(text.split()))]


_FlowKey = Annotated[Text, Field(min_length=1, max_length=200)]


class FlowFilters(Paging):
    """Which flows are listed, and how."""

    archived: Literal["true", "false", "all"] = Field(
        "false", description="Only flows in the archive, only others, or all."
    )
    input_schema: Flag = Field(False, description="Whether each flow comes with its input schema.")
    before: _FlowKey | None = Field(
        None, description="Only flows before this name. Follow `next` instead of building it."
    )
    after: _FlowKey | None = Field(
        None, description="Only flows after this name. Follow `next` instead of building it."
    )


class NewFlowQuery(Query):
    """What is said of a new flow."""

    note: Note = Field("", description="A short note on the new version.")


class ChangedFlowQuery(NewFlowQuery):
    """What is said of a flow that changes."""

    make_live: Flag = Field(
        False, description="Whether new runs use it from now on. The first version of a flow is always live."
    )


class VersionFormat(Query):
    """How a version is read."""

    format: Literal["json", "yaml"] | None = Field(None, description="Overrides the header `Accept`.")


class ComparedVersion(Query):
    """The version to compare with."""

    against: Annotated[str, Field(pattern=r"^([0-9]{1,9}|live)$")] | None = Field(
        None, description="The number of the version to compare with, or `live`; without it the version before."
    )
