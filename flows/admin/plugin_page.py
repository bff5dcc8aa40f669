"""What plug-ins register, and where flows use it: a page of all, and marks on the flows that lack one."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from django.conf import settings
from django.contrib.admin import AdminSite
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe
from heroicons.templatetags.heroicons import heroicon_mini

from flows import checks
from flows.admin.access import require_permission
from flows.engine.errors import SpecError
from flows.engine.json_values import dump_json
from flows.engine.plugins import OutputType, PythonFunction, registry
from flows.engine.typed_output import schema_of_type
from flows.models import Flow
from flows.plugin_use import AUDIT, FUNCTION, KINDS, OUTPUT_TYPE, FlowUse, fetch_flow_uses, find_missing_names

USES_SHOWN = 30
"""Uses of one plug-in that are listed; the others are counted."""
FINGERPRINT_SHOWN = 8
"""Characters."""

_Uses = Mapping[tuple[str, str], Sequence[FlowUse]]
_Known = TypeVar("_Known", OutputType, PythonFunction)


@dataclass(frozen=True, slots=True)
class Plugin:
    """What the page shows of a registered thing, or of a name that is not registered."""

    kind: str
    name: str
    uses: Sequence[FlowUse] = ()
    description: str = ""
    """HTML."""
    parameters: str = ""
    place: str = ""
    fingerprint: str = ""
    schema: str = ""
    faults: Sequence[str] = ()
    """Why an output type can't be used."""

    @property
    def shown_uses(self) -> Sequence[FlowUse]:
        """The first ``USES_SHOWN``."""
        return self.uses[:USES_SHOWN]

    @property
    def more_uses(self) -> int:
        """How many are not shown."""
        return max(len(self.uses) - USES_SHOWN, 0)


def list_urls(site: AdminSite) -> list[URLPattern]:
    """The addresses of this module's views, below those of flows."""

    def show_plugins(request: HttpRequest) -> HttpResponse:
        context = {**site.each_context(request), **describe_plugins()}
        return TemplateResponse(request, "admin/flows/plugins.html", context)

    view = require_permission("flows.view_flow")(show_plugins)
    return [path("plugins/", site.admin_view(view), name="flows_flow_plugins")]


def describe_plugins() -> dict[str, Any]:
    """What the page shows. One query, however much flows use."""
    uses: dict[tuple[str, str], list[FlowUse]] = {}
    for use in fetch_flow_uses():
        uses.setdefault((use.use.kind, use.use.name), []).append(use)
    missing = [Plugin(kind, name, found) for (kind, name), found in uses.items() if found[0].use.is_missing()]
    types = [_describe_type(known, uses) for known in _sort(registry.output_types)]
    audits = [_describe_function(AUDIT, known, uses) for known in _sort(registry.audits)]
    functions = [_describe_function(FUNCTION, known, uses) for known in _sort(registry.functions)]
    return {
        "title": "Plug-ins",
        "opts": Flow._meta,
        "modules": settings.TOOLFLOW_PLUGINS,
        "errors": checks.plugin_errors,
        "missing": sorted(missing, key=lambda plugin: (KINDS.index(plugin.kind), plugin.name)),
        "sections": [
            ("Output types", "A step names one as its output type, by the name alone.", types),
            ("Audits", "The rule of an audit names one as python:name.", audits),
            ("Functions", "Every other field for an expression names one as python:name.", functions),
        ],
    }


def format_docstring(thing: Any) -> SafeString:
    """The docstring of a function or class, its own and not that of its base, as HTML; empty if it has none."""
    text = thing.__dict__.get("__doc__") if isinstance(thing, type) else getattr(thing, "__doc__", None)
    html = re.sub("``(.+?)``|`(.+?)`", r"<code>\1\2</code>", escape(inspect.cleandoc(text or "")))
    return mark_safe(html)  # noqa: S308  # escaped, and then marked up here


def mark_missing(flow: Flow) -> SafeString | None:
    """For the list of flows: the plug-ins of the live version that are not registered. No query if it is loaded."""
    version = flow.live_version
    missing = find_missing_names(version) if version is not None else []
    if not missing:
        return None
    names = ", ".join(dict.fromkeys(use.what for use in missing))
    icon = mark_safe(heroicon_mini("exclamation-triangle", size=16, aria_hidden="true"))  # noqa: S308  # SVG of a package
    return format_html('<span class="state tone-failed" title="{}">{}Plug-in missing</span>', f"Missing: {names}", icon)


def _sort(known: Mapping[str, _Known]) -> list[_Known]:
    return [known[name] for name in sorted(known)]


def _describe_type(known: OutputType, uses: _Uses) -> Plugin:
    schema, faults = "", []
    try:
        schema = dump_json(schema_of_type(known.model), indent=2)
    except SpecError as error:
        faults = [str(problem) for problem in error.problems]
    return Plugin(
        kind=OUTPUT_TYPE,
        name=known.name,
        uses=uses.get((OUTPUT_TYPE, known.name), ()),
        description=format_docstring(known.model),
        parameters="Has an audit of its own." if callable(getattr(known.model, "audit", None)) else "",
        place=_locate(known.model),
        fingerprint=known.fingerprint[:FINGERPRINT_SHOWN],
        schema=schema,
        faults=faults,
    )


def _describe_function(kind: str, known: PythonFunction, uses: _Uses) -> Plugin:
    return Plugin(
        kind=kind,
        name=known.name,
        uses=uses.get((kind, known.name), ()),
        description=format_docstring(known.function),
        parameters=f"{'async ' if known.is_async else ''}({', '.join(_list_parameters(known.function))})",
        place=_locate(known.function),
        fingerprint=known.fingerprint[:FINGERPRINT_SHOWN],
    )


def _list_parameters(function: Callable[..., Any]) -> Iterator[str]:
    for parameter in inspect.signature(function).parameters.values():
        # What types they have is more than there is room for.
        yield str(parameter.replace(annotation=parameter.empty))


def _locate(thing: Any) -> str:
    """The dotted name of a function or class; of a callable object, that of its class."""
    while isinstance(thing, partial):
        thing = thing.func
    origin = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{origin.__module__}.{origin.__qualname__}"
