"""What this installation has: worker processes, and the plug-ins that flows can name."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, ClassVar

from django.urls import URLPattern, path
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from flows import checks
from flows.engine.errors import SpecError
from flows.engine.plugins import OutputType, PythonFunction, registry
from flows.engine.typed_output import schema_of_type
from flows.plugin_use import FlowUse, fetch_flow_uses
from runs.api.access import SEE_FLOWS, SEE_RUNS, Need
from runs.api.installation_schema import TAGS, PluginsSerializer, WorkersSerializer
from runs.api.present_state import describe_workers
from runs.api.view import ApiView


class WorkersView(ApiView):
    """The workers."""

    needs: ClassVar[Mapping[str, Need]] = {"GET": SEE_RUNS}

    @extend_schema(
        operation_id="listWorkers",
        tags=TAGS,
        summary="List worker processes",
        description="Those that are at work, those that were not heard of lately, the queue, and the model providers: "
        "as on the page of the workers.",
        responses={200: OpenApiResponse(WorkersSerializer, "The workers.")},
    )
    def get(self, request: Request) -> Response:
        """The workers and the queue."""
        return Response(describe_workers())


class PluginsView(ApiView):
    """The plug-ins."""

    needs: ClassVar[Mapping[str, Need]] = {"GET": SEE_FLOWS}

    @extend_schema(
        operation_id="listPlugins",
        tags=TAGS,
        summary="List the plug-ins that flows can name",
        description="Output types, audits and functions that Python modules register; names that flows use and nobody "
        "registers; and modules that could not be loaded.",
        responses={200: OpenApiResponse(PluginsSerializer, "The plug-ins.")},
    )
    def get(self, request: Request) -> Response:
        """All that is registered, and all that is missing."""
        return Response(
            {
                "output_types": [_describe_type(one) for _, one in sorted(registry.output_types.items())],
                "audits": [_describe_function(one) for _, one in sorted(registry.audits.items())],
                "functions": [_describe_function(one) for _, one in sorted(registry.functions.items())],
                "missing": [_describe_use(one) for one in fetch_flow_uses() if one.use.is_missing()],
                "problems": list(checks.plugin_errors),
            }
        )


def _describe_type(known: OutputType) -> dict[str, Any]:
    schema, problems = None, []
    try:
        schema = schema_of_type(known.model)
    except SpecError as error:
        problems = [str(problem) for problem in error.problems]
    return {
        "name": known.name,
        "description": _read_docstring(known.model),
        "has_audit": callable(getattr(known.model, "audit", None)),
        "output_schema": schema,
        "problems": problems,
    }


def _describe_function(known: PythonFunction) -> dict[str, Any]:
    return {
        "name": known.name,
        "description": _read_docstring(known.function),
        "parameters": list(inspect.signature(known.function).parameters),
        "is_async": known.is_async,
    }


def _describe_use(found: FlowUse) -> dict[str, Any]:
    return {
        "kind": found.use.kind.replace(" ", "_"),
        "name": found.use.name,
        "flow": found.flow.name,
        "place": found.use.place,
        "is_live": found.is_live,
    }


def _read_docstring(thing: Any) -> str | None:
    """Its own; that of a base says nothing of it."""
    text = thing.__dict__.get("__doc__") if isinstance(thing, type) else getattr(thing, "__doc__", None)
    return inspect.cleandoc(text) if text else None


urls: list[URLPattern] = [
    path("workers", WorkersView.as_view(), name="worker-list"),
    path("plugins", PluginsView.as_view(), name="plugin-list"),
]
