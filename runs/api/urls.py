"""Addresses of the API."""

from django.urls import re_path

from runs.api import documentation, fallback, flow_tools, flows, run_actions, run_events, runs, statistics

app_name = "api"

urlpatterns = [
    *runs.urls,
    *run_actions.urls,
    *run_events.urls,
    *flows.urls,
    *flow_tools.urls,
    *statistics.urls,
    *documentation.urls,
    # Last: what is not there is told in the API's own way, too.
    re_path(r"", fallback.show_nothing, name="nothing"),
]
