"""What this installation has: worker processes, and the plug-ins that flows can name."""

from __future__ import annotations

import inspect
from typing import Any

from django.urls import URLPattern, path
from drf_spectacular.utils import OpenApiResponse
from rest_framework.request import Request

from flows import checks
from flows.engine import plugins
from flows.engine.errors import SpecError
from flows.engine.typed_output import schema_of_type
from flows.plugin_use import fetch_flow_uses
from runs.api.access import READ_FLOWS, READ_RUNS
from runs.api.base import ApiView, operation
from runs.api.present_state import describe_workers
from runs.api.schemas.installation import MissingPlugin, OutputType, PluginFunction, Plugins, Workers


class WorkerList(ApiView):
    """``/workers``"""

    @operation(
        "listWorkers",
        "List worker processes",
        tag="Installation",
        requires=READ_RUNS,
        answers={200: OpenApiResponse(Workers, "The workers.")},
    )
    def get(self, request: Request) -> Workers:
        """Those at work, those without a recent heartbeat, the queue, and the model providers: as on the page of the
        workers.
        """
        return Workers.model_validate(describe_workers())


class PluginList(ApiView):
    """``/plugins``"""

    @operation(
        "listPlugins",
        "List the plug-ins that flows can name",
        tag="Installation",
        requires=READ_FLOWS,
        answers={200: OpenApiResponse(Plugins, "The plug-ins.")},
    )
    def get(self, request: Request) -> Plugins:
        """Output types, audits and functions that Python modules register; names that flows use and that are not
        registered; and modules that could not be loaded.
        """
        registry = plugins.registry
        return Plugins(
            output_types=[_describe_type(one) for _, one in sorted(registry.output_types.items())],
            audits=[_describe_function(one) for _, one in sorted(registry.audits.items())],
            functions=[_describe_function(one) for _, one in sorted(registry.functions.items())],
            missing=[
                MissingPlugin.model_validate(
                    {
                        "kind": found.use.kind.replace(" ", "_"),
                        "name": found.use.name,
                        "flow": found.flow.name,
                        "place": found.use.place,
                        "is_live": found.is_live,
                    }
                )
                for found in fetch_flow_uses()
                if found.use.is_missing()
            ],
            problems=list(checks.plugin_errors),
        )


def _describe_type(known: plugins.OutputType) -> OutputType:
    schema, problems = None, []
    try:
        schema = schema_of_type(known.model)
    except SpecError as error:
        problems = [str(problem) for problem in error.problems]
    return OutputType(
        name=known.name,
        description=_read_docstring(known.model),
        has_audit=callable(getattr(known.model, "audit", None)),
        output_schema=schema,
        problems=problems,
    )


def _describe_function(known: plugins.PythonFunction) -> PluginFunction:
    return PluginFunction(
        name=known.name,
        description=_read_docstring(known.function),
        parameters=list(inspect.signature(known.function).parameters),
        is_async=known.is_async,
    )


def _read_docstring(thing: Any) -> str | None:
    # Its own: that of a base says nothing of it.
    text = thing.__dict__.get("__doc__") if isinstance(thing, type) else getattr(thing, "__doc__", None)
    return inspect.cleandoc(text) if text else None


urls: list[URLPattern] = [
    path("workers", WorkerList.as_view(), name="worker-list"),
    path("plugins", PluginList.as_view(), name="plugin-list"),
]
