"""Runs with their steps, attempts, issues and usage, as they are answered, exported and sent to webhooks."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Literal

from pydantic import ConfigDict, Field

from flows.engine.history import Outcome, Severity
from runs.documents.base import Amount, Answer, Count, Flag, Omitted, Query, TextOrNull, Url
from runs.models import EndReason, RunStatus

PriorityName = Literal["high", "normal", "low"]

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
    """What an audit found in the output of one attempt. Fields that the audit added are beside these."""

    model_config = ConfigDict(extra="allow")

    code: str = Field(description="What kind of finding it is, for programs: `hex_format`.")
    severity: Severity = Field(description="How much it matters.")
    description: str = Field(description="What was found, for people and for the model that tries again.")
    audit: str = Field(description="The audit that found it; empty where ToolFlow itself did.")
    path: str | None = Field(description="JSON pointer to the place in the output; empty for all of it, null for none.")
    context: dict[str, Any] = Field(description="What else the audit said of it.")
    suggestions: list[str] = Field(description="What would be right.")


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
    is_accepted: bool = Field(
        description="Whether it counts for its step though it did not pass, as the best; known once the run has ended."
    )
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
    accepted_count: Count = Field(description="Steps that did not pass and have their best output accepted.")
    attempt_count: Count = Field(description="Attempts of all steps.")
    retry_count: Count = Field(description="Attempts with an output, less the first of each step.")
    issue_counts: IssueCounts = Field(description="Issues of all attempts by severity, whatever `min_severity` is.")
    usage: RunTotals | Omitted = Field(None, description="Of all attempts; left out with `usage=false`.")


class EndedRun(RunState):
    """A run that has ended, without its history, as receivers of webhooks get it. Its `id` leads to the rest."""

    input: Any = Field(description="What it was started with; null once its outputs were removed.")


class RunSummary(RunState):
    """What is known of a run besides its input and its attempts."""

    list_name = "Run"

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
        description="`final`: of each step only the attempt that decides, which is the accepted one, or else "
        "the last that was not interrupted. `none`: no attempts.",
    )
