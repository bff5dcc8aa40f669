"""The shapes of runs, steps, attempts, issues and usage in the OpenAPI document. Answers are built by hand."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from flows.engine.history import Outcome, Severity
from runs.api.schema_parts import PageSerializer
from runs.attempt_rules import FIRST, USEFUL, WASTED
from runs.models import EndReason, Priority, RunStatus

OUTCOMES = [outcome.value for outcome in Outcome]
STATUSES = list(RunStatus.values)
_SEVERITIES = [severity.value for severity in Severity]
_PRIORITIES = [priority.name.lower() for priority in Priority]
COST = r"^[0-9]+(\.[0-9]+)?$"


class TokensSerializer(serializers.Serializer[Any]):
    """Tokens, and what they cost."""

    prompt = serializers.IntegerField(min_value=0, help_text="Tokens of the request.")
    completion = serializers.IntegerField(min_value=0, help_text="Tokens of the answer.")
    total = serializers.IntegerField(min_value=0, help_text="All tokens that were billed.")
    cached = serializers.IntegerField(min_value=0, help_text="The part of `prompt` that the provider had cached.")
    reasoning = serializers.IntegerField(min_value=0, help_text="The part of `completion` that was thought, not shown.")
    cost = serializers.RegexField(
        COST, allow_null=True, help_text="USD, as a decimal number; null, not 0, where the price is unknown."
    )
    unpriced = serializers.IntegerField(
        min_value=0, help_text="How many attempts used tokens at an unknown price: `cost` is without them."
    )


class UsageSerializer(TokensSerializer):
    """What one attempt used, or several together."""

    reported = serializers.BooleanField(
        help_text="False where a call was made and the provider reported no usage; of a sum: where that holds of any."
    )


class RunTotalsSerializer(TokensSerializer):
    """What a run used so far."""

    reported = serializers.BooleanField(
        required=False, help_text="False if the provider reported no usage of an attempt. Only where attempts are read."
    )


class IssueSerializer(serializers.Serializer[Any]):
    """What an audit found in the output of one attempt. Fields that the audit added stand beside these."""

    code = serializers.CharField(help_text="What kind of finding it is, for programs: `hex_format`.")
    severity = serializers.ChoiceField(_SEVERITIES, help_text="How much it matters.")
    description = serializers.CharField(help_text="What was found, for people and for the model that tries again.")
    audit = serializers.CharField(help_text="The audit that found it; empty where ToolFlow itself did.")
    path = serializers.CharField(
        allow_null=True, help_text="JSON pointer to the place in the output; empty for all of it, null for none."
    )
    context = serializers.DictField(  # type: ignore[assignment]  # declared fields don't stay on the class
        help_text="What else the audit said of it."
    )
    suggestions = serializers.ListField(child=serializers.CharField(), help_text="What would be right.")


class AttemptPlaceSerializer(serializers.Serializer[Any]):
    """Which attempt of a run something belongs to."""

    step = serializers.IntegerField(min_value=0, help_text="The step, from 1; 0 is the input.")
    number = serializers.IntegerField(min_value=1, help_text="Which try of the step, from 1.")
    url = serializers.URLField(help_text="Where the attempt is read.")


class FoundIssueSerializer(IssueSerializer):
    """An issue with its attempt."""

    attempt = AttemptPlaceSerializer(help_text="The attempt in whose output it was found.")


class AttemptErrorSerializer(serializers.Serializer[Any]):
    """Why an attempt is `errored`."""

    code = serializers.CharField(help_text="What kind of error it is, for programs.")
    message = serializers.CharField(help_text="What the provider or the network said.")
    status = serializers.IntegerField(allow_null=True, help_text="HTTP status of the provider’s answer.")
    retry_after = serializers.FloatField(allow_null=True, help_text="Seconds that the provider asked to wait.")


class AttemptSerializer(serializers.Serializer[Any]):
    """One try of a step: its output beside its own issues and its own usage."""

    step = serializers.IntegerField(min_value=0, help_text="The step, from 1; 0 is the input.")
    number = serializers.IntegerField(min_value=1, help_text="Which try of the step, from 1.")
    outcome = serializers.ChoiceField(OUTCOMES, allow_null=True, help_text="How it ended; null while it runs.")
    input = serializers.JSONField(help_text="The step’s input.")
    output = serializers.JSONField(help_text="The output after the sanitizer; null where no object came back.")
    raw_output = serializers.JSONField(
        help_text="What came back before the sanitizer, where that differs from `output`; text where it was no JSON."
    )
    issues = serializers.ListField(child=IssueSerializer(), help_text="What audits found in this output.")
    usage = UsageSerializer(
        required=False, allow_null=True, help_text="Null while it runs; left out with `usage=false`."
    )
    request = serializers.DictField(
        allow_null=True, help_text="The exact body that was sent to the model; null where none was called."
    )
    model = serializers.CharField(allow_null=True, help_text="The model that answered, as the provider names it.")
    response_id = serializers.CharField(allow_null=True, help_text="What the provider calls its answer.")
    finish_reason = serializers.CharField(allow_null=True, help_text="Why the model stopped, as the provider says.")
    error = AttemptErrorSerializer(allow_null=True, help_text="Why it is `errored`.")
    failure_reason = serializers.CharField(allow_null=True, help_text="Why it did not pass, as the step puts it.")
    plugins = serializers.DictField(
        child=serializers.CharField(), help_text="Fingerprints of the plug-ins that it used, by name."
    )
    started_at = serializers.DateTimeField(allow_null=True, help_text="UTC.")
    ended_at = serializers.DateTimeField(allow_null=True, help_text="UTC; null while it runs.")
    duration = serializers.FloatField(allow_null=True, help_text="Seconds; null while it runs.")
    url = serializers.URLField(help_text="Where it is read.")
    page_url = serializers.URLField(help_text="Where people see it.")


class StepSerializer(serializers.Serializer[Any]):
    """A step of a run with its attempts."""

    index = serializers.IntegerField(min_value=0, help_text="Its place, from 1; 0 is the input.")
    name = serializers.CharField(help_text="Its name in the flow.")
    outcome = serializers.ChoiceField(
        OUTCOMES, allow_null=True, help_text="How the attempt ended that decided so far; null if there is none."
    )
    attempts = serializers.ListField(
        child=AttemptSerializer(), required=False, help_text="In their order; left out with `attempts=none`."
    )
    url = serializers.URLField(help_text="Where it is read.")


class IssueCountsSerializer(serializers.Serializer[Any]):
    """How many issues there are of each severity."""

    low = serializers.IntegerField(min_value=0, help_text="Of low severity.")
    medium = serializers.IntegerField(min_value=0, help_text="Of medium severity.")
    high = serializers.IntegerField(min_value=0, help_text="Of high severity.")
    critical = serializers.IntegerField(min_value=0, help_text="Of critical severity.")


class BlockingSerializer(serializers.Serializer[Any]):
    """The attempt that decided against a run."""

    step = serializers.IntegerField(min_value=0, help_text="The step, from 1.")
    attempt = serializers.IntegerField(allow_null=True, help_text="The number of the attempt.")


class RunSummarySerializer(serializers.Serializer[Any]):
    """What is known of a run besides its input and its attempts."""

    id = serializers.IntegerField(min_value=1, help_text="The number of the run.")
    flow = serializers.CharField(help_text="The name of its flow.")
    version = serializers.IntegerField(min_value=1, help_text="The number of the flow’s version that it executes.")
    again_of = serializers.IntegerField(
        allow_null=True,
        help_text="The number of the run that it repeats, perhaps with other terms or another input. That one may have "
        "been deleted since. Null for a run that repeats none.",
    )
    status = serializers.ChoiceField(
        STATUSES,
        help_text="`failed`: an output never passed. `errored`: a fault of the machinery, such as a provider that is "
        "down, a budget that is used up or a time limit that is reached.",
    )
    end_reason = serializers.ChoiceField(
        list(EndReason.values), allow_null=True, help_text="Why it ended, for programs; null before."
    )
    end_sentence = serializers.CharField(allow_null=True, help_text="Why it ended, in a sentence; null before.")
    blocking = BlockingSerializer(allow_null=True, help_text="The attempt that decided against it.")
    waiting_for = serializers.CharField(allow_null=True, help_text="What a queued run waits for, in a sentence.")
    cancel_requested = serializers.BooleanField(help_text="Whether somebody asked to cancel it.")
    labels = serializers.ListField(child=serializers.CharField(), help_text="What whoever started it labelled it.")
    metadata = serializers.DictField(help_text="What whoever started it keeps with it.")
    priority = serializers.ChoiceField(_PRIORITIES, help_text="Which queued runs are taken up first.")
    is_simulated = serializers.BooleanField(help_text="Whether the simulated model answered; nothing is billed.")
    model_settings = serializers.DictField(help_text="What calls fall back to where a step says nothing.")
    token_budget = serializers.IntegerField(allow_null=True, help_text="Tokens that it may use.")
    cost_budget = serializers.RegexField(COST, allow_null=True, help_text="USD that it may cost.")
    time_limit = serializers.IntegerField(allow_null=True, help_text="Seconds that it may take from its start.")
    webhook_url = serializers.CharField(
        allow_null=True,
        help_text="Who is told when it has ended. Without the permission to start runs, or the scope for it, "
        "only the host is shown: the rest may hold a key.",
    )
    started_by = serializers.CharField(allow_null=True, help_text="The user who started it.")
    created_at = serializers.DateTimeField(help_text="UTC.")
    started_at = serializers.DateTimeField(allow_null=True, help_text="UTC; null while it is queued.")
    ended_at = serializers.DateTimeField(allow_null=True, help_text="UTC; null until it has ended.")
    duration = serializers.FloatField(allow_null=True, help_text="Seconds from its start to its end.")
    outputs_removed_at = serializers.DateTimeField(
        allow_null=True,
        help_text="UTC; since when retention has left only figures of it: inputs, outputs and requests are null, texts "
        "of issues and errors are empty. Null while all is there.",
    )
    step_count = serializers.IntegerField(min_value=0, help_text="Steps of the flow, without the input.")
    steps_passed = serializers.IntegerField(min_value=0, help_text="Steps that passed.")
    attempt_count = serializers.IntegerField(min_value=0, help_text="Attempts of all steps.")
    retry_count = serializers.IntegerField(
        min_value=0, help_text="Attempts with an output, less the first of each step."
    )
    issue_counts = IssueCountsSerializer(help_text="Issues of all attempts by severity, whatever `min_severity` is.")
    usage = RunTotalsSerializer(required=False, help_text="Of all attempts; left out with `usage=false`.")
    url = serializers.URLField(help_text="Where it is read.")
    page_url = serializers.URLField(help_text="Where people see it.")


class RunSerializer(RunSummarySerializer):
    """A run, whole."""

    input = serializers.JSONField(help_text="What it was started with; null once its outputs were removed.")
    steps = serializers.ListField(
        child=StepSerializer(), required=False, help_text="In their order; left out with `attempts=none`."
    )


class RunPageSerializer(PageSerializer):
    """A page of runs."""

    items = serializers.ListField(child=RunSummarySerializer(), help_text="The newest first.")


class StepPageSerializer(PageSerializer):
    """The steps of a run."""

    items = serializers.ListField(child=StepSerializer(), help_text="Step 0, the input, first.")


class AttemptPageSerializer(PageSerializer):
    """A page of attempts."""

    items = serializers.ListField(child=AttemptSerializer(), help_text="By step and number.")


class IssuePageSerializer(PageSerializer):
    """A page of issues."""

    items = serializers.ListField(child=FoundIssueSerializer(), help_text="By step, attempt and audit.")


class AttemptUsageSerializer(AttemptPlaceSerializer):
    """What one attempt used."""

    outcome = serializers.ChoiceField(OUTCOMES, allow_null=True, help_text="How it ended; null while it runs.")
    part = serializers.ChoiceField([FIRST, USEFUL, WASTED], help_text="Which of `parts` it belongs to.")
    model = serializers.CharField(allow_null=True, help_text="The model that answered.")
    usage = UsageSerializer(allow_null=True, help_text="Null while it runs.")


class StepUsageSerializer(serializers.Serializer[Any]):
    """What the attempts of one step used."""

    index = serializers.IntegerField(min_value=1, help_text="The step.")
    usage = UsageSerializer(help_text="Of all its attempts.")


class UsagePartsSerializer(serializers.Serializer[Any]):
    """What retries used, and whether they were worth it."""

    first = UsageSerializer(help_text="First attempts of steps.")
    useful = UsageSerializer(help_text="Retries of steps that passed in the end.")
    wasted = UsageSerializer(help_text="Retries of steps that did not pass, or not yet.")


class RunUsageSerializer(serializers.Serializer[Any]):
    """What a run used."""

    total = UsageSerializer(help_text="Of all attempts.")
    parts = UsagePartsSerializer(help_text="The same, split by what the attempts were.")
    steps = serializers.ListField(child=StepUsageSerializer(), help_text="Steps that have begun.")
    attempts = serializers.ListField(child=AttemptUsageSerializer(), help_text="By step and number.")
