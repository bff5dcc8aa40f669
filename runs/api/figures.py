"""Models of statistics: of flows, audits and usage, and of what goes on now.

Models of sums read their attributes. Validate them with the context ``is_simulated``: simulated runs have no cost.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo

from flows.engine.history import Severity
from runs.documents.base import Amount, Answer, Count, Omitted, TextOrNull

_COST_PLACES = 8
_OF_RUNS = "null of one model or step, of which there are only attempts"
_UNPRICED = "Attempts that used tokens at an unknown price: if there are any, the cost is a lower bound."


def _hide_simulated(cost: object, info: ValidationInfo) -> object:
    return None if info.context and info.context["is_simulated"] else cost


Cost = Annotated[
    Annotated[Amount, AfterValidator(lambda cost: round(cost, _COST_PLACES))] | None, BeforeValidator(_hide_simulated)
]
Rate = Annotated[float, Field(ge=0)] | None


def _count_seconds(duration: object) -> object:
    # Clocks of two machines may differ a little.
    return max(duration.total_seconds(), 0.0) if isinstance(duration, timedelta) else duration


Seconds = Annotated[
    float, Field(ge=0), AfterValidator(lambda seconds: round(seconds, 3)), BeforeValidator(_count_seconds)
]

# ---------------------------------------------------------------------------------------------------------------------
# Figures


class Span(Answer):
    """The days that figures are of."""

    first: date = Field(serialization_alias="from", description="The first day, UTC.")
    last: date = Field(serialization_alias="to", description="The last day, included.")


class RunFigures(Answer):
    """Runs that ended. Rates are fractions of one, leave out runs that were cancelled, and are null of nothing."""

    total: Count = Field(validation_alias="runs", description="Runs that ended, with any status.")
    succeeded: Count = Field(description="Runs that succeeded: each is an accepted output.")
    accepted: Count = Field(description="Of these, runs in which a step did not pass and had its best output accepted.")
    failed: Count = Field(description="Runs with an output that never passed.")
    errored: Count = Field(description="Runs that ended errored.")
    cancelled: Count = Field(description="Runs that were cancelled.")
    pass_rate: Rate = Field(description="Runs that succeeded with every step passed.")
    first_attempt_pass_rate: Rate = Field(validation_alias="first_rate", description="Runs that needed no retry.")
    duration_p50: Seconds | None = Field(
        validation_alias="median", description="Seconds that half of the runs took at most, within 2.5 %."
    )
    duration_p95: Seconds | None = Field(validation_alias="p95", description="Seconds that 95 of 100 took at most.")


class ModelRunsSteps(Answer):
    """Steps and their attempts."""

    begun: Count = Field(description="First attempts with an output: over all models, the steps that brought one.")
    attempts: Count = Field(description="All attempts, also those that were interrupted.")
    retries: Count = Field(description="Attempts with an output that followed another one of their step.")
    attempts_per_step: Rate = Field(description="Attempts with an output for each begun step; null by model.")


class StepFigures(ModelRunsSteps):
    """Steps that were tried, and their attempts. Rates are fractions of one, and null of nothing."""

    passed: Count = Field(description="Attempts that passed: over all models, the steps that were passed.")
    pass_rate: Rate = Field(description="Steps that were passed; null by model, as several may share a step.")
    first_attempt_pass_rate: Rate = Field(validation_alias="first_rate", description="First attempts that passed.")
    attempt_pass_rate: Rate = Field(validation_alias="attempt_rate", description="Attempts that passed.")
    attempts_per_pass: Rate = Field(
        validation_alias="attempts_per_passed", description="Attempts for each one that passed."
    )


class ModelRunsTokens(Answer):
    """Tokens, and means in whole numbers."""

    total: Count = Field(validation_alias="total_tokens", description="Tokens of all attempts.")
    per_run: Count | None = Field(
        validation_alias="tokens_per_run", description="Mean of all runs; null by model and step."
    )
    per_accepted_output: Count | None = Field(
        validation_alias="tokens_per_accepted", description="All tokens by runs that succeeded."
    )


class TokenFigures(ModelRunsTokens):
    """Tokens of all attempts, and means in whole numbers."""

    per_attempt: Count | None = Field(description="Mean of all attempts.")
    per_passed_attempt: Count | None = Field(description="Tokens of all attempts for each one that passed.")


class ModelRunsCost(Answer):
    """Cost in USD as far as prices are known; null where none is, and of simulated runs."""

    total: Cost = Field(validation_alias="known_cost", description="Cost of all attempts.")
    per_run: Cost = Field(validation_alias="cost_per_run", description="Mean of all runs; null by model and step.")
    per_accepted_output: Cost = Field(
        validation_alias="cost_per_accepted", description="All cost by runs that succeeded."
    )
    unpriced: Count = Field(description=_UNPRICED)


class CostFigures(ModelRunsCost):
    """Cost of all attempts in USD as far as prices are known; null where none is, and of simulated runs."""

    per_attempt: Cost = Field(description="Mean of all attempts.")
    per_passed_attempt: Cost = Field(description="Cost of all attempts for each one that passed.")


class BillPart(Answer):
    """One part of what runs used."""

    tokens: Count = Field(description="Tokens of these attempts.")
    share: Rate = Field(description="Share of the cost, or of the tokens where not all cost is known.")
    cost: Cost = Field(description="Cost of these attempts in USD.")
    unpriced: Count = Field(description=_UNPRICED)


class RetryBill(Answer):
    """What runs used, in three parts."""

    first_attempts: BillPart = Field(validation_alias="first", description="First attempts.")
    useful_retries: BillPart = Field(validation_alias="useful", description="Retries of steps that passed in the end.")
    wasted_retries: BillPart = Field(validation_alias="wasted", description="Retries of steps that did not pass.")


class Figures(Answer):
    """What runs, their steps and attempts came to."""

    runs: RunFigures | None = Field(description=f"Counts, rates and durations of runs; {_OF_RUNS}.")
    steps: StepFigures = Field(description="Counts and rates of steps and attempts.")
    tokens: TokenFigures = Field(description="Tokens.")
    cost: CostFigures = Field(description="Cost.")
    retry_bill: RetryBill | None = Field(description=f"First attempts, useful and wasted retries; {_OF_RUNS}.")


# ---------------------------------------------------------------------------------------------------------------------
# Of a flow


class PeriodFigures(Span, Figures):
    """The figures of a day or a week."""


class VersionFigures(Figures):
    """The figures of a version."""

    version: int = Field(ge=1, description="Its number.")
    is_live: bool = Field(description="Whether it is live.")


class ModelFigures(Figures):
    """The figures of the attempts that a model answered."""

    model: TextOrNull = Field(description="As the provider named it; null where none answered.")


class ModelRuns(Answer):
    """Runs whose steps all ask one model, several, or none."""

    model: TextOrNull = Field(description="As the definition names it; null of several, and of local steps alone.")
    has_several: bool = Field(description="Whether their steps ask several models: all such runs are here.")
    runs: RunFigures = Field(description="Counts, rates and durations of these runs.")
    steps: ModelRunsSteps = Field(description="Their steps and attempts.")
    tokens: ModelRunsTokens = Field(description="Their tokens.")
    cost: ModelRunsCost = Field(description="Their cost.")


class StepStatistics(Figures):
    """The figures of one step of the flow."""

    step: int = Field(ge=1, description="Its position, from 1.")
    name: str = Field(description="Its name; steps of one position and several names are several items.")


class IssueFigures(Answer):
    """How often one kind of issue was raised."""

    code: str = Field(description="Its code.")
    audit: TextOrNull = Field(description="The audit; null where ToolFlow itself raised it.")
    severity: Severity = Field(description="How much it matters.")
    issues: Count = Field(description="Issues of all attempts.")
    runs: Count = Field(description="Runs in which it was raised at least once.")


class Asked(Span):
    """What figures were asked for."""

    version: int | None = Field(description="The requested version; null for all.")
    is_simulated: bool = Field(description="Whether these are simulated runs.")


class FlowStatistics(Asked, Figures):
    """How the runs of a flow went."""

    flow: str = Field(description="Name of the flow.")
    model: str | None = Field(description="The requested model; null for all.")
    group_by: Literal["day", "week", "none"] = Field(description="What `periods` are.")
    periods: list[PeriodFigures] | None = Field(
        description="Each day, or week from Monday on, the oldest first; null with `group_by=none`."
    )
    versions: list[VersionFigures] = Field(description="The versions that ran, the newest 100 of them.")
    runs_by_model: list[ModelRuns] = Field(
        description="All runs by the model that all of their steps ask; the one with the most runs first."
    )
    models: list[ModelFigures] = Field(description="All models that answered, the one with the most attempts first.")
    by_step: list[StepStatistics] = Field(description="The steps, by position.")
    issues: list[IssueFigures] | None = Field(description="The 50 most frequent kinds of issues; null with `model`.")


class AuditFigures(Answer):
    """How often an audit of a step fired, and what came of it."""

    step: int = Field(ge=1, description="Position of the step, from 1.")
    step_name: TextOrNull = Field(description="Name of the step.")
    audit: TextOrNull = Field(description="Name of the audit; null for what ToolFlow itself raised.")
    code: TextOrNull = Field(description="Code of what ToolFlow itself raised; null for audits.")
    fired: Count = Field(description="Attempts in which it raised an issue.")
    retried: Count = Field(description="Of these, attempts whose next attempt was audited again.")
    fixed: Count = Field(description="Of these, where that one had none of its issues.")
    fixed_rate: Rate = Field(description="Share of those retried that were fixed; null of none.")
    retry_tokens: Count = Field(description="Tokens of the attempts that followed, up to that one.")
    retry_cost: Cost = Field(validation_alias="known_cost", description="Cost of these attempts in USD.")
    retry_unpriced: Count = Field(description="Of these attempts, those that used tokens at an unknown price.")


class AuditStatistics(Asked):
    """What the audits of a flow found."""

    flow: str = Field(description="Name of the flow.")
    items: list[AuditFigures] = Field(description="The audits that fired, by step; at most 100.")
    is_truncated: bool = Field(description="Whether there are more than those listed.")


# ---------------------------------------------------------------------------------------------------------------------
# Usage

Group = Literal["flow", "version", "model", "day"]


class UsageSums(Answer):
    """Tokens and their cost."""

    prompt: Count = Field(validation_alias="prompt_tokens", description="Tokens of requests.")
    completion: Count = Field(validation_alias="completion_tokens", description="Tokens of answers.")
    total: Count = Field(validation_alias="total_tokens", description="All tokens.")
    cached: Count | None = Field(
        validation_alias="cached_tokens", description="Of the prompt, those cached; null by model."
    )
    reasoning: Count | None = Field(
        validation_alias="reasoning_tokens", description="Of the completion, reasoning; null by model."
    )
    cost: Cost = Field(validation_alias="known_cost", description="Cost in USD.")
    unpriced: Count = Field(description=_UNPRICED)


class UsageGroup(Answer):
    """What one group used. It has the keys that usage is grouped by, and no others."""

    flow: str | Omitted = Field(None, description="Name of the flow.")
    version: Annotated[int, Field(ge=1)] | Omitted = Field(None, description="Number of the version.")
    model: TextOrNull | Omitted = Field(None, description="As the provider named it; null where none answered.")
    day: date | Omitted = Field(None, description="The day on which the runs ended, UTC.")
    runs: Count | None = Field(description="Runs that ended; null by model, as a run may use several.")
    attempts: Count = Field(description="Their attempts.")
    usage: UsageSums = Field(description="What they used.")


class UsageStatistics(Asked):
    """What flows used."""

    flow: str | None = Field(description="The requested flow; null for all.")
    model: str | None = Field(description="The requested model; null for all.")
    group_by: list[Group] = Field(description="The keys that usage is grouped by.")
    items: list[UsageGroup] = Field(
        description="By flow, version, model and day; at most 1,000, more are refused (400)."
    )


# ---------------------------------------------------------------------------------------------------------------------
# Now and today


class RunningRun(Answer):
    """A run under way."""

    id: int = Field(ge=1, validation_alias="pk", description="Its number.")
    flow: str = Field(validation_alias="flow__name", description="Name of the flow.")
    version: int = Field(ge=1, validation_alias="version__number", description="Number of the version.")
    started_at: datetime | None = Field(description="When it was started, UTC.")
    steps_passed: Count = Field(description="Steps that passed so far.")
    step_count: Count = Field(description="Steps of the flow.")


class RunningFigures(Answer):
    """Runs under way."""

    count: Count = Field(description="How many there are; counted up to 1,000.")
    items: list[RunningRun] = Field(description="The newest 20.")


class QueueState(Answer):
    """How many runs are queued."""

    ready: Count = Field(description="Runs that a worker can claim now.")
    later: Count = Field(description="Runs scheduled for later.")
    waiting: Count = Field(description="Blocked runs: they wait for a limit, a delay between attempts, or a plug-in.")
    oldest_ready: Seconds | None = Field(description="Seconds that the oldest ready run has been ready.")
    is_unattended: bool = Field(description="Runs are ready, but no worker is online to claim them.")


class WorkersFigures(Answer):
    """How many worker processes there are, and what they do."""

    alive: Count = Field(description="Those with a recent heartbeat.")
    silent: Count = Field(description="Those without one.")
    slots: Count = Field(description="The maximum number of concurrent runs of the workers online.")
    in_flight: Count = Field(description="Runs in progress at their last heartbeat.")


class TodayFigures(Answer):
    """Runs that ended today so far."""

    day: date = Field(description="Today, UTC.")
    runs: RunFigures = Field(description="Counts, rates and durations.")
    tokens: Count = Field(description="Their tokens.")
    cost: Cost = Field(description="Their cost in USD.")
    unpriced: Count = Field(description=_UNPRICED)


class MedianFigures(Answer):
    """The medians of those of the 7 days before today on which any run ended; null where no day has the figure."""

    days: Count = Field(description="How many days these are.")
    runs: Count = Field(description="Runs of a day.")
    pass_rate: Rate = Field(description="Runs of a day that succeeded, as a fraction of one.")
    first_attempt_pass_rate: Rate = Field(validation_alias="first_rate", description="Runs of a day without any retry.")
    duration_p50: Seconds | None = Field(description="Seconds that half of the runs of a day took at most.")
    duration_p95: Seconds | None = Field(description="Seconds that 95 of 100 runs of a day took at most.")
    tokens: Count = Field(validation_alias="total_tokens", description="Tokens of a day.")
    cost: Cost = Field(description="Cost of a day in USD.")
    unpriced: Count = Field(description=_UNPRICED)


class Overview(Answer):
    """What goes on now, and today beside the 7-day median."""

    now: datetime = Field(description="When this answer was computed, UTC.")
    running: RunningFigures = Field(description="Runs in progress, simulated and real.")
    queue: QueueState = Field(description="Queued runs, simulated and real.")
    workers: WorkersFigures = Field(description="Worker processes.")
    is_simulated: bool = Field(description="Whether `today` and `median` are of simulated runs.")
    today: TodayFigures = Field(description="Runs that ended today; they are counted within seconds.")
    median: MedianFigures | None = Field(description="The median day of the 7 before; null without any run.")
