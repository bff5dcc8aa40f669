"""The page that edits a flow: its document is posted as JSON or as the text of a flow file, checked, and published."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.urls import reverse

from flows.admin.conflicts import Conflict, load_conflict
from flows.admin.document_check import (
    NEW_DOCUMENT,
    CheckedDocument,
    check_document,
    describe_problem,
    find_text_problems,
    list_other_drafts,
    read_document_of,
    render_text,
    write_schema_texts,
)
from flows.admin.language import describe_choices, describe_editor
from flows.admin.posted_json import PostedError, parse_number, read_note
from flows.admin.version_rows import describe_new_version
from flows.engine.errors import SpecError
from flows.engine.json_values import parse_object
from flows.engine.spec import FlowSpec
from flows.flow_file import MAX_FILE_BYTES, FlowFileError, parse_document
from flows.models import Flow, FlowDraft, FlowVersion
from flows.plugin_use import find_missing_names
from flows.providers import find_flow_warnings
from flows.publishing import NOTE_LENGTH, publish_flow, thaw_schemas

if TYPE_CHECKING:
    from flows.admin.flow_admin import FlowAdmin

SCRIPTS = (
    *("dom", "flow", "fields", "model_field", "schema_field", "part", "outline", "value_tree", "value_panel"),
    *("completion", "save", "live", "live_try", "savings"),
)
"""What edits the document, in this order."""
ICONS = (
    *("adjustments-horizontal", "arrow-right-end-on-rectangle", "exclamation-circle", "exclamation-triangle"),
    *("information-circle", "x-circle", "user"),
)
"""What the scripts draw."""
_GONE = "This flow was deleted in the meantime. Your changes are still here; saving them creates a new flow."


@dataclass(slots=True)
class PostedFlow:
    """A flow as the page posted it."""

    document: dict[str, Any]
    text: str = ""
    """The flow file that was typed; empty where a document was posted."""
    checked: CheckedDocument | None = None
    """None for text that is not a document."""
    problems: list[dict[str, Any]] = field(default_factory=list)
    """What keeps it from being saved: ``path``, ``place`` in words, ``message``, and ``line`` of a text."""


def show_editor(
    flow_admin: FlowAdmin, request: HttpRequest, flow: Flow | None, *, is_gone: bool = False
) -> HttpResponse:
    """GET: the page. POST: publish what was posted.

    Posted is ``document``, JSON, or ``text``, a flow file; ``base_version``, the number of the version that the page
    was made of; ``note``; ``_make_live`` to use the version in new runs; ``_backtest`` to publish nothing, and ask what
    it would have changed; ``_overwrite``, the number of the version that
    may be undone; ``_new`` to save as a new flow what was typed into one that was deleted. A script that accepts JSON
    gets ``url``, where to go, or 422 with ``problems`` and, if the flow was deleted, ``is_gone``, or 409 with the
    ``conflict`` as HTML.
    """
    if request.method != "POST":
        return _render(flow_admin, request, flow)
    if not flow_admin.has_change_permission(request, flow):
        raise PermissionDenied("You may not change flows: your account lacks “flows.change_flow”.")
    try:
        posted = _read_posted(request)
    except PostedError as error:
        posted = PostedFlow(NEW_DOCUMENT, problems=[{"path": "", "place": "Flow", "message": str(error)}])
        return _refuse(flow_admin, request, flow, posted, status=400)
    if is_gone and "_new" not in request.POST:
        posted.problems = [{"path": "", "place": "Flow", "message": _GONE}]
        return _refuse(flow_admin, request, flow, posted, is_gone=True)
    note, sentence = read_note(request)
    if sentence:
        posted.problems.append({"path": "/note", "place": "What changed?", "message": sentence})
    if posted.problems or posted.checked is None or posted.checked.spec is None:
        return _refuse(flow_admin, request, flow, posted)
    if "_backtest" in request.POST and flow is not None:
        return _ask_backtest(flow_admin, request, flow, posted, posted.checked.spec)
    with transaction.atomic():
        if flow is not None:
            # A save of the same flow by another request waits for the answer.
            Flow.objects.select_for_update().get(pk=flow.pk)
            conflict = load_conflict(flow, posted.checked.spec, _read_base(request))
            if conflict and request.POST.get("_overwrite") != str(conflict.latest.number):
                return _refuse(flow_admin, request, flow, posted, conflict=conflict, status=409)
        try:
            version = _publish(flow_admin, request, flow, posted.checked, note)
        except SpecError as error:
            checked = CheckedDocument(posted.document, None, list(error.problems))
            posted.problems = checked.list_problems()
            return _refuse(flow_admin, request, flow, posted)
        if not is_gone:
            # The drafts of a flow went with it; what else the user began is another flow.
            _list_own_drafts(request, flow).delete()
    url = reverse("admin:flows_flow_change", args=[version.flow_id])
    return JsonResponse({"url": url}) if _wants_json(request) else HttpResponseRedirect(url)


def _ask_backtest(
    flow_admin: FlowAdmin, request: HttpRequest, flow: Flow, posted: PostedFlow, spec: FlowSpec
) -> HttpResponse:
    try:
        url = flow_admin.backtest_draft(request, flow, spec)
    except (PostedError, SpecError) as error:
        posted.problems = [{"path": "", "place": "Flow", "message": str(error)}]
        return _refuse(flow_admin, request, flow, posted)
    return JsonResponse({"url": url}) if _wants_json(request) else HttpResponseRedirect(url)


def _list_own_drafts(request: HttpRequest, flow: Flow | None) -> QuerySet[FlowDraft]:
    user: Any = request.user
    return FlowDraft.objects.filter(flow=flow, user=user)


def _wants_json(request: HttpRequest) -> bool:
    return request.headers.get("Accept", "").startswith("application/json")


def _read_base(request: HttpRequest) -> int:
    """The number of the version that the page was made of."""
    return parse_number(request.POST.get("base_version", "")) or 0


def _read_posted(request: HttpRequest) -> PostedFlow:
    """Raises ``PostedError`` for what is neither a document nor text."""
    if "text" in request.POST and not request.POST.get("document"):
        return _read_text(str(request.POST["text"]).replace("\r\n", "\n"))
    source = str(request.POST.get("document", ""))
    if not source:
        raise PostedError("The page arrived incomplete. Reload it and try again.")
    if len(source.encode(errors="replace")) > MAX_FILE_BYTES:
        raise PostedError(f"A flow has at most {MAX_FILE_BYTES // 1024:,} KB. Make it smaller.")
    try:
        document = read_document_of(parse_object(source))
    except PostedError:
        raise
    except ValueError as error:
        raise PostedError(f"The document can’t be read. {error}") from None
    checked = check_document(document)
    return PostedFlow(document, checked=checked, problems=checked.list_problems())


def _read_text(text: str) -> PostedFlow:
    """A flow file: problems have their lines."""
    try:
        document = parse_document(text)
    except FlowFileError as error:
        return PostedFlow({}, text, problems=list(map(describe_problem, error.problems)))
    return PostedFlow(document, text, check_document(document), find_text_problems(text))


# ---------------------------------------------------------------------------------------------------------------
# Saving


def _publish(
    flow_admin: FlowAdmin, request: HttpRequest, flow: Flow | None, checked: CheckedDocument, note: str
) -> FlowVersion:
    """Publish the flow, log it, and report the result. Raises ``SpecError``."""
    assert checked.spec is not None
    latest = flow.versions.first() if flow is not None else None
    user: Any = request.user
    version = publish_flow(spec=checked.spec, flow=flow, is_new=flow is None, by=user, note=note)
    is_new = latest is None or version.pk != latest.pk
    said = [f"Saved as version {version.number}."] if is_new else []
    if "_make_live" in request.POST and version.flow.live_version_id != version.pk:
        version.flow.make_live(version)
        said.append(f"Made version {version.number} live.")
    if flow is None:
        flow_admin.log_addition(request, version.flow, " ".join(said))
    elif said:
        flow_admin.log_change(request, version.flow, " ".join(said))
    messages.success(request, _describe_saved(version, is_new=is_new))
    if note and not is_new:
        messages.warning(
            request, f"Your note “{note}” was not stored: notes belong to versions, and this save created none."
        )
    for warning in dict.fromkeys(one.message for one in find_flow_warnings(version.flow_spec)):
        messages.warning(request, warning)
    return version


def _describe_saved(version: FlowVersion, *, is_new: bool) -> str:
    """One or two sentences for the editor; HTML if they hold a link."""
    said = f"Saved as version {version.number}" if is_new else f"Nothing changed since version {version.number}"
    if version.flow.is_archived:
        return f"{said}. The flow is archived: no new runs can be started."
    return describe_new_version(said, version)


def _refuse(
    flow_admin: FlowAdmin,
    request: HttpRequest,
    flow: Flow | None,
    posted: PostedFlow,
    *,
    conflict: Conflict | None = None,
    is_gone: bool = False,
    status: int = 422,
) -> HttpResponse:
    """The page again with what was posted, and what is wrong; nothing is stored."""
    if not _wants_json(request):
        return _render(flow_admin, request, flow, posted, conflict=conflict, status=status)
    if conflict is None:
        return JsonResponse({"problems": posted.problems, **({"is_gone": True} if is_gone else {})}, status=status)
    html = render_to_string("admin/flows/flow/conflict.html", {"conflict": conflict, "flow": flow}, request)
    return JsonResponse({"conflict": html, "latest": conflict.latest.number}, status=status)


# ---------------------------------------------------------------------------------------------------------------
# The page


def _render(
    flow_admin: FlowAdmin,
    request: HttpRequest,
    flow: Flow | None,
    posted: PostedFlow | None = None,
    *,
    conflict: Conflict | None = None,
    status: int = 200,
) -> HttpResponse:
    site = flow_admin.admin_site
    may_change = flow_admin.has_change_permission(request, flow)
    latest = flow.versions.defer("note").first() if flow is not None else None
    draft = _list_own_drafts(request, flow).first() if may_change else None
    stored = thaw_schemas(latest.spec) if latest is not None else NEW_DOCUMENT
    document = posted.document if posted is not None else draft.document if draft is not None else stored
    base = _read_base(request) if posted is not None else None
    if base is None:
        base = draft.base_version if draft is not None else latest.number if latest is not None else 0
    editor = {
        "flow": flow.pk if flow is not None else None,
        "document": write_schema_texts(document),
        "stored": write_schema_texts(stored),
        "base_version": base,
        "latest": latest.number if latest is not None else 0,
        "draft_saved_at": draft.updated_at.isoformat() if draft is not None and posted is None else None,
        "may_change": may_change,
        **describe_editor(),
    }
    context = {
        **site.each_context(request),
        "title": flow.title if flow is not None else "New flow",
        "opts": flow_admin.opts,
        "flow": flow,
        "original": flow,
        "editor": editor,
        "text": posted.text if posted is not None and posted.text else render_text(document),
        "base_version": base,
        "draft": draft if posted is None else None,
        "others": list_other_drafts(flow, request.user),
        "problems": posted.problems if posted is not None else [],
        "conflict": conflict,
        "note": request.POST.get("note", ""),
        "note_length": NOTE_LENGTH,
        "latest": latest,
        "scripts": [f"toolflow/admin/editor/{name}.js" for name in SCRIPTS],
        "icons": ICONS,
        **describe_choices(),
        "may_change": may_change,
        "may_delete": flow is not None and flow_admin.has_delete_permission(request, flow),
        "missing_plugins": find_missing_names(latest) if latest is not None else [],
    }
    request.current_app = site.name
    return TemplateResponse(request, "admin/flows/flow/change_form.html", context, status=status)
