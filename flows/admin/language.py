"""What there is to write a flow with: variables, functions and plug-ins of expressions, types, and models."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.contrib.admin import AdminSite
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import URLPattern, path, reverse
from django.views.decorators.http import require_safe

from flows.admin.access import require_permission
from flows.engine.expression_functions import FUNCTIONS
from flows.engine.expressions import FIELD_VARIABLES
from flows.engine.history import Severity
from flows.engine.model_families import COMPATIBLE_FAMILY, NEWER_FAMILY, ReasoningEffort, TemperatureRule
from flows.engine.plugins import PREFIX, PythonFunction, registry
from flows.engine.pricing import Rates, find_rates, list_priced_models
from flows.engine.providers import UnsupportedCallError
from flows.engine.redaction import PATTERNS
from flows.engine.spec import DEFAULT_RETRY_WINDOW, MAX_AUDITS, MAX_STEPS, ServiceTier
from flows.providers import build_providers, list_providers

MAX_MODEL_LENGTH = 200
OTHER_USES = {
    *("image", "audio", "realtime", "transcribe", "tts", "search", "instruct", "vision", "translate", "whisper"),
    *("research", "api", "extended", "ft"),
}
"""Parts of the names of models that can't be called for an output."""

PAGES = ("check", "schema", "language", "values", "try", "judge", "savings")
"""What the editor's scripts ask."""

GIVES = {
    "input_expression": "a map: the input of this step",
    "compute": "a map: the output of this step",
    "input_sanitizer": "a map: the input that is used",
    "output_sanitizer": "a map: the output that is validated, audited and passed on",
    "for_each": "a list: the rule is asked of each item of it",
    "rule": "true or false, or a list with one element for each issue",
    "message": "text: what is wrong",
    "suggestions": "text, or a list of texts: how to fix it",
    "path": "text: a JSON pointer to the place in the output, such as '/total'",
    "pass_expression": "true or false: whether the output passes",
    "failure_reason_expression": "text: why the output did not pass",
}
"""What the expression of each field must give."""

EFFORT_WORDS = {ReasoningEffort.NONE: "None", ReasoningEffort.XHIGH: "Extra high"}

VARIABLES = {
    "item": "the element of the list that the issue is about",
    "index": "its place in the list of “For each”, from 0",
    "output": "the output of this step",
    "value": "what the sanitizer changes",
    "issues": "what the audits found in the output",
    "previous": "the output of the step before; in a local step the step’s input",
    "input": "the input of the run",
    "steps": "the input, steps[0], and the steps before this one",
}
"""What each variable of an expression is, in the order in which they are shown."""


def list_urls(site: AdminSite) -> list[URLPattern]:
    """The addresses of this module's views, below those of flows."""
    guarded = require_permission("flows.view_flow")(show_language)
    return [path("language/", site.admin_view(guarded), name="flows_flow_language")]


@require_safe
def show_language(request: HttpRequest) -> HttpResponse:
    """What there is to write a flow with: what each field must give, its variables, all functions, and the models.

    With ``model`` in the query: what that model costs on each tier, and what its family refuses.
    """
    if model := request.GET.get("model", "")[:MAX_MODEL_LENGTH]:
        return JsonResponse(describe_model(model))
    answer = {
        "fields": {
            field: {"gives": GIVES[field], "variables": [name for name in VARIABLES if name in available]}
            for field, available in FIELD_VARIABLES.items()
        },
        "variables": VARIABLES,
        "functions": [{"usage": usage, "gives": gives} for usage, gives in FUNCTIONS.values()],
        "audits": _describe_plugins(registry.audits),
        "python_functions": _describe_plugins(registry.functions),
        "models": list_models(),
    }
    return JsonResponse(answer)


def describe_editor() -> dict[str, Any]:
    """What the editor needs from the start: addresses, bounds, and what can be chosen."""
    providers = build_providers()
    return {
        "urls": {name: reverse(f"admin:flows_flow_{name}") for name in PAGES},
        "max_steps": MAX_STEPS,
        "max_audits": MAX_AUDITS,
        "default_model": settings.TOOLFLOW_MODEL,
        "providers": sorted(providers.named),
        "types": sorted(registry.output_types),
    }


def list_models() -> list[dict[str, str]]:
    """The models of the providers that the price list and the table of families know, each with its price in words."""
    listed = []
    for provider in list_providers():
        for name in list_priced_models(provider):
            family = provider.find_family(name)
            if family in (NEWER_FAMILY, COMPATIBLE_FAMILY) or OTHER_USES & set(re.split(r"[-.:]", name)):
                continue
            words = _describe_rates(find_rates(name, provider=provider))
            listed.append({"name": f"{provider.name}:{name}" if provider.name else name, "price": words})
    return listed


def describe_model(model: str) -> dict[str, Any]:
    """What a model costs, by tier, and which efforts and temperatures its family refuses, in sentences."""
    try:
        provider, name = build_providers().split(model)
    except UnsupportedCallError as error:
        return {"model": model, "note": str(error), "tiers": {}, "efforts": {}, "temperature": ""}
    family = provider.find_family(name)
    rates = {tier: find_rates(name, provider=provider, service_tier=tier) for tier in ("", *ServiceTier)}
    refused = f"{family.name} does not take it" if family.efforts else f"{family.name} takes no effort"
    is_known = family not in (NEWER_FAMILY, COMPATIBLE_FAMILY)
    temperatures = {
        TemperatureRule.NEVER: f"{family.name} takes no temperature.",
        TemperatureRule.WITHOUT_REASONING: f"{family.name} takes a temperature only with the effort “none”.",
    }
    return {
        "model": model,
        "note": provider.find_problem() or "",
        "tiers": {tier: _describe_rates(found) for tier, found in rates.items()},
        "efforts": {effort: refused for effort in ReasoningEffort if is_known and effort not in family.efforts},
        "temperature": temperatures.get(family.temperature, ""),
    }


def _describe_rates(rates: Rates | None) -> str:
    if rates is None or rates.prompt is None or rates.completion is None:
        return ""
    return f"${_format_price(rates.prompt)} in, ${_format_price(rates.completion)} out"


def _format_price(price: Decimal) -> str:
    """At least cents: ``0.25``, ``1.00``, ``0.075``."""
    whole, _, places = f"{price.normalize():f}".partition(".")
    return f"{whole}.{places.ljust(2, '0')}"


def describe_choices() -> dict[str, Any]:
    """What the fields of the page let choose, as value and word, and what their helps name."""
    severities = [(one.value, one.value.capitalize()) for one in Severity]
    return {
        "choices": {
            "severities": severities,
            "fail_at": [("", "Own severity"), *severities, ("never", "Never")],
            "efforts": [(one.value, EFFORT_WORDS.get(one, one.value.capitalize())) for one in ReasoningEffort],
            "tiers": [(one.value, one.value.capitalize()) for one in ServiceTier],
            "exhausted": [("fail", "It has failed"), ("accept_best", "Accept the best output")],
            "failures": [("true", "Stop the run"), ("false", "Go on, mark as failed")],
        },
        "retry_window": DEFAULT_RETRY_WINDOW,
        "default_model": settings.TOOLFLOW_MODEL,
        "redact_help": "From everything stored of a run, one rule a line: a JSON pointer into input and outputs, such "
        f"as /customer/email, or one of {', '.join(PATTERNS)}.",
    }


def _describe_plugins(functions: Mapping[str, PythonFunction]) -> list[dict[str, str]]:
    return [
        {"usage": f"{PREFIX}{name}", "gives": (inspect.getdoc(functions[name].function) or "").partition("\n")[0]}
        for name in sorted(functions)
    ]
