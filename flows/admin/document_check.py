"""The document of a flow as the editor sends it: read, checked, and kept as a draft while one types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from django.contrib.admin import AdminSite
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import URLPattern, path
from django.views.decorators.http import require_POST

from flows.admin.access import require_permission
from flows.admin.posted_json import PostedError, get_number, get_text, read_posted_json, refuse_unreadable
from flows.engine.errors import Problem
from flows.engine.json_values import JsonError, clean_value, dump_json, parse_object
from flows.engine.spec import FlowSpec
from flows.engine.spec_check import read_document
from flows.flow_file import MAX_FILE_BYTES, FileProblem, FlowFileError, parse_document, parse_flow, render_document
from flows.models import Flow, FlowDraft, FlowVersion
from flows.portability import describe_place
from flows.providers import find_flow_warnings
from flows.publishing import complete_spec, find_contradictions, find_problems, thaw_schemas
from flows.throttle import limit_rate

CHECKS_PER_MINUTE = 240
"""Requests of one user: more than typing makes."""
MAX_SHOWN = 100
"""Problems that are listed."""

NEW_DOCUMENT: dict[str, Any] = {"name": "", "title": "", "steps": [{"name": ""}]}
"""What the page of a new flow begins with."""

_MAX_ID = 2**63 - 1
_JSON_SENTENCES = {
    "Expecting property name": "a key in double quotes is expected, and after the last entry no comma.",
    "Expecting ',' delimiter": "a comma is missing.",
    "Expecting ':' delimiter": "a colon is missing after the key.",
    "Expecting value": "a value is missing or is not JSON.",
    "Unterminated string": "the text that begins here has no closing double quote.",
    "Invalid control character": "a line break or control character inside text must be escaped (\\n, \\t).",
    "Extra data": "the JSON object has ended, but more text follows.",
}
"""By words of the decoder of the standard library: what a person needs to read who writes JSON by hand."""


@dataclass(frozen=True, slots=True)
class CheckedDocument:
    """What a document says, and everything that keeps it from being published."""

    document: dict[str, Any]
    spec: FlowSpec | None
    """The flow as far as it can be read: fields in error are not set in it."""
    problems: list[Problem]

    def list_problems(self) -> list[dict[str, Any]]:
        """The problems as JSON, each with its place in words."""
        return [
            {"path": one.path, "place": describe_place(self.document, one.path), "message": one.message}
            for one in self.problems[:MAX_SHOWN]
        ]

    @property
    def more(self) -> int:
        """Problems beyond those that are listed."""
        return max(len(self.problems) - MAX_SHOWN, 0)


def check_document(document: dict[str, Any]) -> CheckedDocument:
    """Hold the document of a flow against all that publishing asks of it. Schemas may be texts that hold JSON."""
    whole, unreadable = read_schema_texts(document)
    spec, problems = read_document(whole, _find_problems)
    paths = {problem.path for problem in unreadable}
    return CheckedDocument(document, spec, [*unreadable, *(one for one in problems if one.path not in paths)])


def _find_problems(spec: FlowSpec) -> list[Problem]:
    return find_problems(spec) or list(find_contradictions(spec))


def render_text(document: dict[str, Any]) -> str:
    """The flow file of a document. A schema whose JSON can't be read is in it as the text that was typed."""
    return render_document(read_schema_texts(document, leaves_out=False)[0])


def read_schema_texts(document: dict[str, Any], *, leaves_out: bool = True) -> tuple[dict[str, Any], list[Problem]]:
    """The document with the JSON of its schemas read, and what is wrong with their texts.

    Such schemas are left out, or stay as texts.
    """
    problems: list[Problem] = []

    def read(part: Any, name: str, path: str) -> Any:
        if not isinstance(part, dict) or not isinstance(part.get(name), str):
            return part
        rest = {key: value for key, value in part.items() if key != name}
        if not part[name].strip():
            return rest
        try:
            return {**part, name: parse_object(part[name])}
        except JsonError as error:
            sentence = next((text for sign, text in _JSON_SENTENCES.items() if sign in error.message), error.message)
            problems.append(Problem(f"{path}/{name}", str(JsonError(sentence, error.line, error.column))))
            return rest if leaves_out else part

    whole = read(document, "input_schema", "")
    if isinstance(steps := whole.get("steps"), list):
        read_steps = [read(step, "output_schema", f"/steps/{index}") for index, step in enumerate(steps)]
        whole = {**whole, "steps": read_steps}
    return whole, problems


def write_schema_texts(document: dict[str, Any]) -> dict[str, Any]:
    """The document with its schemas as texts: browsers would sort some keys, and their order is part of a schema."""

    def write(part: Any, name: str) -> Any:
        if not isinstance(part, dict) or not isinstance(part.get(name), dict):
            return part
        return {**part, name: dump_json(part[name], indent=2)}

    whole = write(document, "input_schema")
    if isinstance(steps := whole.get("steps"), list):
        whole = {**whole, "steps": [write(step, "output_schema") for step in steps]}
    return cast("dict[str, Any]", whole)


def describe_problem(problem: FileProblem) -> dict[str, Any]:
    """A problem of a flow file as JSON."""
    return {"path": problem.path, "place": problem.place or "Text", "message": problem.message, "line": problem.line}


def find_text_problems(text: str) -> list[dict[str, Any]]:
    """What keeps a flow file from being published, with its lines."""
    try:
        parse_flow(text, check=_find_problems)
    except FlowFileError as error:
        return list(map(describe_problem, error.problems))[:MAX_SHOWN]
    return []


def list_urls(site: AdminSite) -> list[URLPattern]:
    """The addresses of this module's views, below those of flows."""
    guarded = require_permission("flows.change_flow")(check_and_store_draft)
    return [path("check/", site.admin_view(guarded), name="flows_flow_check")]


@require_POST
@limit_rate("flow-check", most=CHECKS_PER_MINUTE, seconds=60)
@refuse_unreadable
def check_and_store_draft(request: HttpRequest) -> HttpResponse:
    """Check a document, and store it as the user's draft, or delete the draft if the document is as published.

    Posted is ``{"flow", "document", "base_version"}``: the key of the flow or null, and the number of the version that
    the page was made of, 0 for none. Instead of ``document`` there may be ``text``, a flow file; the answer has the
    ``document`` then, null for text that is none. With ``as_text`` it has the flow file of the document as ``text``.
    The answer has ``problems`` and ``warnings`` with JSON pointers (of a text with lines), ``more`` problems,
    ``is_changed``, the number of the ``latest`` version, and ``others`` who have a draft of the flow.
    """
    posted = read_posted_json(request, max_bytes=2 * MAX_FILE_BYTES)
    extra: dict[str, Any] = {}
    if text := get_text(posted, "text"):
        try:
            extra["document"] = write_schema_texts(parse_document(text))
        except FlowFileError as error:
            return JsonResponse({"document": None, "problems": list(map(describe_problem, error.problems))[:MAX_SHOWN]})
    flow, document, base_version = fetch_target({**posted, **extra})
    checked = check_document(document)
    problems = find_text_problems(text) if text else checked.list_problems()
    if posted.get("as_text"):
        extra["text"] = render_text(document)
    latest = flow.versions.first() if flow is not None else None
    user: Any = request.user
    base = latest
    if flow is not None and latest is not None and latest.number != base_version:
        base = flow.versions.filter(number=base_version).first()
    is_changed = _differs(checked, base)
    if is_changed:
        values = {"document": document, "base_version": base_version}
        FlowDraft.objects.update_or_create(flow=flow, user=user, defaults=values)
    else:
        FlowDraft.objects.filter(flow=flow, user=user).delete()
    warnings = find_flow_warnings(complete_spec(checked.spec)) if checked.spec is not None else []
    answer = {
        "problems": problems,
        "more": checked.more,
        "warnings": [{"path": one.path, "message": one.message} for one in warnings],
        "is_changed": is_changed,
        "latest": latest.number if latest is not None else 0,
        "others": [
            {"user": draft.user.get_username(), "at": draft.updated_at.isoformat()}
            for draft in list_other_drafts(flow, user)
        ],
        **extra,
    }
    return JsonResponse(answer)


def list_other_drafts(flow: Flow | None, user: Any) -> QuerySet[FlowDraft]:
    """Drafts of other editors of a flow with their users, the newest first; their documents are not loaded."""
    drafts = FlowDraft.objects.exclude(user=user).select_related("user").defer("document")
    return drafts.filter(flow=flow) if flow is not None else drafts.none()


def _differs(checked: CheckedDocument, base: FlowVersion | None) -> bool:
    """Whether a document is another than that of the version that its page was made of, or of a new page."""
    stored = NEW_DOCUMENT if base is None else thaw_schemas(base.spec)
    read, unreadable = read_schema_texts(checked.document)
    # As text: the order of a schema's properties counts, and true is not 1.
    if not unreadable and dump_json(stored) == dump_json(read):
        return False
    if base is None or checked.spec is None or checked.problems:
        return True
    # Its fields may be in another order.
    return complete_spec(checked.spec).digest != base.digest


def fetch_target(posted: dict[str, Any]) -> tuple[Flow | None, dict[str, Any], int]:
    """The flow, the document and the base version that the editor posted. Raises ``PostedError``."""
    number = get_number(posted, "flow", most=_MAX_ID)
    flow = None
    if number is not None:
        flow = Flow.objects.filter(pk=number).first()
        if flow is None:
            raise PostedError("This flow was deleted. What you typed is still on the page: saving creates a new flow.")
    base_version = get_number(posted, "base_version", most=2**31 - 1) or 0
    return flow, read_document_of(posted.get("document")), base_version


def read_document_of(value: Any) -> dict[str, Any]:
    """A document as it can be stored. Raises ``PostedError``."""
    if not isinstance(value, dict):
        raise PostedError("“document” must be an object: the definition of a flow.")
    try:
        cleaned = clean_value(value)
    except ValueError as error:
        raise PostedError(f"The document can’t be read. {error}") from None
    if cleaned.notes:
        raise PostedError(f"The document can’t be stored. {cleaned.notes[0]} Take them out.")
    return value
