"""How the answer about what goes on now is described in the OpenAPI document."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from runs.api.statistics_schema import (
    RunFiguresSerializer,
    make_cost,
    make_count,
    make_mean,
    make_rate,
    make_seconds,
    make_unpriced,
)


class RunningRunSerializer(serializers.Serializer[Any]):
    """A run under way."""

    id = serializers.IntegerField(min_value=1, help_text="Its number.")
    flow = serializers.CharField(help_text="Name of the flow.")
    version = serializers.IntegerField(min_value=1, help_text="Number of the version.")
    started_at = serializers.DateTimeField(allow_null=True, help_text="When it was started, UTC.")
    steps_passed = make_count("Steps that passed so far.")
    step_count = make_count("Steps of the flow.")


class RunningFiguresSerializer(serializers.Serializer[Any]):
    """Runs under way."""

    count = make_count("How many there are; counted up to 1,000.")
    items = RunningRunSerializer(many=True, help_text="The newest 20.")


class QueueFiguresSerializer(serializers.Serializer[Any]):
    """Runs that are queued."""

    ready = make_count("Runs that a worker may take at once.")
    later = make_count("Runs that are to begin at a later time.")
    waiting = make_count("Runs that wait for something else, such as a limit or a wait between attempts.")
    oldest_ready = make_mean("Seconds that the oldest of the ready runs has been ready; null if there is none.")
    is_unattended = serializers.BooleanField(help_text="Runs are ready, and no worker is alive that could take them.")


class WorkersFiguresSerializer(serializers.Serializer[Any]):
    """Worker processes."""

    alive = make_count("Those that were heard of lately.")
    silent = make_count("Those that were not.")
    slots = make_count("Runs that the workers alive may have under way.")
    in_flight = make_count("Runs that they had under way when they were last heard of.")


class TodayFiguresSerializer(serializers.Serializer[Any]):
    """Runs that ended today so far."""

    day = serializers.DateField(help_text="Today, UTC.")
    runs = RunFiguresSerializer(help_text="Counts, rates and durations.")
    tokens = make_count("Their tokens.")
    cost = make_cost("Their cost")
    unpriced = make_unpriced()


class MedianFiguresSerializer(serializers.Serializer[Any]):
    """The medians of those of the 7 days before today on which any run ended."""

    days = make_count("How many days these are.")
    runs = make_count("Runs of a day.")
    pass_rate = make_rate("Runs of a day that succeeded")
    first_attempt_pass_rate = make_rate("Runs of a day that succeeded without any retry")
    duration_p50 = make_seconds("Seconds that half of the runs of a day took at most")
    duration_p95 = make_seconds("Seconds that 95 of 100 runs of a day took at most")
    tokens = make_count("Tokens of a day.")
    cost = make_cost("Cost of a day")
    unpriced = make_unpriced()


class OverviewSerializer(serializers.Serializer[Any]):
    """What goes on now, and today beside the 7-day median."""

    now = serializers.DateTimeField(help_text="When this was answered, UTC.")
    running = RunningFiguresSerializer(help_text="Runs under way, simulated and real ones.")
    queue = QueueFiguresSerializer(help_text="Runs that are queued, simulated and real ones.")
    workers = WorkersFiguresSerializer(help_text="Worker processes.")
    is_simulated = serializers.BooleanField(help_text="Whether `today` and `median` are of simulated runs.")
    today = TodayFiguresSerializer(help_text="What ended today so far; runs count within seconds of their end.")
    median = MedianFiguresSerializer(
        allow_null=True, help_text="The median day of the 7 before; null where no run ended on any of them."
    )
