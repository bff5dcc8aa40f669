"""The page of the workers, the queue and the model providers. The first two keep up to date, part by part."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.views.decorators.http import require_safe

from flows.providers import describe_providers
from runs.pages.access import require_permission
from runs.statistics.queue_state import MAX_SHOWN, QueueState, fetch_queue_state

PARTS = ("notice", "figures", "table")
"""What is replaced on its own when it changes; each has a template and an element of that name."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the page as HTML. ``digest`` tells whether it is the one that a reader has."""

    name: str
    html: str

    @property
    def digest(self) -> str:
        return hashlib.blake2s(self.html.encode(), digest_size=6).hexdigest()


@require_safe
@require_permission("runs.view_run")
def show_workers(request: HttpRequest) -> HttpResponse:
    """The workers, the queue and the model providers."""
    parts = _render_parts(fetch_queue_state(limit=MAX_SHOWN))
    context = {"parts": {part.name: part for part in parts}, "seen": _name(parts), "providers": describe_providers()}
    return render(request, "runs/workers.html", context)


@require_safe
@require_permission("runs.view_run")
def show_worker_changes(request: HttpRequest) -> HttpResponse:
    """The parts that changed since those that ``seen`` names by their digests. 204 if none did."""
    seen = request.GET.get("seen", "")
    if not re.fullmatch(r"[0-9a-f]{12}(\.[0-9a-f]{12}){2}", seen):
        return HttpResponse("Ask with ?seen=DIGEST.DIGEST.DIGEST.", status=400, content_type="text/plain")
    parts = _render_parts(fetch_queue_state(limit=MAX_SHOWN))
    changed = [part for part, known in zip(parts, seen.split("."), strict=True) if part.digest != known]
    if not changed:
        return HttpResponse(status=204)
    return render(request, "runs/workers_live.html", {"changed": changed, "seen": _name(parts)})


def _render_parts(found: QueueState) -> tuple[Part, ...]:
    context = {
        "found": found,
        "alive": sum(worker.state != "silent" for worker in found.workers),
        "silent": sum(worker.state == "silent" for worker in found.workers),
    }
    return tuple(Part(name, render_to_string(f"runs/workers_{name}.html", context)) for name in PARTS)


def _name(parts: tuple[Part, ...]) -> str:
    return ".".join(part.digest for part in parts)
