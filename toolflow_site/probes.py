"""Health probes and metrics, answered before anything that depends on who asks.

Load balancers, orchestrators and scrapers ask a host by its address, without TLS and without a session. Django refuses
names that it doesn't know and sends everybody to HTTPS; a probe needs neither, and its answers hold nothing to protect.
"""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

from runs.health import show_alive, show_ready
from runs.metrics.views import show_metrics

PROBES = {"/healthz": show_alive, "/readyz": show_ready, "/metrics": show_metrics}
"""By path who answers. Metrics want a token, and let nobody in otherwise."""


def answer_probes(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware: whoever asks for a probe gets its answer from here, under any name of the host."""

    def answer(request: HttpRequest) -> HttpResponse:
        probe = PROBES.get(request.path_info)
        return get_response(request) if probe is None else probe(request)

    return answer
