"""Addresses of runs and their parts: where each is read by scripts, and the page that shows it."""

from __future__ import annotations

from django.urls import reverse
from rest_framework.request import Request

from runs.api.access import START_RUNS, has_access


class RunLinks:
    """Absolute addresses of the host that was asked.

    ``has_address`` is whether the caller is shown the addresses of webhooks.
    """

    def __init__(self, request: Request) -> None:
        # Resolved once: to reverse the address of each attempt takes longer than to read it.
        self._runs = request.build_absolute_uri(reverse("api:run-list"))
        page = request.build_absolute_uri(reverse("runs:page", args=[0]))
        self._before, _, self._behind = page.rpartition("0")
        # A user who may give runs an address may know those of others; they may hold a key.
        self.has_address = has_access(request, START_RUNS)

    def link_run(self, run_id: int | str) -> str:
        """Where a run is read."""
        return f"{self._runs}/{run_id}"

    def link_page(self, run_id: int) -> str:
        """The page of a run."""
        return f"{self._before}{run_id}{self._behind}"

    def link_attempt(self, run_id: int, step: int, number: int) -> str:
        """Where an attempt is read."""
        return f"{self._runs}/{run_id}/steps/{step}/attempts/{number}"

    def link_step(self, run_id: int, index: int) -> str:
        """Where a step is read."""
        return f"{self._runs}/{run_id}/steps/{index}"

    def link_attempt_page(self, run_id: int, step: int, number: int) -> str:
        """Where people see an attempt; step 0 stands at the top of the page."""
        return self.link_page(run_id) + (f"#s{step}a{number}" if step else "")
