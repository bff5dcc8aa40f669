"""``/metrics`` for Prometheus."""

from __future__ import annotations

from http import HTTPStatus

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from runs.measuring.access import is_allowed


@require_safe
@never_cache
def show_metrics(request: HttpRequest) -> HttpResponse:
    """The metrics for whoever brings the token; nothing is here where none is set."""
    token = settings.TOOLFLOW_METRICS_TOKEN
    if not token:
        raise Http404
    if not is_allowed(request.headers.get("Authorization"), token=token):
        return HttpResponse(
            "The token is missing or wrong.\n",
            status=HTTPStatus.UNAUTHORIZED,
            headers={"WWW-Authenticate": 'Bearer realm="metrics"'},
            content_type="text/plain; charset=utf-8",
        )
    # Loaded only where metrics are read.
    from runs.metrics.scrape import write_metrics

    content, content_type = write_metrics(accept=request.headers.get("Accept", ""))
    return HttpResponse(content, content_type=content_type)
