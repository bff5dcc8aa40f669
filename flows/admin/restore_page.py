"""The page that asks whether an earlier version should be restored, and does it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.contrib.admin import AdminSite
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.urls import reverse

from flows.admin.posted_json import read_note
from flows.admin.version_rows import describe_new_version, list_versions, render_page
from flows.engine.differences import compare_specs
from flows.engine.errors import Problem, SpecError
from flows.engine.spec import FlowSpec
from flows.models import Flow, FlowVersion
from flows.portability import describe_place
from flows.publishing import NOTE_LENGTH, find_problems, make_note, read_restored, restore_version


@dataclass
class _Restoring:
    """What is known of a version that is to be restored."""

    flow: Flow
    version: FlowVersion
    latest: FlowVersion

    def __post_init__(self) -> None:
        self.spec: FlowSpec | None = None
        try:
            self.spec = read_restored(self.flow, self.version)
            self.problems = self.place(find_problems(self.spec))
        except SpecError as error:
            self.problems = self.place(error.problems)
        self.is_latest = self.spec is not None and self.spec.digest == self.latest.digest
        self.note_length = NOTE_LENGTH - len(make_note(self.version)) - 1

    def place(self, problems: Any) -> list[Problem]:
        """Problems with their places in words."""
        return [Problem(describe_place(self.version.spec, problem.path), problem.message) for problem in problems]

    def make_context(self) -> dict[str, Any]:
        """What the page shows."""
        latest = self.latest.readable_spec
        then = self.version.spec.get("name")
        return {
            "version": self.version,
            "latest": self.latest,
            "next_number": self.flow.next_number(self.latest),
            "is_latest": self.is_latest,
            "problems": self.problems,
            "note_length": self.note_length,
            "other_name": then if then != self.flow.name else None,
            "changes": compare_specs(latest, self.spec) if latest is not None and self.spec is not None else None,
        }


def show_restoring(site: AdminSite, request: HttpRequest, /, flow_id: int, number: int) -> HttpResponse:
    """Show what restoring a version changes, ask, and do it."""
    is_posted = request.method == "POST"
    with transaction.atomic():
        # A save of the same flow by another request waits for the answer.
        flows = Flow.objects.select_for_update() if is_posted else Flow.objects.select_related("live_version")
        flow = get_object_or_404(flows, pk=flow_id)
        version = get_object_or_404(list_versions(flow), number=number)
        restoring = _Restoring(flow, version, list_versions(flow)[0])
        answers: dict[str, Any] = {}
        if is_posted and not restoring.problems and not restoring.is_latest:
            answers = _restore(site, request, restoring)
            if not answers:
                return HttpResponseRedirect(reverse("admin:flows_flow_versions", args=[flow.pk]))
    context = {**restoring.make_context(), **answers}
    return render_page(site, request, flow, "restore", title=f"Restore version {version.number}?", context=context)


def _restore(site: AdminSite, request: HttpRequest, restoring: _Restoring) -> dict[str, Any]:
    """Restore the version. Gives nothing if that was done, else what the page has to say."""
    note, sentence = read_note(request, max_length=restoring.note_length)
    if sentence:
        return {"note": note, "note_error": sentence}
    if request.POST.get("latest") != str(restoring.latest.number):
        return {"note": note, "is_outdated": True}
    try:
        by = request.user if request.user.is_authenticated else None
        restored = restore_version(version=restoring.version, by=by, note=note)
    except SpecError as error:
        return {"note": note, "problems": restoring.place(error.problems)}
    flow = restored.flow
    if "_make_live" in request.POST:
        flow.make_live(restored)
    did = f"Restored version {restoring.version.number} as version {restored.number}."
    site.get_model_admin(Flow).log_change(request, flow, did)
    said = f"Version {restoring.version.number} is restored as version {restored.number}"
    messages.success(request, describe_new_version(said, restored))
    return {}
