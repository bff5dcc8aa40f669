"""The page of a run: an outline beside one entry of it, which is the result, the input or an attempt.

Each address selects an entry; a script asks for its pane alone. The page costs the same queries however many attempts
and issues a run has. Of outputs it reads the selected one, and those that show what became of issues; what is folded
away (the request, a step's input, the raw output beside a usable one) is read when it is opened.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from django.core.paginator import EmptyPage
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone

from runs import models
from runs.formatting import format_plural
from runs.history.checklist import Checklist
from runs.history.issues import (
    MAX_LISTED_ISSUES,
    Mark,
    address_attempt,
    address_issue,
    find_hidden_issues,
    find_pages,
    list_page,
)
from runs.history.output_view import View, parse_view, view_output
from runs.history.texts import show_invisible
from runs.models import Issue, Run, RunStatus
from runs.pages.access import require_viewer
from runs.pages.addresses import build_issues_url
from runs.pages.attempts import (
    Traced,
    complete_issues,
    fetch_run,
    find_bases,
    list_attempt_rows,
    list_issues,
    load_and_trace,
    load_outputs,
    read_spec,
    view_attempt,
)
from runs.pages.badges import SEVERITIES, STATES, count_run_issues
from runs.pages.model_request import PARTS, download_json, fetch_attempt
from runs.pages.outline import (
    INPUT,
    RESULT,
    Outline,
    OutlineAttempt,
    build_outline,
    choose_entry,
    find_result,
    name_attempt,
)
from runs.pages.run_head import build_head
from runs.statistics.queue_state import runs_without_worker

MAX_SHOWN_BYTES = 4_000_000
"""Stored outputs on the page of all attempts; further outputs are linked."""

_HIDEABLE = (*SEVERITIES, "clean")
_SYMBOLS = sorted(
    {"flag", "arrow-right-end-on-rectangle", *(one.icon for one in (*STATES.values(), *SEVERITIES.values()))}
)
"""Icons that the outline repeats: sent once, and referred to from then on."""


def load_run_page(
    request: HttpRequest,
    run_id: int,
    entry: str,
    view: View,
    *,
    is_compared: bool = False,
    is_shown_again: bool = False,
    issue_page: int = 1,
) -> dict[str, Any]:
    """A run as it is now, for the templates of its page. Raises ``Http404`` if there is none, or nothing so selected.

    ``entry`` is ``result`` or the id of an attempt, empty for what opens by itself. An output that is the same as the
    one before it can be ``is_shown_again``.

    Beside what they show it has ``rows``, the ``issues`` of each by key, and what became of those, ``traced``.
    """
    try:
        run = fetch_run(run_id)
    except Run.DoesNotExist as error:
        raise Http404 from error
    now, url = timezone.now(), reverse("runs:page", args=[run_id])
    rows, spec = list_attempt_rows(run_id), read_spec(run)
    issues = list_issues(run_id, is_brief=sum(count for _, count in count_run_issues(run)) > MAX_LISTED_ISSUES)
    result = find_result(run, rows)
    entry = "" if entry == RESULT and not result else entry
    entry = entry or choose_entry(run, rows)
    row = result if entry == RESULT else next((row for row in rows if name_attempt(row) == entry), None)
    if row is None and entry != INPUT:
        raise Http404
    base, shown = None, []
    if row is not None:
        base = find_bases(rows).get(row.pk)
        shown = [row, base] if is_compared and base else [row]
        try:
            complete_issues(list_page(issues.get(row.pk, ()), issue_page))
        except EmptyPage as error:
            raise Http404 from error
    traced = load_and_trace(rows, issues, shown, has_texts=run.outputs_removed_at is None)
    outline = build_outline(run, url, spec, rows, issues, traced, entry, now)
    attempt, step = None, None
    if row is not None:
        index = row.step.index
        step = spec.step(index) if spec else None
        is_known = run.outputs_removed_at is None and spec is not None
        hidden = find_hidden_issues(spec, index, rows, issues) if is_known and spec is not None else {}
        attempt = view_attempt(
            row,
            issues.get(row.pk, []),
            run,
            step,
            run_url=url,
            traced=traced[0].get(index),
            hidden=hidden.get(row.number),
            base=base,
            is_compared=is_compared,
            is_alone=True,
            issue_page=issue_page,
            view=view,
            address=_address_views(url, row, entry, is_shown_again, issue_page),
        )
    return {
        "run": run,
        "run_url": url,
        "document_url": f"{url.removesuffix('/')}.json",
        "issues_url": build_issues_url(run.flow.name),
        "spec": spec,
        "rows": rows,
        "issues": issues,
        "traced": traced,
        "outline": outline,
        "head": build_head(run, outline, request, now),
        "pane": _build_pane(run, outline, entry, attempt, view, is_shown=is_compared or is_shown_again),
        # A check of the engine is never in the place of an audit.
        "audit_names": [*(audit.name for audit in step.audits), step.output_type] if step else (),
        "parts": _list_parts(run, row) if row else (),
        "symbols": _SYMBOLS,
        **_parse_hidden(request, run),
    }


def _address_views(run_url: str, row: models.Attempt, entry: str, is_shown_again: bool, issue_page: int) -> str:
    """What addresses of the views of an output begin with."""
    if entry == RESULT:
        return f"{run_url}?show={RESULT}&"
    issues = f"issues={issue_page}&" if issue_page > 1 else ""
    return f"{run_url}{address_attempt(row.step.index, row.number)}?{'output=1&' if is_shown_again else ''}{issues}"


def _build_pane(
    run: Run, outline: Outline, entry: str, attempt: dict[str, Any] | None, view: View, *, is_shown: bool
) -> dict[str, Any]:
    """The selected entry: the input, the result or an attempt, with the ways to its neighbours.

    Its ``name`` is another text as soon as it is out of date: its attempt has ended. ``sentence`` is why the attempt
    ended as it did, where no text of an audit or a provider says so. An output ``is_collapsed`` where it is the one of
    an attempt before it. ``latest`` is the last attempt of a run that goes on, where another entry is selected.
    """
    lines = outline.attempts
    line = next((line for line in lines if attempt is not None and line.id == attempt["id"]), None)
    order = [*filter(None, [outline.result_url]), outline.input_url, *(line.url for line in lines)]
    url = outline.result_url if entry == RESULT else line.url if line else outline.input_url
    place = order.index(url)
    is_blocking = line and (line.step, line.number) == (run.blocking_step, run.blocking_attempt)
    last = lines[-1] if lines else None
    shown_input = None
    if attempt is None and run.outputs_removed_at is None:
        shown_input = view_output(run.input, view=view, prefix=INPUT, address=f"{url}?", download_url=f"{url}?download")
    return {
        "name": f"{entry}.{line.state if line else ''}",
        "entry": entry,
        "url": url,
        "input": shown_input,
        "attempt": attempt,
        "line": line,
        "step": outline.steps[line.step - 1] if line else None,
        "sentence": _explain_outcome(attempt) if attempt else "",
        "is_collapsed": line is not None
        and line.same_as is not None
        and not (is_shown or is_blocking or entry == RESULT),
        "previous_url": order[place - 1] if place else "",
        "next_url": order[place + 1] if place + 1 < len(order) else "",
        "latest": last if not run.has_ended and last is not line else None,
    }


def _explain_outcome(attempt: dict[str, Any]) -> str:
    number = sum(count for _, count in attempt["counts"])
    count = format_plural(number, "issue")
    if not number:
        return ""
    if attempt["state"] == "passed":
        return f"with {count} that {'does' if number == 1 else 'do'} not block"
    if attempt["state"] in ("failed", "invalid") and not attempt["row"].failure_reason:
        checklist: Checklist | None = attempt["checklist"]
        explanation = checklist and checklist.rule and checklist.rule.explanation
        broken = next((one.values for one in explanation.conditions if not one.holds), "") if explanation else ""
        return f"{count}: {show_invisible(broken)}" if broken else count
    return ""


@require_viewer
def show_run(request: HttpRequest, run_id: int) -> HttpResponse:
    """A run with its result, the attempt that blocked it, or the latest one; ``?show=result`` selects the result."""
    entry = RESULT if request.GET.get("show") == RESULT else ""
    return _render_page(request, run_id, entry)


@require_viewer
def show_attempt(request: HttpRequest, run_id: int, step: int, number: int) -> HttpResponse:
    """A run with one of its attempts; that of step 0 is its input.

    ``?diff=1`` shows what changed since the output before it, ``?output=1`` an output that is the same, ``?download``
    is the output as a file. Of many issues the most severe are shown, with ``?issues=2`` those that come next, and so
    on; ``?issue=`` with the position of one leads to where it is shown.
    """
    if "download" in request.GET:
        return _download_output(run_id, step, number)
    if "issue" in request.GET:
        return _go_to_issue(run_id, step, number, request.GET["issue"])
    issue_page = request.GET.get("issues", "1")
    if not re.fullmatch("[1-9][0-9]{0,5}", issue_page):
        raise Http404
    asked = {"is_compared": bool(request.GET.get("diff")), "is_shown_again": bool(request.GET.get("output"))}
    return _render_page(request, run_id, f"s{step}a{number}", **asked, issue_page=int(issue_page))


def _read_view(request: HttpRequest) -> View:
    return parse_view(request.GET.get("view"), request.COOKIES.get("toolflow_view"))


def _render_page(request: HttpRequest, run_id: int, entry: str, **asked: Any) -> HttpResponse:
    is_alone = request.headers.get("HX-Target") == "pane"
    page = load_run_page(request, run_id, entry, _read_view(request), **asked)
    context = {"is_following": not entry, "is_alone": is_alone, **page}
    return render(request, "runs/run_pane.html" if is_alone else "runs/run_page.html", context)


def _parse_hidden(request: HttpRequest, run: Run) -> dict[str, Any]:
    """What ``?hide=`` hides, and the values that buttons give it."""
    names = {name for name in request.GET.get("hide", "").split(",") if name}
    unknown = sorted(names.difference(_HIDEABLE))
    hidden = () if unknown else tuple(name for name in _HIDEABLE if name in names)
    return {
        "hidden": hidden,
        "warnings": [f"“{name[:40]}” can’t be hidden: choose from {', '.join(_HIDEABLE)}." for name in unknown[:1]],
        "toggles": [
            (badge, getattr(run, f"issues_{name}"), name in hidden, ",".join(_toggle(hidden, name)))
            for name, badge in SEVERITIES.items()
        ],
        "hide_clean": ",".join(_toggle(hidden, "clean")),
    }


def _list_parts(run: Run, row: Any) -> list[tuple[str, str]]:
    """What is folded away below an attempt, and read when it is opened; ``row`` has annotations."""
    is_there = {
        "request": row.has_request,
        "input": run.outputs_removed_at is None,
        "raw_output": row.has_raw_output and row.has_output,
    }
    return [(part, title) for part, title in PARTS.items() if is_there[part]]


def _toggle(hidden: Sequence[str], name: str) -> list[str]:
    return [other for other in _HIDEABLE if (other in hidden) != (other == name)]


@require_viewer
def show_all_attempts(request: HttpRequest, run_id: int) -> HttpResponse:
    """All attempts of a run below each other, to be printed and to be searched by the browser."""
    page = load_run_page(request, run_id, INPUT, View.JSON)
    rows, issues, spec, (traced, same_as) = page["rows"], page["issues"], page["spec"], page["traced"]
    free, shown = MAX_SHOWN_BYTES, set()
    for row in rows:
        if row.pk not in same_as and row.stored_bytes <= free:
            free -= row.stored_bytes
            shown.add(row)
    load_outputs(shown)
    complete_issues(issue for row in rows for issue in list_page(issues.get(row.pk, ())))
    attempts = {}
    for row in rows:
        is_left_out = row not in shown
        if is_left_out:
            row.output = None
        step, of_step = spec.step(row.step.index) if spec else None, traced.get(row.step.index)
        view = view_attempt(row, issues.get(row.pk, []), page["run"], step, run_url=page["run_url"], traced=of_step)
        attempts[name_attempt(row)] = view, is_left_out
    steps = [(step, [(*attempts[line.id], line) for line in step.attempts]) for step in page["outline"].steps]
    return render(request, "runs/run_attempts.html", {**page, "steps": steps})


@require_viewer
def show_run_changes(request: HttpRequest, run_id: int) -> HttpResponse:
    """What changed since ``revision`` for a reader who has ``at`` selected; 204 if nothing did.

    ``pane`` is the name of the pane that the reader has, ``head`` that of the head: both are left out of the answer
    where they are still the same. ``seen`` is the last attempt that was known. With ``follow`` the reader has done
    nothing yet, and goes along to the entry that opens by itself. ``unattended`` says that the page says so.
    """
    seen = re.fullmatch(r"([0-9]{1,4})\.([0-9]{1,6})(r?)", request.GET.get("seen", ""))
    revision = request.GET.get("revision", "")
    at = request.GET.get("at", "")
    if not seen or not revision.isdecimal() or len(revision) > 10 or not re.fullmatch(r"|result|s\d{1,4}a\d{1,6}", at):
        return HttpResponse("Ask with ?revision=NUMBER&seen=STEP.ATTEMPT.", status=400, content_type="text/plain")
    if _fetch_current(run_id) == (int(revision), "unattended" in request.GET):
        return HttpResponse(status=204)
    page = load_run_page(request, run_id, "" if "follow" in request.GET else at, _read_view(request))
    head, outline, pane = page["head"], page["outline"], page["pane"]
    announcement = f"{head['badge'].word}."
    if outline.attempts:
        last = outline.attempts[-1]
        announcement += f" Step {last.step}, attempt {last.number}: {last.badge.word.lower()}."
    page |= {
        "is_update": True,
        "is_following": "follow" in request.GET,
        "is_head_new": request.GET.get("head", "") != head["fingerprint"],
        "is_pane_new": request.GET.get("pane", "") != pane["name"],
        "new_marks": _list_new_marks(pane["line"], page["traced"], (int(seen[1]), int(seen[2]))),
        "announcement": announcement,
    }
    return render(request, "runs/run_page.html", page)


def _list_new_marks(
    line: OutlineAttempt | None, traced: Traced, seen: tuple[int, int]
) -> list[tuple[str, Sequence[Mark]]]:
    """What attempts that have just ended say of issues of the selected attempt, by the ids of those."""
    if line is None or line.step < seen[0] or (line.step, line.number) > seen:
        return []
    newest = min(seen[1], line.number + 1) if line.step == seen[0] else 1
    found = traced[0][line.step].list_new_marks(line.number, newest)
    return [(f"i{position}-marks", marks) for position, marks in found]


def _fetch_current(run_id: int) -> tuple[int, bool] | None:
    """The revision of a run, and whether it waits though no worker is alive; None if there is no such run."""
    found = Run.objects.filter(pk=run_id).values_list("revision", "status").first()
    if found is None:
        return None
    revision, status = found
    return revision, status == RunStatus.QUEUED and runs_without_worker().filter(pk=run_id).exists()


def _go_to_issue(run_id: int, step: int, number: int, position: str) -> HttpResponse:
    own = Issue.objects.filter(attempt__step__run=run_id, attempt__step__index=step, attempt__number=number)
    issues = list(own.only("severity", "position"))
    issue = next((issue for issue in issues if str(issue.position) == position), None)
    if issue is None:
        raise Http404
    page = find_pages(issues).get(issue.position, 1)
    run_url = reverse("runs:page", args=[run_id])
    return redirect(f"{run_url}{address_issue(step, number, issue.position, page)}")


def _download_output(run_id: int, step: int, number: int) -> HttpResponse:
    """The output as it is stored, or what came back instead of one. That of step 0 is the input of the run."""
    if (step, number) == (0, 1):
        run = get_object_or_404(Run.objects.only("input", "outputs_removed_at"), pk=run_id)
        output = run.input if run.outputs_removed_at is None else None
    else:
        row = fetch_attempt(run_id, step, number)
        output = row.raw_output if row.output is None else row.output
    return download_json(output, f"run-{run_id}-step-{step}-attempt-{number}-output.json")
