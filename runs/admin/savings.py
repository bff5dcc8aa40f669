"""What limits of a step would have saved, beside their fields in the editor."""

from __future__ import annotations

from django.http import HttpRequest, JsonResponse
from django.urls import URLPattern, path
from django.views.decorators.http import require_POST

from flows.admin.access import require_permission
from flows.admin.flow_admin import FlowAdmin
from flows.admin.posted_json import get_number, get_text, read_posted_json, refuse_unreadable
from flows.engine.errors import SpecError
from flows.models import FlowVersion
from flows.throttle import limit_rate
from runs.backtests.savings import describe_savings, load_past_tries

REQUESTS_PER_MINUTE = 60
"""Of one user: the editor asks once for each step that is shown."""


def list_urls(flow_admin: FlowAdmin) -> list[URLPattern]:
    """The address of the sentences, below those of flows."""
    view = require_permission("flows.change_flow")(require_permission("runs.view_run")(savings_view))
    return [path("savings/", flow_admin.admin_site.admin_view(view), name="flows_flow_savings")]


@require_POST
@limit_rate("flow-savings", most=REQUESTS_PER_MINUTE, seconds=60)
@refuse_unreadable
def savings_view(request: HttpRequest) -> JsonResponse:
    """A sentence for each limit of a step; none for a step that the latest version doesn't have.

    Posted is ``{"flow", "step"}``, the step by its name.
    """
    posted = read_posted_json(request)
    flow_id, name = get_number(posted, "flow", most=2**31 - 1), get_text(posted, "step")
    version = FlowVersion.objects.filter(flow=flow_id).select_related("flow").first()
    try:
        steps = version.flow_spec.steps if version else ()
    except SpecError:
        steps = ()
    step = next((step for step in steps if step.name == name), None)
    if version is None or step is None or step.is_local:
        return JsonResponse({})
    return JsonResponse(describe_savings(step, load_past_tries(version.flow, name)))
