"""Runs with their steps, attempts, issues and usage, as they are answered, exported and sent to webhooks."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema

from flows.engine.history import Outcome, Severity
from runs.documents.base import (
    NUMBER,
    Amount,
    Answer,
    Count,
    Flag,
    Omitted,
    Page,
    Paging,
    Query,
    RowNumber,
    RowPaging,
    Text,
    TextOrNull,
    Url,
)
from runs.models import EndReason, RunStatus

PriorityName = Literal["high", "normal", "low"]
Part = Literal["first", "useful", "wasted"]

# ---------------------------------------------------------------------------------------------------------------------
# Usage and issues


class Tokens(Answer):
    """Tokens, and what they cost."""

    prompt: Count = Field(validation_alias="prompt_tokens", description="Tokens of the request.")
    completion: Count = Field(validation_alias="completion_tokens", description="Tokens of the answer.")
    total: Count = Field(validation_alias="total_tokens", description="All tokens that were billed.")
    cached: Count = Field(
        validation_alias="cached_tokens", description="The part of `prompt` that the provider had cached."
    )
    reasoning: Count = Field(
        validation_alias="reasoning_tokens", description="The part of `completion` that was thought, not shown."
    )
    cost: Amount | None = Field(description="USD, as a decimal number; null, not 0, where the price is unknown.")
    unpriced: Count = Field(
        validation_alias="unpriced_count",
        description="How many attempts used tokens at an unknown price: `cost` is without them.",
    )


class Usage(Tokens):
    """What one attempt used, or several together."""

    reported: bool = Field(
        description="False where a call was made and the provider reported no usage; of a sum: where that holds of any."
    )


class RunTotals(Tokens):
    """What a run used so far."""

    reported: bool | Omitted = Field(
        None, description="False if the provider reported no usage of an attempt. Only where attempts are read."
    )


class Issue(Answer):
    """What an audit found in the output of one attempt. Fields that the audit added stand beside these."""

    model_config = ConfigDict(extra="allow")

    code: str = Field(description="What kind of finding it is, for programs: `hex_format`.")
    severity: Severity = Field(description="How much it matters.")
    description: str = Field(description="What was found, for people and for the model that tries again.")
    audit: str = Field(description="The audit that found it; empty where ToolFlow itself did.")
    path: str | None = Field(description="JSON pointer to the place in the output; empty for all of it, null for none.")
    context: dict[str, Any] = Field(description="What else the audit said of it.")
    suggestions: list[str] = Field(description="What would be right.")


class AttemptPlace(Answer):
    """Which attempt of a run something belongs to."""

    step: Count = Field(description="The step, from 1; 0 is the input.")
    number: int = Field(ge=1, description="Which try of the step, from 1.")
    url: Url = Field(description="Where the attempt is read.")


class FoundIssue(Issue):
    """An issue with its attempt."""

    attempt: AttemptPlace = Field(description="The attempt in whose output it was found.")


class IssueCounts(Answer):
    """How many issues there are of each severity."""

    low: Count = Field(validation_alias="issues_low", description="Of low severity.")
    medium: Count = Field(validation_alias="issues_medium", description="Of medium severity.")
    high: Count = Field(validation_alias="issues_high", description="Of high severity.")
    critical: Count = Field(validation_alias="issues_critical", description="Of critical severity.")


# ---------------------------------------------------------------------------------------------------------------------
# Attempts and steps


class AttemptError(Answer):
    """Why an attempt is `errored`."""

    code: str = Field(description="What kind of error it is, for programs.")
    message: str = Field(description="What the provider or the network said.")
    status: int | None = Field(description="HTTP status of the provider’s answer.")
    retry_after: float | None = Field(description="Seconds that the provider asked to wait.")


class Attempt(Answer):
    """One try of a step: its output beside its own issues and its own usage."""

    step: Count = Field(description="The step, from 1; 0 is the input.")
    number: int = Field(ge=1, description="Which try of the step, from 1.")
    outcome: Outcome | None = Field(description="How it ended; null while it runs.")
    input: Any = Field(description="The step’s input.")
    output: Any = Field(description="The output after the sanitizer; null where no object came back.")
    raw_output: Any = Field(
        description="What came back before the sanitizer, where that differs from `output`; text where it was no JSON."
    )
    issues: list[Issue] = Field(description="What audits found in this output.")
    usage: Usage | None = Field(None, description="Null while it runs; left out with `usage=false`.")
    request: dict[str, Any] | None = Field(
        description="The exact body that was sent to the model; null where none was called."
    )
    model: TextOrNull = Field(description="The model that answered, as the provider names it.")
    response_id: TextOrNull = Field(description="What the provider calls its answer.")
    finish_reason: TextOrNull = Field(description="Why the model stopped, as the provider says.")
    error: AttemptError | None = Field(description="Why it is `errored`.")
    failure_reason: TextOrNull = Field(description="Why it did not pass, as the step puts it.")
    plugins: dict[str, str] = Field(description="Fingerprints of the plug-ins that it used, by name.")
    started_at: datetime | None = Field(description="UTC.")
    ended_at: datetime | None = Field(description="UTC; null while it runs.")
    duration: timedelta | None = Field(description="Seconds; null while it runs.")
    url: Url = Field(description="Where it is read.")
    page_url: Url = Field(description="Where people see it.")


class Step(Answer):
    """A step of a run with its attempts."""

    index: Count = Field(description="Its place, from 1; 0 is the input.")
    name: str = Field(description="Its name in the flow.")
    outcome: Outcome | None = Field(description="How the attempt ended that decided so far; null if there is none.")
    attempts: list[Attempt] | Omitted = Field(None, description="In their order; left out with `attempts=none`.")
    url: Url = Field(description="Where it is read.")


# ---------------------------------------------------------------------------------------------------------------------
# Runs


class Blocking(Answer):
    """The attempt that decided against a run."""

    step: Count = Field(description="The step, from 1.")
    attempt: int | None = Field(description="The number of the attempt.")


class RunState(Answer):
    """What is known of a run besides its input, its attempts and its addresses."""

    id: int = Field(ge=1, description="The number of the run.")
    flow: str = Field(validation_alias="flow_name", description="The name of its flow.")
    version: int = Field(
        ge=1, validation_alias="version_number", description="The number of the flow’s version that it executes."
    )
    again_of: int | None = Field(
        description="The number of the run that it repeats, perhaps with other terms or another input. That one may "
        "have been deleted since. Null for a run that repeats none."
    )
    status: RunStatus = Field(
        description="`failed`: an output never passed. `errored`: a fault of the machinery, such as a provider that is "
        "down, a budget that is used up or a time limit that is reached."
    )
    end_reason: EndReason | None = Field(description="Why it ended, for programs; null before.")
    end_sentence: TextOrNull = Field(description="Why it ended, in a sentence; null before.")
    blocking: Blocking | None = Field(description="The attempt that decided against it.")
    waiting_for: TextOrNull = Field(description="What a queued run waits for, in a sentence.")
    cancel_requested: bool = Field(description="Whether a user asked to cancel it.")
    labels: list[str] = Field(description="Its labels.")
    metadata: dict[str, Any] = Field(description="What its user keeps with it.")
    priority: PriorityName = Field(description="Which queued runs are taken up first.")
    is_simulated: bool = Field(description="Whether the simulated model answered; nothing is billed.")
    model_settings: dict[str, Any] = Field(description="What calls fall back to where a step says nothing.")
    token_budget: int | None = Field(description="Tokens that it may use.")
    cost_budget: Amount | None = Field(description="USD that it may cost.")
    time_limit: int | None = Field(description="Seconds that it may take from its start.")
    started_by: str | None = Field(validation_alias="user_name", description="The user who started it.")
    created_at: datetime = Field(description="UTC.")
    started_at: datetime | None = Field(description="UTC; null while it is queued.")
    ended_at: datetime | None = Field(description="UTC; null until it has ended.")
    duration: timedelta | None = Field(description="Seconds from its start to its end.")
    outputs_removed_at: datetime | None = Field(
        description="UTC; since when retention has left only figures of it: inputs, outputs and requests are null, "
        "texts of issues and errors are empty. Null while all is there."
    )
    step_count: Count = Field(description="Steps of the flow, without the input.")
    steps_passed: Count = Field(description="Steps that passed.")
    attempt_count: Count = Field(description="Attempts of all steps.")
    retry_count: Count = Field(description="Attempts with an output, less the first of each step.")
    issue_counts: IssueCounts = Field(description="Issues of all attempts by severity, whatever `min_severity` is.")
    usage: RunTotals | Omitted = Field(None, description="Of all attempts; left out with `usage=false`.")


class EndedRun(RunState):
    """A run that has ended, without its history, as receivers of webhooks get it. Its `id` leads to the rest."""

    input: Any = Field(description="What it was started with; null once its outputs were removed.")


class RunSummary(RunState):
    """What is known of a run besides its input and its attempts."""

    webhook_url: TextOrNull = Field(
        description="Where its end is sent. Without the permission to start runs, or the scope for it, only the host "
        "is shown: the rest may hold a key."
    )
    url: Url = Field(description="Where it is read.")
    page_url: Url = Field(description="Where people see it.")


class Run(RunSummary):
    """A run, whole."""

    input: Any = Field(description="What it was started with; null once its outputs were removed.")
    steps: list[Step] | Omitted = Field(None, description="In their order; left out with `attempts=none`.")


class RunPage(Page):
    """A page of runs."""

    items: list[RunSummary] = Field(description="The newest first.")


class StartedRun(Answer):
    """One of many runs that were started."""

    id: int = Field(ge=1, description="The number of the run.")
    url: Url = Field(description="Where the run is read.")


class StartedRuns(Answer):
    """Runs that were started together."""

    flow: str = Field(description="The name of the flow.")
    version: int = Field(ge=1, description="The number of the version that they run.")
    count: int = Field(ge=1, description="How many runs were started.")
    url: Url = Field(description="Where they are listed, with their statuses.")
    runs: list[StartedRun] = Field(description="The runs, in the order of the request.")


class StepPage(Page):
    """The steps of a run."""

    items: list[Step] = Field(description="Step 0, the input, first.")


class AttemptPage(Page):
    """A page of attempts."""

    items: list[Attempt] = Field(description="By step and number.")


class IssuePage(Page):
    """A page of issues."""

    items: list[FoundIssue] = Field(description="By step, attempt and audit.")


# ---------------------------------------------------------------------------------------------------------------------
# What a run used


class AttemptUsage(AttemptPlace):
    """What one attempt used."""

    outcome: Outcome | None = Field(description="How it ended; null while it runs.")
    part: Part = Field(description="Which of `parts` it belongs to.")
    model: TextOrNull = Field(description="The model that answered.")
    usage: Usage | None = Field(description="Null while it runs.")


class StepUsage(Answer):
    """What the attempts of one step used."""

    index: int = Field(ge=1, description="The step.")
    usage: Usage = Field(description="Of all its attempts.")


class UsageParts(Answer):
    """What retries used, and whether they were worth it."""

    first: Usage = Field(description="First attempts of steps.")
    useful: Usage = Field(description="Retries of steps that passed in the end.")
    wasted: Usage = Field(description="Retries of steps that did not pass, or not yet.")


class RunUsage(Answer):
    """What a run used."""

    total: Usage = Field(description="Of all attempts.")
    parts: UsageParts = Field(description="The same, split by what the attempts were.")
    steps: list[StepUsage] = Field(description="Steps that have begun.")
    attempts: list[AttemptUsage] = Field(description="By step and number.")


# ---------------------------------------------------------------------------------------------------------------------
# Parameters


class AttemptParts(Query):
    """Which part of attempts is shown. Leaving something out changes nothing else: sums stay whole."""

    usage: Flag = Field(True, description="`false` leaves out tokens and cost.")
    min_severity: Severity = Field(Severity.LOW, description="Leave out issues of lower severity.")


class RunParts(AttemptParts):
    """Which part of a run is shown."""

    attempts: Literal["all", "final", "none"] = Field(
        "all",
        description="`final`: of each step only the attempt that decides, which is its last one that was not "
        "interrupted. `none`: no attempts.",
    )


_Step = Annotated[int, Field(ge=1, le=999_999_999), NUMBER]
_Name = Annotated[Text, Field(min_length=1, max_length=200)]
_MAX_PLACE = 2**31 - 1


def _parse_place(text: Any) -> Any:
    if not re.fullmatch(r"[0-9]{1,10}(\.[0-9]{1,10}){1,2}", text, re.ASCII):
        raise ValueError("This is not a place such as 2.1; follow the addresses of other pages.")
    return [min(int(part), _MAX_PLACE) for part in text.split(".")]


_NUMBER = "[0-9]{1,10}"
AttemptKey = Annotated[
    tuple[int, int],
    BeforeValidator(_parse_place),
    WithJsonSchema({"type": "string", "pattern": rf"^{_NUMBER}\.{_NUMBER}$"}),
]
"""Step and number of an attempt, such as ``2.1``."""
IssueKey = Annotated[
    tuple[int, int, int],
    BeforeValidator(_parse_place),
    WithJsonSchema({"type": "string", "pattern": rf"^{_NUMBER}\.{_NUMBER}\.{_NUMBER}$"}),
]
"""Step, attempt and position of an issue, such as ``2.1.0``."""


class AttemptFilters(AttemptParts, Paging):
    """Which attempts of a run are listed."""

    step: _Step | None = Field(None, description="Only those of this step, counted from 1.")
    outcome: list[Outcome] = Field(
        default_factory=list, description="Only attempts that ended with one of these outcomes."
    )
    before: AttemptKey | None = Field(
        None, description="Only attempts before this step and number, such as `2.1`. Follow `previous` instead."
    )
    after: AttemptKey | None = Field(
        None, description="Only attempts after this step and number, such as `2.1`. Follow `next` instead."
    )


class IssueFilters(Paging):
    """Which issues of a run are listed."""

    min_severity: Severity = Field(Severity.LOW, description="Leave out issues of lower severity.")
    code: _Name | None = Field(None, description="Only issues of this code.")
    audit: _Name | None = Field(None, description="Only issues of the audit of this name.")
    step: _Step | None = Field(None, description="Only those of this step, counted from 1.")
    before: IssueKey | None = Field(
        None, description="Only issues before this step, attempt and position, such as `2.1.0`. Follow `previous`."
    )
    after: IssueKey | None = Field(
        None, description="Only issues after this step, attempt and position, such as `2.1.0`. Follow `next`."
    )


class StartedFilters(RowPaging):
    """Which of the runs are listed that one request started."""

    first: RowNumber = Field(description="The number of the first of the runs.")
    last: RowNumber = Field(description="The number of the last one.")
    status: list[RunStatus] = Field(default_factory=list, description="Only runs that have one of these statuses.")
