"""How answers with statistics are described in the OpenAPI document."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from runs.statistics.figures import GROUPS

_OF_RUNS = "null of one model or step, of which there are only attempts"


def make_count(help_text: str, *, allow_null: bool = False) -> serializers.IntegerField:
    """A whole number of things."""
    return serializers.IntegerField(min_value=0, allow_null=allow_null, help_text=help_text)


def make_rate(help_text: str) -> serializers.FloatField:
    """A share; ``help_text`` says of what, without a full stop."""
    return serializers.FloatField(
        min_value=0, allow_null=True, help_text=f"{help_text}, as a fraction of one; null of nothing."
    )


def make_mean(help_text: str) -> serializers.FloatField:
    """A mean, or a length of time."""
    return serializers.FloatField(min_value=0, allow_null=True, help_text=help_text)


def make_seconds(help_text: str) -> serializers.FloatField:
    """A percentile of durations; ``help_text`` says which, without a full stop."""
    return serializers.FloatField(
        min_value=0, allow_null=True, help_text=f"{help_text}; at most 2.5 % beside the exact value. Null of nothing."
    )


def make_cost(help_text: str) -> serializers.DecimalField:
    """An amount of money; ``help_text`` says which, without a full stop."""
    return serializers.DecimalField(
        max_digits=24,
        decimal_places=8,
        allow_null=True,
        help_text=f"{help_text}, in USD as a decimal string; null where no price is known, and of simulated runs.",
    )


def make_unpriced() -> serializers.IntegerField:
    """The attempts that a cost is without."""
    return make_count("Attempts that used tokens at an unknown price: if there are any, the cost is a lower bound.")


class SpanSerializer(serializers.Serializer[Any]):
    """The days that figures are of."""

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """The first day is called by a word that Python keeps for itself."""
        own = super().get_fields()
        first = serializers.DateField(help_text="The first day, UTC.")
        last = serializers.DateField(help_text="The last day, counted in.")
        return {"from": first, "to": last, **own}


class RunFiguresSerializer(serializers.Serializer[Any]):
    """Runs that ended; rates leave out those that were cancelled."""

    total = make_count("Runs that ended, however they did.")
    succeeded = make_count("Runs that succeeded: each is an accepted output.")
    failed = make_count("Runs with an output that never passed.")
    errored = make_count("Runs that a fault ended.")
    cancelled = make_count("Runs that were cancelled.")
    pass_rate = make_rate("Runs that succeeded")
    first_attempt_pass_rate = make_rate("Runs that succeeded without any retry")
    duration_p50 = make_seconds("Seconds from start to end that half of the runs took at most")
    duration_p95 = make_seconds("Seconds that 95 of 100 runs took at most")


class StepFiguresSerializer(serializers.Serializer[Any]):
    """Steps that were tried, and their attempts."""

    begun = make_count("First attempts with an output: over all models, the steps that brought one.")
    passed = make_count("Attempts that passed: over all models, the steps that were passed.")
    attempts = make_count("All attempts, also those that were interrupted.")
    retries = make_count("Attempts with an output that followed another one of their step.")
    pass_rate = make_rate("Steps that were passed in the end; null by model, since several may have worked at a step")
    first_attempt_pass_rate = make_rate("First attempts that passed")
    attempt_pass_rate = make_rate("Attempts that passed")
    attempts_per_step = make_mean("Attempts with an output for each step that brought one; null by model.")
    attempts_per_pass = make_mean("Attempts for each one that passed.")


class TokenFiguresSerializer(serializers.Serializer[Any]):
    """Tokens of all attempts, and means in whole numbers."""

    total = make_count("Tokens of all attempts.")
    per_run = make_count("Mean of all runs; null where runs are not told apart.", allow_null=True)
    per_accepted_output = make_count(
        "Tokens of all runs for each run that succeeded; null where runs are not told apart.", allow_null=True
    )
    per_attempt = make_count("Mean of all attempts.", allow_null=True)
    per_passed_attempt = make_count("Tokens of all attempts for each one that passed.", allow_null=True)


class CostFiguresSerializer(serializers.Serializer[Any]):
    """Cost of all attempts, as far as prices are known."""

    total = make_cost("Cost of all attempts")
    per_run = make_cost("Mean of all runs; null where runs are not told apart")
    per_accepted_output = make_cost("Cost of all runs for each run that succeeded; null where runs are not told apart")
    per_attempt = make_cost("Mean of all attempts")
    per_passed_attempt = make_cost("Cost of all attempts for each one that passed")
    unpriced = make_unpriced()


class BillPartSerializer(serializers.Serializer[Any]):
    """One part of what runs used."""

    tokens = make_count("Tokens of these attempts.")
    share = make_rate("Share of the cost where all of it is known, else of the tokens")
    cost = make_cost("Cost of these attempts")
    unpriced = make_unpriced()


class RetryBillSerializer(serializers.Serializer[Any]):
    """What runs used, in three parts."""

    first_attempts = BillPartSerializer(help_text="First attempts.")
    useful_retries = BillPartSerializer(help_text="Retries of steps that passed in the end.")
    wasted_retries = BillPartSerializer(help_text="Retries of steps that did not pass.")


class FiguresSerializer(serializers.Serializer[Any]):
    """What runs, their steps and attempts came to."""

    runs = RunFiguresSerializer(allow_null=True, help_text=f"Counts, rates and durations of runs; {_OF_RUNS}.")
    steps = StepFiguresSerializer(help_text="Counts and rates of steps and attempts.")
    tokens = TokenFiguresSerializer(help_text="Tokens.")
    cost = CostFiguresSerializer(help_text="Cost.")
    retry_bill = RetryBillSerializer(
        allow_null=True, help_text=f"First attempts, useful and wasted retries; {_OF_RUNS}."
    )


class PeriodFiguresSerializer(SpanSerializer, FiguresSerializer):
    """The figures of a day or a week."""


class VersionFiguresSerializer(FiguresSerializer):
    """The figures of a version."""

    version = serializers.IntegerField(min_value=1, help_text="Its number.")
    is_live = serializers.BooleanField(help_text="Whether it is the one that runs now.")


class ModelFiguresSerializer(FiguresSerializer):
    """The figures of the attempts that a model answered."""

    model = serializers.CharField(
        allow_null=True, help_text="As the provider named it; null for local steps and where none answered."
    )


class ModelRunsStepsSerializer(serializers.Serializer[Any]):
    """Steps of runs that ask a model."""

    begun = make_count("Steps that brought an output.")
    attempts = make_count("All attempts, also those that were interrupted.")
    retries = make_count("Attempts with an output that followed another one of their step.")
    attempts_per_step = make_mean("Attempts with an output for each step that brought one.")


class ModelRunsTokensSerializer(serializers.Serializer[Any]):
    """Tokens of runs that ask a model, and means in whole numbers."""

    total = make_count("Tokens of all attempts.")
    per_run = make_count("Mean of all runs.", allow_null=True)
    per_accepted_output = make_count("Tokens of all runs for each run that succeeded.", allow_null=True)


class ModelRunsCostSerializer(serializers.Serializer[Any]):
    """Cost of runs that ask a model, as far as prices are known."""

    total = make_cost("Cost of all attempts")
    per_run = make_cost("Mean of all runs")
    per_accepted_output = make_cost("Cost of all runs for each run that succeeded")
    unpriced = make_unpriced()


class ModelRunsSerializer(serializers.Serializer[Any]):
    """Runs whose steps all ask one model, several, or none."""

    model = serializers.CharField(
        allow_null=True,
        help_text="As the definition or the settings name it; null of several, and of local steps alone.",
    )
    has_several = serializers.BooleanField(help_text="Whether their steps ask several models: all such runs are here.")
    runs = RunFiguresSerializer(help_text="Counts, rates and durations of these runs.")
    steps = ModelRunsStepsSerializer(help_text="Their steps and attempts.")
    tokens = ModelRunsTokensSerializer(help_text="Their tokens.")
    cost = ModelRunsCostSerializer(help_text="Their cost.")


class StepStatisticsSerializer(FiguresSerializer):
    """The figures of one step of the flow."""

    step = serializers.IntegerField(min_value=1, help_text="Its position, from 1.")
    name = serializers.CharField(help_text="Its name; steps of one position and several names are several items.")


class IssueFiguresSerializer(serializers.Serializer[Any]):
    """How often one kind of issue was raised."""

    code = serializers.CharField(help_text="Its code.")
    audit = serializers.CharField(allow_null=True, help_text="The audit; null where ToolFlow itself raised it.")
    severity = serializers.ChoiceField(["low", "medium", "high", "critical"], help_text="How much it matters.")
    issues = make_count("Issues of all attempts.")
    runs = make_count("Runs in which it was raised at least once.")


class FlowStatisticsSerializer(SpanSerializer, FiguresSerializer):
    """How the runs of a flow went."""

    flow = serializers.CharField(help_text="Name of the flow.")
    version = serializers.IntegerField(allow_null=True, help_text="The version that was asked for; null for all.")
    model = serializers.CharField(allow_null=True, help_text="The model that was asked for; null for all.")
    is_simulated = serializers.BooleanField(help_text="Whether these are simulated runs.")
    group_by = serializers.ChoiceField(["day", "week", "none"], help_text="What `periods` are.")
    periods = serializers.ListField(
        child=PeriodFiguresSerializer(),
        allow_null=True,
        help_text="Each day or week (from Monday on, cut at the ends of the span), from the oldest on, also those in "
        "which nothing ran; null with `group_by=none`.",
    )
    versions = VersionFiguresSerializer(many=True, help_text="The versions that ran, the newest 100 of them.")
    runs_by_model = ModelRunsSerializer(
        many=True,
        help_text="Runs by the model that all of their steps ask, whatever `model` is; the one with the most runs "
        "first. Together they are all runs.",
    )
    models = ModelFiguresSerializer(
        many=True, help_text="The models that answered, whatever `model` is; the one with the most attempts first."
    )
    by_step = StepStatisticsSerializer(many=True, help_text="The steps, by position.")
    issues = serializers.ListField(
        child=IssueFiguresSerializer(),
        allow_null=True,
        help_text="The 50 most frequent kinds of issues; null with `model`, since issues are not told apart by model.",
    )


class AuditFiguresSerializer(serializers.Serializer[Any]):
    """How often an audit of a step fired, and what came of it."""

    step = serializers.IntegerField(min_value=1, help_text="Position of the step, from 1.")
    step_name = serializers.CharField(allow_null=True, help_text="Name of the step.")
    audit = serializers.CharField(allow_null=True, help_text="Name of the audit; null for what ToolFlow itself raised.")
    code = serializers.CharField(allow_null=True, help_text="Code of what ToolFlow itself raised; null for audits.")
    fired = make_count("Attempts in which it raised an issue.")
    retried = make_count("Of these, attempts after which another one of their step was looked at for it.")
    fixed = make_count("Of these, where that one had none of its issues.")
    fixed_rate = make_rate("Share of the retried attempts that the next attempt fixed")
    retry_tokens = make_count("Tokens of the attempts that followed, up to that one.")
    retry_cost = make_cost("Cost of these attempts")
    retry_unpriced = make_count("Of these attempts, those that used tokens at an unknown price.")


class AuditStatisticsSerializer(SpanSerializer):
    """What the audits of a flow found."""

    flow = serializers.CharField(help_text="Name of the flow.")
    version = serializers.IntegerField(allow_null=True, help_text="The version that was asked for; null for all.")
    is_simulated = serializers.BooleanField(help_text="Whether these are simulated runs.")
    items = AuditFiguresSerializer(many=True, help_text="The audits that fired, by step; at most 100.")
    is_truncated = serializers.BooleanField(help_text="Whether there are more than those listed.")


class UsageSumsSerializer(serializers.Serializer[Any]):
    """Tokens and their cost."""

    prompt = make_count("Tokens of requests.")
    completion = make_count("Tokens of answers.")
    total = make_count("All tokens.")
    cached = make_count(
        "Prompt tokens that the provider had cached; null where models are told apart.", allow_null=True
    )
    reasoning = make_count("Completion tokens that were thought; null where models are told apart.", allow_null=True)
    cost = make_cost("Cost")
    unpriced = make_unpriced()


class UsageGroupSerializer(serializers.Serializer[Any]):
    """What one group used. It has the keys that usage is grouped by, and no others."""

    flow = serializers.CharField(required=False, help_text="Name of the flow.")
    version = serializers.IntegerField(required=False, min_value=1, help_text="Number of the version.")
    model = serializers.CharField(
        required=False,
        allow_null=True,
        help_text="As the provider named it; null for local steps and where none answered.",
    )
    day = serializers.DateField(required=False, help_text="The day on which the runs ended, UTC.")
    runs = make_count(
        "Runs that ended; null where models are told apart, since a run may use several.", allow_null=True
    )
    attempts = make_count("Their attempts.")
    usage = UsageSumsSerializer(help_text="What they used.")


class UsageStatisticsSerializer(SpanSerializer):
    """What flows used."""

    flow = serializers.CharField(allow_null=True, help_text="The flow that was asked for; null for all.")
    version = serializers.IntegerField(allow_null=True, help_text="The version that was asked for; null for all.")
    model = serializers.CharField(allow_null=True, help_text="The model that was asked for; null for all.")
    is_simulated = serializers.BooleanField(help_text="Whether these are simulated runs.")
    group_by = serializers.ListField(
        child=serializers.ChoiceField(list(GROUPS)), help_text="What usage is told apart by."
    )
    items = UsageGroupSerializer(
        many=True, help_text="In the order of flow, version, model and day; at most 1,000, more are refused with 400."
    )
