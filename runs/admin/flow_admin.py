"""The flow editor, with what it shows of runs: values of earlier ones to write against, and a try of a step."""

from __future__ import annotations

from django.urls import URLPattern

from flows.admin.flow_admin import FlowAdmin
from runs.try_out import earlier_values, panel


class RunningFlowAdmin(FlowAdmin):
    """``FlowAdmin`` with pages about runs."""

    def get_urls(self) -> list[URLPattern]:
        """The editor's addresses and those that read runs."""
        return [*earlier_values.list_urls(self), *panel.list_urls(self), *super().get_urls()]
