"""Addresses of the API."""

from django.contrib.auth.decorators import login_required
from django.urls import path, re_path
from django.views.decorators.http import require_safe

from runs.api.audit_log import AuditLog
from runs.api.backtests import Backtests
from runs.api.base import build_urls, show_nothing
from runs.api.bulk_actions import BulkActions
from runs.api.documentation import ReferenceView, SchemaView
from runs.api.events import RunEventStreams
from runs.api.exports import RunExports
from runs.api.flow_tools import FlowCheck, FlowTools
from runs.api.flow_versions import FlowVersionDetail, FlowVersions
from runs.api.flows import Flows, FlowStates
from runs.api.installation import Installation
from runs.api.run_parts import PartsOfRuns
from runs.api.runs import Runs
from runs.api.saved_views import SavedViews
from runs.api.statistics import Statistics
from runs.api.webhook_deliveries import WebhookDeliveries
from runs.api.webhooks import WebhookEndpoints

app_name = "api"

urlpatterns = [
    *build_urls(Runs, PartsOfRuns, RunEventStreams, RunExports),
    *build_urls(BulkActions, SavedViews, Backtests, WebhookEndpoints, WebhookDeliveries),
    # Their addresses look like that of a flow.
    *build_urls(FlowTools, FlowCheck),
    *build_urls(Flows, FlowStates, FlowVersions, FlowVersionDetail),
    *build_urls(Statistics, Installation, AuditLog, SchemaView),
    path("docs", require_safe(login_required(ReferenceView.as_view())), name="docs"),
    # Last: unknown addresses get a problem document, too.
    re_path(r"", show_nothing, name="nothing"),
]
