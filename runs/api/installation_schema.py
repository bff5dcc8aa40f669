"""How the OpenAPI document describes what an installation has."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from flows.engine.providers import Api
from flows.plugin_use import KINDS
from runs.api.overview_schema import QueueFiguresSerializer
from runs.api.statistics_schema import make_count

TAGS = ["Installation"]

WORKER_STATES = ["working", "stopping", "silent"]


def _make_length(help_text: str) -> serializers.FloatField:
    return serializers.FloatField(min_value=0, help_text=help_text)


class WorkerSerializer(serializers.Serializer[Any]):
    """A worker process, as it was last heard of."""

    host = serializers.CharField(help_text="The name of its machine.")
    pid = serializers.IntegerField(help_text="The number of its process.")
    version = serializers.CharField(help_text="The version of ToolFlow that it runs.")
    status = serializers.ChoiceField(
        WORKER_STATES, help_text="`stopping` takes no more runs; `silent` was not heard of lately."
    )
    slots = make_count("Runs that it may have under way.")
    in_flight = make_count("Runs that it has under way.")
    running_for = _make_length("Seconds from its start until it was last heard of.")
    silent_for = _make_length("Seconds since it was last heard of.")


class ProviderSerializer(serializers.Serializer[Any]):
    """A server that models are asked at, as this web server is configured."""

    name = serializers.CharField(
        allow_null=True, help_text="What stands before the colon in `provider:model`; null for the default provider."
    )
    host = serializers.CharField(allow_null=True, help_text="Its host and port; null for the simulated model.")
    api = serializers.ChoiceField(
        [api.value for api in Api], help_text="`auto` takes the Responses API only for models at OpenAI that need it."
    )
    is_simulated = serializers.BooleanField(help_text="Whether the simulated model answers; nothing is billed.")
    problem = serializers.CharField(allow_null=True, help_text="Why it can’t be called, if it can’t: no usable key.")


class WorkersSerializer(serializers.Serializer[Any]):
    """The workers, the queue and the model providers."""

    items = serializers.ListField(child=WorkerSerializer(), help_text="The worker processes.")
    queue = QueueFiguresSerializer(help_text="Runs that are queued.")
    providers = serializers.ListField(child=ProviderSerializer(), help_text="The default one first.")


class PluginFunctionSerializer(serializers.Serializer[Any]):
    """An audit or a function; an expression names it as `python:` and its name."""

    name = serializers.CharField(help_text="What flows call it by.")
    description = serializers.CharField(allow_null=True, help_text="What its author says of it.")
    parameters = serializers.ListField(child=serializers.CharField(), help_text="The variables that it takes.")
    is_async = serializers.BooleanField(help_text="Whether it is a coroutine.")


class OutputTypeSerializer(serializers.Serializer[Any]):
    """A type that outputs of a step are built from; a step names it as its `output_type`."""

    name = serializers.CharField(help_text="What flows call it by.")
    description = serializers.CharField(allow_null=True, help_text="What its author says of it.")
    has_audit = serializers.BooleanField(help_text="Whether it audits outputs by itself.")
    output_schema = serializers.DictField(allow_null=True, help_text="JSON Schema of its outputs.")
    problems = serializers.ListField(child=serializers.CharField(), help_text="Why it can’t be used, if it can’t.")


class MissingPluginSerializer(serializers.Serializer[Any]):
    """A name that a flow uses and nobody registers."""

    kind = serializers.ChoiceField([kind.replace(" ", "_") for kind in KINDS], help_text="What it should be.")
    name = serializers.CharField(help_text="The name.")
    flow = serializers.CharField(help_text="The name of the flow.")
    place = serializers.CharField(help_text="Where in the flow, in words.")
    is_live = serializers.BooleanField(help_text="Whether the live version uses it; else only what is being edited.")


class PluginsSerializer(serializers.Serializer[Any]):
    """What plug-ins register."""

    output_types = serializers.ListField(child=OutputTypeSerializer(), help_text="By name.")
    audits = serializers.ListField(child=PluginFunctionSerializer(), help_text="By name.")
    functions = serializers.ListField(child=PluginFunctionSerializer(), help_text="By name.")
    missing = serializers.ListField(child=MissingPluginSerializer(), help_text="By the titles of flows.")
    problems = serializers.ListField(child=serializers.CharField(), help_text="Modules that could not be loaded.")
