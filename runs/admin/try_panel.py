"""A step tried in the flow editor: what it is tried on, the request that it would send, and one call of the model.

The page posts the document that it edits and the panel's own fields. The answer is the whole panel as HTML in JSON, or
a sentence. Nothing is stored.
"""

from __future__ import annotations

from typing import Any

from django.core.exceptions import PermissionDenied
from django.db.models import Exists, OuterRef
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.template.loader import render_to_string
from django.urls import URLPattern, path
from django.views.decorators.http import require_POST

from flows.admin.access import require_permission
from flows.admin.document_check import CheckedDocument, check_document, read_document_of
from flows.admin.flow_admin import FlowAdmin
from flows.admin.posted_json import parse_number
from flows.engine.errors import SpecError
from flows.engine.history import Attempt, AttemptError, History, Outcome
from flows.engine.json_values import clean_value, dump_json, parse_object
from flows.engine.judging import clean_output, is_judged_in_python
from flows.engine.model_calls import resolve_spec
from flows.engine.plugins import PREFIX, registry
from flows.engine.reply import ToolReply
from flows.engine.settling import find_step_final
from flows.engine.simulated_model import invent_value
from flows.engine.spec import FlowSpec, StepSpec
from flows.models import Flow
from flows.providers import build_providers, default_model_settings
from flows.publishing import complete_spec
from flows.throttle import limit_rate
from runs import models
from runs.admin.judge_panel import list_issue_lines
from runs.audit_log.events import AuditAction, log_audit_event
from runs.formatting import format_cost, format_count, format_duration
from runs.history.checklist import build_checklist
from runs.history.json_lines import list_json
from runs.history.texts import cut_text, show_invisible
from runs.models import Run
from runs.pages.badges import STATES
from runs.pages.input_form import example_input
from runs.pages.model_request import read_model_request
from runs.request_slots import release_slot
from runs.stored_history import build_issues, load_history
from runs.try_out.model_call import NotSentError, call_model
from runs.try_out.trial import Preview, Trial, TrialError, fetch_run, try_on_run, try_on_values

MAX_RUNS_OFFERED = 20
"""The latest runs of a flow that can be chosen from a list; any other is named by its number."""
MAX_ISSUES = 20
"""Issues of an output that are shown."""
TYPED = "typed"
"""What ``basis`` is for typed values; else it is the number of a run."""
ACTIONS = {"open", "preview", "judge", "invent", "call"}


def list_urls(flow_admin: FlowAdmin) -> list[URLPattern]:
    """The address of the panel, below those of flows."""

    @require_POST
    @require_permission("flows.view_flow")
    @require_permission("flows.change_flow")
    @limit_rate("try", most=60, seconds=60)
    def try_step(request: HttpRequest) -> HttpResponseBase:
        return _try_step(request, flow_admin)

    return [path("try/", flow_admin.admin_site.admin_view(try_step), name="flows_flow_try")]


def _try_step(request: HttpRequest, flow_admin: FlowAdmin) -> HttpResponseBase:
    action = request.POST.get("try_action", "")
    if action not in ACTIONS:
        return _refuse("Unknown action. Reload the page and try again.", 400)
    flow = None
    if number := request.POST.get("flow", ""):
        flow = Flow.objects.filter(pk=parse_number(number, max_digits=18) or 0).first()
        if flow is None:
            return _refuse("This flow was deleted.", 404)
    try:
        checked = check_document(read_document_of(parse_object(request.POST.get("document", ""))))
    except ValueError as error:
        return _refuse(str(error), 400)
    steps = checked.document.get("steps")
    index = parse_number(request.POST.get("try_step", ""))
    if not index or not isinstance(steps, list) or index > len(steps):
        return _refuse("This step is no longer on the page. Try another step.", 404)
    panel = Panel(request, flow, checked, index)
    if action == "call" and panel.spec is not None:
        return _call_model(request, panel, flow_admin)
    if action == "judge":
        panel.judge_pasted()
    elif action == "invent":
        panel.judge_invented()
    return _show(request, panel)


@limit_rate("try-call", most=10, seconds=60)
def _call_model(request: HttpRequest, panel: Panel, flow_admin: FlowAdmin) -> HttpResponse:
    if not panel.can_call:
        raise PermissionDenied("You may not call the model: your account lacks “runs.add_run”.")
    body = panel.preview.request
    if panel.trial is None or body is None or panel.obstacle:
        panel.problem = panel.obstacle
        return _show(request, panel)
    try:
        with release_slot():
            answer, seconds = call_model(panel.trial, body, flow_id=panel.flow.pk if panel.flow else None)
    except NotSentError as error:
        panel.problem = str(error)
    else:
        _log_call(request, panel, answer, flow_admin)
        panel.judge_answer(answer, seconds)
    return _show(request, panel)


def _log_call(request: HttpRequest, panel: Panel, answer: ToolReply | AttemptError, flow_admin: FlowAdmin) -> None:
    """Note the call in the flow's history and in the audit log."""
    title = (panel.spec.title if panel.spec else "") or "New flow"
    details: dict[str, Any]
    if isinstance(answer, AttemptError):
        details, words = {"error": answer.code}, f"no answer: {answer.code}"
    else:
        tokens = answer.usage.total if answer.usage.reported else None
        details, words = {"tokens": tokens}, "tokens not reported" if tokens is None else f"{tokens:,} tokens"
    message = f"Tried step {panel.index} with one model call ({words})."
    flow_admin.log_change(request, panel.flow or Flow(title=title), message)
    log_audit_event(
        action=AuditAction.STEP_TRIED,
        about=panel.flow,
        kind="flow",
        label=str(panel.flow or title),
        details={"step": panel.index, **details},
    )


def _show(request: HttpRequest, panel: Panel) -> HttpResponse:
    html = render_to_string("admin/flows/flow/live/try.html", {"panel": panel}, request)
    return JsonResponse({"html": html, "announcement": panel.announcement})


def _refuse(sentence: str, status: int) -> HttpResponse:
    return JsonResponse({"error": sentence}, status=status)


class Panel:
    """The panel of one step; its template reads the attributes."""

    def __init__(self, request: HttpRequest, flow: Flow | None, checked: CheckedDocument, index: int) -> None:
        """``flow`` is the stored one, None for a new one; ``index`` is the step's, counted from 1."""
        self.flow = flow
        self.index = index
        self.can_see_runs = request.user.has_perm("runs.view_run")
        self.can_call = request.user.has_perm("runs.add_run")
        self.fields = {
            name.removeprefix("try_"): str(value).replace("\r\n", "\n")
            for name, value in request.POST.items()
            if name.startswith("try_")
        }
        self.spec: FlowSpec | None = None
        """The edited flow as it would run, also where something in it is wrong; None if it can't be read."""
        if checked.spec is not None:
            self.spec = resolve_spec(complete_spec(checked.spec), default_model_settings(), build_providers())
        self.has_problems = any(one.path == "" or f"{one.path}/".startswith(self._place) for one in checked.problems)
        """Whether this step can't run as it is."""
        self.is_whole = not checked.problems
        self.runs: list[Any] = []
        self.run_id: int | None = None
        self.problems: dict[str, str] = {}
        """A sentence for each field that can't be used: ``run``, ``input``, ``output-2``."""
        self.problem = ""
        """Why there is no verdict, though one was asked for."""
        self.feedback_count = parse_number(self.fields.get("after", "")) or 0
        self.has_new_output = False
        """Whether an answer was put into the field for pasted outputs."""
        self.preview = Preview()
        self.verdict: dict[str, Any] | None = None
        self.trial = None if self.spec is None else self._begin_trial(self.spec)
        if self.trial is not None:
            self.preview = self.trial.preview(registry)
            if self.preview.output is not None:
                self._judge("The computed output", self.preview.output, notes=self.preview.notes)

    @property
    def _place(self) -> str:
        return f"/steps/{self.index - 1}/"

    # What it is tried on

    def _begin_trial(self, spec: FlowSpec) -> Trial | None:
        """The step on what was chosen. If nothing was: on the latest run that reached it, else on typed values.

        For the first step any run will do. The typed values are those of that run, else examples that fit the schemas.
        """
        if self.flow is not None and self.can_see_runs:
            self.runs = self._fetch_runs(self.flow)
        is_new, history = not self.basis, None
        if is_new:
            latest = self.runs[0] if self.runs else None
            chosen = next((run for run in self.runs if run.has_step), latest if self.index == 1 else None)
            self.fields["basis"] = str(chosen.pk) if chosen else TYPED
        try:
            if self.basis != TYPED:
                run = self._fetch_chosen_run()
                history = load_history(run)
                self.run_id = run.pk
            elif is_new and self.runs:
                history = load_history(fetch_run(self.flow.pk if self.flow else None, self.runs[0].pk))
            if is_new:
                self._fill(spec, history)
            if self.basis == TYPED or history is None:
                return self._read_typed(spec)
            # Another run may have been chosen, which lacks the attempts that were chosen of the last one.
            if self.feedback_count > len(history.attempts(self.index)):
                self.feedback_count = 0
            return try_on_run(spec, self.index, run, history, feedback_count=self.feedback_count)
        except TrialError as error:
            self.problems[error.field] = str(error)
        except SpecError as error:
            self.problems["input"] = f"A schema can't be used yet. {error.problems[0].message}"
        return None

    def _fetch_runs(self, flow: Flow) -> list[Run]:
        """The latest runs, newest first; ``has_step`` of each says whether it reached the step."""
        reached = models.Step.objects.filter(run=OuterRef("pk"), index=self.index)
        runs = Run.objects.filter(flow=flow).annotate(has_step=Exists(reached)).select_related("version")
        fields = ("status", "created_at", "version__number", "version__flow_id")
        return list(runs.only(*fields).order_by("-created_at", "-pk")[:MAX_RUNS_OFFERED])

    def _fetch_chosen_run(self) -> Run:
        if not self.can_see_runs:
            raise TrialError(
                "run", "Your account may not see runs (it lacks “runs.view_run”). Type the values instead."
            )
        number = parse_number(self.basis.removeprefix("#"), max_digits=18)
        if not number:
            raise TrialError("run", f"“{self.basis[:40]}” is not a run number. Write it like 12.")
        return fetch_run(self.flow.pk if self.flow else None, number)

    def _fill(self, spec: FlowSpec, history: History | None) -> None:
        input = history.initial_input if history else example_input(spec.input_schema)
        if input is None:
            input = invent_value(spec.input_schema, seed=spec.name) if spec.input_schema and self.is_whole else {}
        self.fields["input"] = _format(input)
        for position, step in enumerate(spec.steps[: self.index - 1], start=1):
            final = find_step_final(spec, history, position) if history else None
            output = final.usable_output if final else None
            if output is None and self.is_whole and step.output_schema is not None:
                output = invent_value(step.output_schema, seed=step.name)
            self.fields[f"output-{position}"] = "" if output is None else _format(output)

    def _read_typed(self, spec: FlowSpec) -> Trial | None:
        """The trial on typed values; an empty output stands for a step without a usable one."""
        values: dict[int, dict[str, Any] | None] = {}
        for position in range(self.index):
            name = f"output-{position}" if position else "input"
            text = self.fields.get(name, "")
            try:
                values[position] = parse_object(text) if text.strip() or not position else None
            except ValueError as error:
                self.problems[name] = str(error)
        return None if self.problems else try_on_values(spec, self.index, values[0] or {}, values)

    @property
    def basis(self) -> str:
        """What it is tried on: a typed number of a run, a chosen one, or ``TYPED``; empty at first."""
        return self.fields.get("number", "").strip() or self.fields.get("basis", "")

    @property
    def step(self) -> StepSpec:
        assert self.spec is not None
        return self.spec.step(self.index)

    @property
    def uses_python(self) -> bool:
        """Whether plug-ins take part, so that it is tried only when asked for."""
        if self.spec is None:
            return False
        own = (self.step.input_expression, self.step.input_sanitizer, self.step.compute)
        return is_judged_in_python(self.step, registry) or any(text and text.startswith(PREFIX) for text in own)

    @property
    def earlier_steps(self) -> list[tuple[int, str, str]]:
        """The steps before this one: index, name, and the output that is typed for it."""
        assert self.spec is not None
        steps = enumerate(self.spec.steps[: self.index - 1], start=1)
        return [(position, step.name, self.fields.get(f"output-{position}", "")) for position, step in steps]

    # The request, and a call

    @property
    def model_request(self) -> dict[str, Any] | None:
        """The request as people read it."""
        return None if self.preview.request is None else read_model_request(self.preview.request)

    @property
    def obstacle(self) -> str:
        """Why the model can't be called now; empty if it can."""
        if not self.can_call:
            return "Your account may not call the model: it lacks “runs.add_run”."
        if self.step.is_local:
            return "This step calls no model."
        if self.has_problems:
            return "Fix the problems of this step first: a call may cost money."
        if self.preview.request is None:
            return "There is no request to send yet."
        return build_providers().split(self.step.model or "")[0].find_problem() or ""

    @property
    def is_simulated(self) -> bool:
        """Whether the simulated model answers and nothing is billed."""
        return build_providers().split(self.step.model or "")[0].is_simulated

    # An output

    def judge_pasted(self) -> None:
        """Judge the pasted output."""
        try:
            output = clean_value(parse_object(self.fields.get("pasted", ""))).value
        except ValueError as error:
            self.problem = f"The pasted output can't be read. {error}"
        else:
            self._judge("The pasted output", output)

    def judge_invented(self) -> None:
        """Judge an output as the simulated model gives it, without a call."""
        if self.spec is None or self.step.output_schema is None or self.has_problems:
            self.problem = "The simulated model needs an output schema without problems."
            return
        output = invent_value(self.step.output_schema, seed=self.step.name)
        self._keep_output(output)
        self._judge("What the simulated model answers", output)

    def judge_answer(self, answer: ToolReply | AttemptError, seconds: float) -> None:
        """Judge what a call brought, and put it into the field for pasted outputs: it can be checked again for free."""
        assert self.trial is not None
        title = "What the model answered"
        if isinstance(answer, AttemptError):
            attempt = self.trial.build_attempt(Outcome.ERRORED, error=answer)
            self._show_verdict(title, attempt, format_duration(seconds))
            return
        figures = self._describe_call(answer, seconds)
        if answer.arguments is None:
            attempt = self.trial.build_attempt(Outcome.INVALID, issues=answer.issues, raw_output=answer.raw)
            self._show_verdict(title, attempt, figures)
        else:
            output, notes = clean_output(answer.arguments)
            self._keep_output(output)
            self._judge(title, output, notes=notes, figures=figures)

    def _keep_output(self, output: dict[str, Any]) -> None:
        self.fields["pasted"] = _format(output)
        self.has_new_output = True

    def _describe_call(self, reply: ToolReply, seconds: float) -> str:
        usage = reply.usage
        tokens = f"{format_count(usage.prompt)} tokens in, {format_count(usage.completion)} out"
        cost = "nothing billed" if self.is_simulated else format_cost(usage.cost, usage.unpriced)
        parts = (reply.model, format_duration(seconds), tokens if usage.reported else "tokens not reported", cost)
        return show_invisible(" · ".join(part for part in parts if part))

    def _judge(self, title: str, output: dict[str, Any], *, notes: Any = (), figures: str = "") -> None:
        if self.trial is None:
            self.problem = "First choose what the step is tried on: audits may read it."
            return
        try:
            attempt, _ = self.trial.judge(output, registry, notes=notes)
        except SpecError as error:
            self.problem = f"The output schema can't be used yet. {error.problems[0].message}"
        else:
            self._show_verdict(title, attempt, figures)

    def _show_verdict(self, title: str, attempt: Attempt, figures: str = "") -> None:
        """Explain an attempt as run pages do, though no row is stored."""
        row = models.Attempt(step=models.Step(index=self.index), number=attempt.number)
        ordered = sorted(attempt.issues, key=lambda issue: -issue.severity.weight)
        error = attempt.error
        issues = build_issues(row, attempt.issues)
        self.verdict = {
            "title": title,
            "badge": STATES[attempt.outcome.value],
            "figures": figures,
            "error": "" if error is None else f"{error.message}{f' (HTTP {error.status})' if error.status else ''}",
            "reason": str(cut_text(attempt.failure_reason or "")),
            "checklist": build_checklist(self.step, attempt.outcome.value, issues, attempt.output, prefix=None),
            "issues": list_issue_lines(ordered[:MAX_ISSUES], attempt.output),
            "more": max(len(ordered) - MAX_ISSUES, 0),
            "output": None if attempt.output is None else list_json(attempt.output),
            # What came back, where it is not the output.
            "raw_output": None if attempt.raw_output is None else list_json(attempt.raw_output),
        }

    @property
    def announcement(self) -> str:
        """What screen readers announce of the answer."""
        if self.verdict is not None:
            return f"{self.verdict['title']}: {self.verdict['badge'].word}."
        is_ready = self.preview.request is not None
        return self.problem or (
            "The request is up to date." if is_ready else "There is no request. See the problem in the panel."
        )


def _format(value: Any) -> str:
    return show_invisible(dump_json(value, indent=2))
