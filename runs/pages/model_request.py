"""What a model call was sent, as people read it: messages first, each part beside where it came from, then the rest."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from flows.engine import history as engine
from flows.engine import prompt
from flows.engine.history import History, Outcome
from flows.engine.json_values import parse_object
from flows.engine.message_template import list_placeholders
from flows.engine.model_api import MESSAGE_FIELDS, list_messages
from flows.engine.prompt import PromptSection, build_sections, join_parts, render_issue
from runs import models
from runs.history.issues import address_attempt, anchor_attempt, find_hidden_issues, find_pages, link_issue
from runs.history.json_lines import list_json, list_text
from runs.history.output_view import parse_view, view_output, view_text
from runs.history.texts import show_invisible
from runs.pages.access import require_viewer
from runs.pages.attempts import read_spec
from runs.stored_history import build_engine_issue

PARTS = {
    "request": "What the model saw",
    "input": "Input of the step",
    "raw_output": "Raw output, before the sanitizer",
}

MAX_OUTPUT_LENGTH = 8_000
"""Characters that are shown of an earlier output in a message; it is shown whole in its own attempt."""
MAX_LINE_LENGTH = 2_000
"""Characters that are shown of one issue in a message."""
MAX_LINES = 200
"""Issues of one earlier attempt that are shown in a message."""


Expected = tuple[str, Sequence[PromptSection], Mapping[tuple[int, int], Sequence[dict[str, Any]]]]
"""What the system message of a call must be by the history before it: the step's own text, the sections that follow,
and by step and number links to all issues of the attempts in these."""


def read_model_request(request: Mapping[str, Any], expected: Expected | None = None) -> dict[str, Any]:
    """The stored body of a request, of either API: its messages, its tools, all other fields, and the whole as JSON.

    A system message is taken apart only if it is, to the letter, what ``expected`` makes: headings alone prove nothing,
    since the step's own text may hold the same. Then ``own`` is the step's text, None if it has none, and ``sections``
    follow. A message ``is_unexpected`` that should list earlier attempts, but does not read as the history of today
    would.
    """
    tools = request.get("tools")
    settings = {name: value for name, value in request.items() if name not in (*MESSAGE_FIELDS, "tools")}
    return {
        "messages": [_read_message(message, expected) for message in list_messages(request)],
        "tools": list_json(tools) if tools else None,
        "settings": list_json(settings),
        "raw": list_json(dict(request)),
    }


def _read_message(message: Mapping[str, Any], expected: Expected | None) -> dict[str, Any]:
    role, content = str(message.get("role", "")), message.get("content")
    parsed = _parse_object(content)
    if parsed is not None or not isinstance(content, str):
        return {"role": role, "content": list_json(parsed or content), "is_json": parsed is not None}
    shown = {"role": role, "content": list_text(content), "is_json": False}
    if role != "system" or expected is None or not expected[1]:
        return shown
    text, parts, links = expected
    feedback = join_parts(section.text for section in parts)
    if any(list_placeholders(text)):
        # What they were filled in with may be gone since; what follows is the same to the letter.
        text = content.removesuffix(f"\n\n{feedback}")
    if join_parts([text, feedback]) != content:
        return {**shown, "is_unexpected": True}
    sections = [
        {
            "heading": one.heading,
            "note": one.note,
            "attempts": [_read_attempt(attempt, links) for attempt in one.attempts],
        }
        for one in parts
    ]
    return {**shown, "own": list_text(text) if text else None, "sections": sections}


def _read_attempt(
    one: prompt.FeedbackAttempt, links_of: Mapping[tuple[int, int], Sequence[dict[str, Any]]]
) -> dict[str, Any]:
    """An earlier attempt in a message: its output, and each issue as text with the link to where it came from."""
    attempt = one.attempt
    # The filter keeps the order, so that each issue in the message is found from front to back.
    pairs = zip(attempt.issues, links_of[attempt.step, attempt.number], strict=True)
    shown = one.issues[:MAX_LINES]
    links = [next(link for issue, link in pairs if issue is wanted) for wanted in shown]
    texts = [list_text(render_issue(issue), max_characters=MAX_LINE_LENGTH) for issue in shown]
    return {
        "heading": show_invisible(one.heading),
        "step": attempt.step,
        "number": attempt.number,
        "output": list_text(one.output, max_characters=MAX_OUTPUT_LENGTH),
        "lines": [{"text": text, "links": [link]} for text, link in zip(texts, links, strict=True)],
        "more": len(one.issues) - len(shown),
    }


def _parse_object(content: object) -> dict[str, Any] | None:
    if not isinstance(content, str) or not content.startswith("{"):
        return None
    try:
        return parse_object(content)
    except ValueError:
        return None


def load_call_history(row: models.Attempt) -> tuple[Expected | None, dict[str, Any] | None]:
    """What the call of ``row`` must have said by the history before it, and what it hid. Costs two queries.

    Nothing is known of a version that can't be read, and a local step hides nothing.
    """
    run, index = row.step.run, row.step.index
    spec = read_spec(run)
    if spec is None:
        return None, None
    step = spec.step(index)
    earlier = list(
        models.Attempt.objects.filter(
            Q(step__index__in=[position for position in step.include_results if position < index])
            | Q(step__index=index, number__lt=row.number),
            step__run=run,
        )
        .exclude(outcome="")
        .select_related("step")
        .only("step", "number", "outcome", "output", "raw_output")
        .prefetch_related("issues")
        .order_by("step__index", "number")
    )
    issues = {one.pk: list(one.issues.all()) for one in earlier}
    links: dict[tuple[int, int], list[dict[str, Any]]] = {}
    steps: list[list[engine.Attempt]] = [[] for _ in range(index + 1)]
    for one in earlier:
        place = (one.step.index, one.number)
        pages = find_pages(issues[one.pk])
        links[place] = [link_issue(*place, issue, pages.get(issue.position, 1)) for issue in issues[one.pk]]
        attempt = engine.Attempt.model_construct(
            step=one.step.index,
            number=one.number,
            outcome=Outcome(one.outcome),
            output=one.output,
            raw_output=one.raw_output,
            issues=tuple(map(build_engine_issue, issues[one.pk])),
        )
        steps[one.step.index].append(attempt)
    # Steps that the message leaves out are empty here, so that this is not a history that could go on.
    history = History("", tuple(map(tuple, steps)))
    expected = step.system_message.strip(), build_sections(spec, history, index), links
    return expected, find_hidden_issues(spec, index, [*earlier, row], issues).get(row.number)


@require_viewer
def show_attempt_part(request: HttpRequest, run_id: int, step: int, number: int, part: str) -> HttpResponse:
    """What the model saw, the step's input or the raw output: folded away on the run page, read when opened.

    With ``?download`` the stored value as it is, as a JSON file.
    """
    if part not in PARTS:
        raise Http404
    row = fetch_attempt(run_id, step, number)
    value = getattr(row, part)
    if "download" in request.GET:
        return download_json(value, f"run-{run_id}-step-{step}-attempt-{number}-{part.replace('_', '-')}.json")
    run_url = reverse("runs:page", args=[run_id])
    own = f"{run_url}{address_attempt(step, number)}"
    context: dict[str, Any] = {
        "run": row.step.run,
        "step": row.step,
        "number": number,
        "here": step,
        "title": PARTS[part],
        "prefix": f"{anchor_attempt(step, number)}-{part}",
        "back": own,
        "run_url": run_url,
        "download": f"{own}{part}/?download",
    }
    if part == "request" and value is not None:
        expected, context["hidden"] = load_call_history(row)
        context["model_request"] = read_model_request(value, expected)
    elif value is not None:
        names = {"prefix": context["prefix"], "download_url": context["download"]}
        view = parse_view(request.GET.get("view"), request.COOKIES.get("toolflow_view"))
        context["output"] = (
            view_text(value, **names)
            if isinstance(value, str)
            else view_output(value, view=view, address=f"{own}{part}/?", **names)
        )
    is_part = request.headers.get("HX-Request") == "true"
    return render(request, "runs/attempt_part.html", {**context, "is_part": is_part})


def fetch_attempt(run_id: int, step: int, number: int) -> models.Attempt:
    """The row of one attempt with its step, run, version and usage. Raises ``Http404`` if there is none."""
    attempts = models.Attempt.objects.select_related("step__run__flow", "step__run__version", "usage", "sent")
    row = attempts.filter(step__run_id=run_id, step__index=step, number=number).first()
    if row is None:
        raise Http404
    return row


def download_json(value: Any, name: str) -> HttpResponse:
    """A stored value as a JSON file. Raises ``Http404`` if there is none."""
    if value is None:
        raise Http404
    text = json.dumps(value, ensure_ascii=False, indent=2)
    # Rows that others wrote may hold lone surrogates, which have no place in a file.
    response = HttpResponse(text.encode(errors="replace"), content_type="application/json")
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response
