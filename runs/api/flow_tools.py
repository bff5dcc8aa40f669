"""What helps to write flows: check a definition, see the request of a step, and have an output audited."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, ClassVar

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import URLPattern, path
from drf_spectacular.utils import extend_schema
from rest_framework import exceptions
from rest_framework.request import Request
from rest_framework.response import Response

from flows.engine.history import Issue
from flows.engine.plugins import registry
from flows.models import Flow
from flows.portability import plan_load
from flows.providers import find_flow_warnings
from flows.throttle import count_request
from runs.api.access import CHANGE_FLOWS, SEE_FLOWS
from runs.api.flow_reading import FlowJSONParser, FlowYAMLParser, read_flow_body
from runs.api.flow_trial import read_audited_output, read_trial
from runs.api.flows import FlowView
from runs.api.flows_schema import (
    FLOW_BODY,
    TAGS,
    PreviewAnswerSerializer,
    PreviewSerializer,
    TryAuditsSerializer,
    ValidFlowSerializer,
    VerdictSerializer,
)
from runs.api.schema_parts import problem_responses
from runs.api.view import ApiView
from runs.try_out.trial import Trial

TRIES_A_MINUTE = 60
"""Of one user, together with those in the editor: expressions and plug-ins may take long."""


class ValidateView(ApiView):
    """Checks flows.

    Nothing is stored, no expression is evaluated and no plug-in is called: so it takes no more than reading, and a
    token with which somebody’s pull request is checked can’t change anything.
    """

    needs: ClassVar[Any] = {"POST": SEE_FLOWS}
    parser_classes: Any = (FlowJSONParser, FlowYAMLParser)

    @extend_schema(
        operation_id="validateFlow",
        tags=TAGS,
        summary="Check a flow without saving it",
        description="By the same rules by which it would be stored. All mistakes are told at once. A token with the "
        "scope `read` is enough: a pipeline needs no other one to check what is only proposed.",
        request=FLOW_BODY,
        responses={200: ValidFlowSerializer, **problem_responses(400, 401, 403, 413, 415, 422)},
    )
    def post(self, request: Request) -> Response:
        """Check the flow in the body."""
        plan = plan_load(read_flow_body(request))
        doubts = find_flow_warnings(plan.spec)
        return Response(
            {
                "valid": True,
                "name": plan.spec.name,
                "digest": plan.spec.digest,
                "would_make_version": None if plan.is_unchanged else plan.number,
                "warnings": [{"detail": doubt.message, "pointer": doubt.path} for doubt in doubts],
            }
        )


class _TryingView(ApiView):
    """Tries a step. The editor's tries and these share one limit.

    Whoever tries has this server evaluate their expressions and call its plug-ins with values of their choice, which
    takes what saving a flow takes.
    """

    needs: ClassVar[Any] = {"POST": CHANGE_FLOWS}

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Let nobody through who may not, or who tries too often."""
        super().initial(request, *args, **kwargs)
        wait = count_request("try", request.user.pk, most=TRIES_A_MINUTE, seconds=60, now=time.time())
        if wait:
            raise exceptions.Throttled(wait)


class PreviewView(_TryingView):
    """Shows requests."""

    @extend_schema(
        operation_id="previewFlowStep",
        tags=TAGS,
        summary="See the request of a step",
        description="The exact request that the next attempt of a step would send, or what a local step computes. "
        "No model is called, and nothing is stored.",
        request=PreviewSerializer,
        responses={200: PreviewAnswerSerializer, **problem_responses(400, 401, 403, 413, 415, 422, 429)},
    )
    def post(self, request: Request) -> Response:
        """Build the request."""
        trial, _ = read_trial(request, PreviewSerializer)
        found = trial.preview(registry)
        return Response(
            {
                **_describe_trial(trial),
                "request": found.request,
                "output": found.output,
                "issues": _describe_issues(found.notes),
                "problem": found.problem or None,
            }
        )


class TryAuditsView(_TryingView):
    """Audits outputs."""

    @extend_schema(
        operation_id="tryFlowAudits",
        tags=TAGS,
        summary="Have an output audited",
        description="What an attempt of a step would make of an output: its issues, and whether it passes. "
        "No model is called, and nothing is stored.",
        request=TryAuditsSerializer,
        responses={200: VerdictSerializer, **problem_responses(400, 401, 403, 413, 415, 422, 429)},
    )
    def post(self, request: Request) -> Response:
        """Audit the output."""
        trial, values = read_trial(request, TryAuditsSerializer)
        attempt, audits = trial.judge(read_audited_output(trial, values), registry)
        return Response(
            {
                **_describe_trial(trial),
                "outcome": attempt.outcome.value,
                "output": attempt.output,
                "raw_output": attempt.raw_output,
                "failure_reason": attempt.failure_reason or None,
                "issues": _describe_issues(attempt.issues),
                "audits": audits,
            }
        )


def _describe_trial(trial: Trial) -> dict[str, Any]:
    return {"step": trial.index, "name": trial.step.name, "notes": list(trial.notes)}


def _describe_issues(issues: Iterable[Issue]) -> list[dict[str, Any]]:
    return [issue.model_dump(mode="json") for issue in issues]


class _NamesakeView(FlowView):
    """The flow that has the name of a tool. Without one the address takes only what is for the tool."""

    @property
    def allowed_methods(self) -> list[str]:
        """Those of the tool, as long as no flow was found: anonymous clients see no more."""
        return ["POST"]

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Find out who asks, then whether there is such a flow; strangers make nobody look for it."""
        self.perform_authentication(request)
        if request.user.is_authenticated:
            if not Flow.objects.filter(name=kwargs["name"]).exists():
                raise exceptions.MethodNotAllowed(str(request.method))
            self.headers["Allow"] = ", ".join([*super().allowed_methods, "POST"])
        super().initial(request, *args, **kwargs)


def _share_address(tool: type[ApiView], name: str) -> Callable[..., HttpResponseBase]:
    """The view of an address that is a tool's and, if a flow has its name, that flow's."""
    use_tool, use_flow = tool.as_view(), _NamesakeView.as_view()

    @wraps(use_tool)
    def answer(request: HttpRequest) -> HttpResponseBase:
        return use_tool(request) if request.method == "POST" else use_flow(request, name=name)

    return answer


_TOOLS: dict[str, type[ApiView]] = {"validate": ValidateView, "preview": PreviewView, "try-audits": TryAuditsView}
urls: list[URLPattern] = [
    *(path(f"flows/{name}", _share_address(tool, name), name=f"flow-{name}") for name, tool in _TOOLS.items()),
    path("flows/<slug:name>", FlowView.as_view(), name="flow"),
]
