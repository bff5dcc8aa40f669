"""Addresses of the API."""

from django.urls import re_path

from runs.api import (
    backtests,
    bulk_actions,
    documentation,
    events,
    flow_settings,
    flow_tools,
    flow_versions,
    flows,
    installation,
    run_parts,
    runs,
    saved_views,
    statistics,
    webhooks,
)
from runs.api.base import show_nothing

app_name = "api"

urlpatterns = [
    *runs.urls,
    *run_parts.urls,
    *events.urls,
    *saved_views.urls,
    *bulk_actions.urls,
    *backtests.urls,
    *webhooks.urls,
    # Their addresses look like that of a flow.
    *flow_tools.urls,
    *flows.urls,
    *flow_versions.urls,
    *flow_settings.urls,
    *statistics.urls,
    *installation.urls,
    *documentation.urls,
    # Last: unknown addresses get a problem document, too.
    re_path(r"", show_nothing, name="nothing"),
]
