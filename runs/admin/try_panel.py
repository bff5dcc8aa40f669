"""The panel that tries a step in the flow editor: what was chosen in it, what comes of it, and its view.

The page posts the whole editor and the panel's own fields. The answer is always the whole panel as HTML, or a sentence
as JSON. Nothing of the page is stored.
"""

from __future__ import annotations

import copy
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db.models import Exists, OuterRef
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import render
from django.urls import URLPattern, path
from django.views.decorators.http import require_POST

from flows.admin.access import require_permission
from flows.admin.draft import FlowDraft
from flows.admin.flow_admin import FlowAdmin
from flows.engine.errors import SpecError
from flows.engine.history import Attempt, AttemptError, History, Outcome
from flows.engine.json_values import clean_value, dump_json, parse_object
from flows.engine.judging import clean_output
from flows.engine.model_calls import resolve_spec
from flows.engine.plugins import registry
from flows.engine.reply import ToolReply
from flows.engine.simulated_model import invent_value
from flows.engine.spec import FlowSpec, StepSpec
from flows.models import Flow
from flows.providers import build_providers, default_model_settings
from flows.throttle import limit_rate
from runs import models
from runs.audit_log.events import AuditAction, log_audit_event
from runs.formatting import format_cost
from runs.history.json_lines import list_json
from runs.history.texts import show_invisible
from runs.models import Run
from runs.pages.attempt_view import view_attempt
from runs.pages.badges import STATES
from runs.pages.input_form import example_input
from runs.pages.model_request import ModelRequest, read_model_request
from runs.request_slots import release_slot
from runs.stored_history import build_issues, load_history
from runs.try_out.model_call import NotSentError, call_model
from runs.try_out.trial import (
    Preview,
    Trial,
    TrialError,
    fetch_run,
    find_audited_output,
    try_on_run,
    try_on_values,
)

MAX_RUNS_OFFERED = 20
"""The latest runs of a flow that can be chosen from a list; any other is named by its number."""
RUN, TYPED, PASTED = "run", "typed", "pasted"
"""The values of the panel's radio buttons, and of the list of outputs beside numbers of attempts."""
NO_RUNS = "Your account may not see runs (it lacks “runs.view_run”). Type the values instead."


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
    if action not in {"open", "preview", "judge", "call"}:
        return _refuse("Unknown action. Reload the page and try again.", 400)
    flow = None
    if number := request.POST.get("flow", ""):
        flow = Flow.objects.filter(pk=_parse_number(number)).first()
        if flow is None:
            return _refuse("This flow was deleted.", 404)
    # Reading the page writes into the flow that it is given.
    draft = flow_admin.read_posted(request, copy.copy(flow))
    index = draft.find_step(request.POST.get("try_step", ""))
    if index is None:
        return _refuse("This step is no longer on the page. Close this panel, and try another step.", 404)
    panel = Panel(request, flow, draft, index)
    if action == "call" and panel.spec is not None:
        return _call_model(request, panel, flow_admin)
    if action == "judge":
        panel.judge_chosen()
    return _show(request, panel)


@limit_rate("try-call", most=10, seconds=60)
def _call_model(request: HttpRequest, panel: Panel, flow_admin: FlowAdmin) -> HttpResponse:
    if not panel.can_call:
        raise PermissionDenied("You may not call the model: your account lacks “runs.add_run”.")
    body = panel.preview.request
    if panel.trial is None or body is None or panel.obstacle:
        panel.verdict = {"problem": panel.obstacle}
        return _show(request, panel)
    try:
        with release_slot():
            answer, seconds = call_model(panel.trial, body, flow_id=panel.flow.pk if panel.flow else None)
    except NotSentError as error:
        panel.verdict = {"problem": str(error)}
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
    return render(request, "admin/flows/flow/try/panel.html", {"panel": panel, **panel.verdict})


def _refuse(sentence: str, status: int) -> HttpResponse:
    return JsonResponse({"error": sentence}, status=status)


class Panel:
    """The panel of one step; its template reads the attributes."""

    def __init__(self, request: HttpRequest, flow: Flow | None, draft: FlowDraft, index: int) -> None:
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
        if draft.spec is not None:
            self.spec = resolve_spec(draft.spec, default_model_settings(), build_providers())
        errors = list(draft.list_errors())
        self.errors = list(draft.list_step_errors(index)) if self.spec else errors
        self.other_errors = len(errors) - len(self.errors)
        self.runs: list[Any] = []
        self.run_id: int | None = None
        self.problems: dict[str, str] = {}
        """A sentence for each field that can't be used: ``run``, ``input``, ``output-2``."""
        self.feedback_count = _parse_number(self.fields.get("after", ""))
        self.has_new_output = False
        """Whether an answer was put into the field for pasted outputs."""
        self.preview = Preview()
        self.verdict: dict[str, Any] = {}
        """What the template shows below the output: a ``problem``, or an ``attempt`` with its checklist."""
        self.trial = None if self.spec is None else self._begin_trial(self.spec)
        if self.judged_attempt is None and self.fields.get("judged") != PASTED:
            self.fields["judged"] = str(self.stored[-1].number) if self.stored else PASTED
        if self.trial is not None:
            self.preview = self.trial.preview(registry)
            if self.preview.output is not None:
                self._judge("The computed output", self.preview.output, notes=self.preview.notes)

    # What it is tried on

    def _begin_trial(self, spec: FlowSpec) -> Trial | None:
        """The step on what was chosen. If nothing was: on the latest run that reached it, else on typed values.

        For the first step any run will do. The typed values are those of that run, else examples that fit the schemas.
        """
        if self.flow is not None and self.can_see_runs:
            self.runs = self._fetch_runs(self.flow)
        is_new, history = self.source not in {RUN, TYPED}, None
        if is_new:
            latest = self.runs[0] if self.runs else None
            chosen = next((run for run in self.runs if run.has_step), latest if self.index == 1 else None)
            self.fields["source"] = RUN if chosen else TYPED
            self.fields["run"] = str((chosen or latest).pk) if latest else ""
        try:
            if self.source == RUN or (is_new and self.runs):
                run = self._fetch_chosen_run()
                history = load_history(run)
            if is_new:
                self._fill(spec, history)
            if self.source == TYPED or history is None:
                return self._read_typed(spec)
            # Another run may have been chosen, which lacks the attempts that were chosen of the last one.
            if self.feedback_count > len(history.attempts(self.index)):
                self.feedback_count = 0
            self.run_id = run.pk
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
            raise TrialError("run", NO_RUNS)
        typed = self.fields.get("number", "").strip() or self.fields.get("run", "")
        number = _parse_number(typed.removeprefix("#"))
        if not number:
            raise TrialError("run", f"“{typed[:40]}” is not a run number. Write it like 12.")
        return fetch_run(self.flow.pk if self.flow else None, number)

    def _fill(self, spec: FlowSpec, history: History | None) -> None:
        can_invent = not self.errors and not self.other_errors
        input = history.initial_input if history else example_input(spec.input_schema)
        if input is None:
            input = invent_value(spec.input_schema, seed=spec.name) if spec.input_schema and can_invent else {}
        self.fields["input"] = _format(input)
        for position, step in enumerate(spec.steps[: self.index - 1], start=1):
            final = history.final(position) if history else None
            output = final.usable_output if final else None
            if output is None and can_invent and step.output_schema is not None:
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
    def source(self) -> str:
        return self.fields.get("source", "")

    @property
    def step(self) -> StepSpec:
        assert self.spec is not None
        return self.spec.step(self.index)

    @property
    def earlier_steps(self) -> list[tuple[int, str, str]]:
        """The steps before this one: index, name, and the output that is typed for it."""
        assert self.spec is not None
        steps = enumerate(self.spec.steps[: self.index - 1], start=1)
        return [(position, step.name, self.fields.get(f"output-{position}", "")) for position, step in steps]

    # The request, and a call

    @property
    def model_request(self) -> ModelRequest | None:
        """The request as people read it."""
        return None if self.preview.request is None else read_model_request(self.preview.request)

    @property
    def obstacle(self) -> str:
        """Why the model can't be called now; empty if it can."""
        if not self.can_call:
            return "Your account may not call the model: it lacks “runs.add_run”."
        if self.step.is_local:
            return "This step calls no model."
        if self.errors:
            return "Fix the problems of this step first: a call may cost money."
        if self.preview.request is None:
            return "There is no request to send yet."
        return build_providers().split(self.step.model or "")[0].find_problem() or ""

    @property
    def is_simulated(self) -> bool:
        """Whether the simulated model answers and nothing is billed."""
        return build_providers().split(self.step.model or "")[0].is_simulated

    # An output

    @property
    def stored(self) -> list[Attempt]:
        """The attempts of the step, in the run that it is tried on, whose output can be judged."""
        attempts = self.trial.attempts if self.trial else ()
        return [attempt for attempt in attempts if find_audited_output(attempt) is not None]

    @property
    def judged_attempt(self) -> Attempt | None:
        """The stored attempt whose output is to be judged; None for a pasted one."""
        return next((attempt for attempt in self.stored if str(attempt.number) == self.fields.get("judged")), None)

    def judge_chosen(self) -> None:
        """Judge the output that is chosen or pasted."""
        if self.trial is None:
            self.verdict = {"problem": "First choose what the step is tried on: audits may read it."}
        elif attempt := self.judged_attempt:
            output = find_audited_output(attempt)
            assert output is not None
            self._judge(f"Attempt {attempt.number} of run {self.run_id}", output, stored=attempt)
        else:
            try:
                output = clean_value(parse_object(self.fields.get("pasted", ""))).value
            except ValueError as error:
                self.verdict = {"problem": f"The pasted output can't be read. {error}"}
            else:
                self._judge("The pasted output", output)

    def judge_answer(self, answer: ToolReply | AttemptError, seconds: float) -> None:
        """Judge what a call brought, and put it into the field for pasted outputs: it can be checked again for free."""
        assert self.trial is not None
        title = "What the model answered"
        if isinstance(answer, AttemptError):
            self._show_verdict(title, self.trial.build_attempt(Outcome.ERRORED, error=answer), seconds=seconds)
        elif answer.arguments is None:
            attempt = self.trial.build_attempt(Outcome.INVALID, issues=answer.issues, raw_output=answer.raw)
            self._show_verdict(title, attempt, reply=answer, seconds=seconds)
        else:
            output, notes = clean_output(answer.arguments)
            self.fields |= {"judged": PASTED, "pasted": _format(output)}
            self.has_new_output = True
            self._judge(title, output, notes=notes, reply=answer, seconds=seconds)

    def _judge(self, title: str, output: dict[str, Any], *, notes: Any = (), **shown: Any) -> None:
        assert self.trial is not None
        try:
            attempt, _ = self.trial.judge(output, registry, notes=notes)
        except SpecError as error:
            self.verdict = {"problem": f"The output schema can't be used yet. {error.problems[0].message}"}
        else:
            self._show_verdict(title, attempt, **shown)

    def _show_verdict(self, title: str, attempt: Attempt, **shown: Any) -> None:
        """Show an attempt as run pages do, though no row is stored."""
        row = models.Attempt(
            step=models.Step(index=self.index, name=self.step.name),
            number=attempt.number,
            outcome=attempt.outcome.value,
            output=attempt.output,
            failure_reason=attempt.failure_reason or "",
            error=attempt.error.model_dump() if attempt.error else None,
        )
        raw_output = None
        if attempt.output is None:
            row.unusable_output = attempt.raw_output  # type: ignore[attr-defined]  # where run pages annotate it
        elif attempt.raw_output is not None:
            raw_output = list_json(attempt.raw_output)
        self.verdict = {
            "title": title,
            "attempt": view_attempt(row, build_issues(row, attempt.issues), Run(), self.step),
            "raw_output": raw_output,
            "cost": format_cost(shown["reply"].usage.cost, shown["reply"].usage.unpriced) if shown.get("reply") else "",
            "stored_badge": STATES[shown["stored"].outcome] if shown.get("stored") else None,
            **shown,
        }

    @property
    def announcement(self) -> str:
        """What screen readers are told of the answer."""
        if attempt := self.verdict.get("attempt"):
            return f"{self.verdict['title']}: {STATES[attempt.state].word}."
        is_ready = self.preview.request is not None
        words = "The request is up to date." if is_ready else "There is no request. See the problem in the panel."
        return str(self.verdict.get("problem", words))


def _format(value: Any) -> str:
    return show_invisible(dump_json(value, indent=2))


def _parse_number(text: str) -> int:
    """A whole number as it was typed; 0 for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0
