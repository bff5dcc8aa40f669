"""Pages that start and cancel runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from flows.engine.errors import InputError, Problem, SpecError
from flows.engine.json_values import dump_json, parse_object
from flows.engine.running import check_input
from flows.models import Flow, FlowVersion
from runs.history.json_lines import show_invisible
from runs.models import Run
from runs.models.run import REMOVED_INPUT
from runs.pages.access import require_permission
from runs.pages.badges import STATES
from runs.pages.input_form import (
    FormProblem,
    InputField,
    bind_fields,
    build_fields,
    can_show,
    default_input,
    example_input,
    find_missing_texts,
    format_texts,
    parse_texts,
)
from runs.pages.run_options_form import KeptParts, RunOptions, list_problems
from runs.statistics.queue_state import runs_without_worker
from runs.submission import NotRunnableError, submit_run
from runs.submission import cancel_run as cancel_run_of

FORM, JSON = "form", "json"
"""The two views of one input."""

_NO_FORM = "The form can’t show this input exactly, because parts of it have no field. Edit it as JSON."


@require_safe
@require_permission("runs.add_run")
def choose_flow(request: HttpRequest) -> HttpResponse:
    """All flows that can be run."""
    flows = Flow.objects.runnable().select_related("live_version").defer("input_schema", "live_version__spec")
    context = {"flows": flows, "is_unattended": runs_without_worker().exists()}
    return render(request, "runs/choose_flow.html", context)


@dataclass(frozen=True, slots=True)
class _Choice:
    """Which version runs, and what else stands in the address of the form."""

    flow: Flow
    version: FlowVersion
    source: Run | None
    """The run whose input was filled in."""
    is_as_asked: bool = True
    """Whether the version is the one that was asked for, if any was."""

    @property
    def is_live(self) -> bool:
        return self.version.pk == self.flow.live_version_id

    @property
    def others(self) -> tuple[FlowVersion, ...]:
        """The versions that can be taken instead: the live one, if any is, and that of the earlier run."""
        versions = [self.flow.live_version, self.source.version if self.source else None]
        others = {version.pk: version for version in versions if version and version.pk != self.version.pk}
        return tuple(others.values())


@dataclass
class _Draft:
    """An input that is being written: as fields or as JSON, with what is wrong with it."""

    fields: tuple[InputField, ...]
    view: str
    texts: dict[str, str] = field(default_factory=dict)
    json: str = ""
    options: RunOptions = field(default_factory=lambda: RunOptions({}))
    problems: list[Problem] = field(default_factory=list)
    option_problems: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @classmethod
    def from_post(cls, fields: tuple[InputField, ...], request: HttpRequest) -> _Draft:
        """A draft as it was typed."""
        view = FORM if fields and request.POST.get("view") == FORM else JSON
        texts = {name: str(text) for name, text in request.POST.items() if name.startswith("input/")}
        json = request.POST.get("json", "").replace("\r\n", "\n")
        return cls(fields, view, texts=texts, json=json, options=RunOptions.from_post(request.POST))

    def parse(self) -> Any:
        """The input that was typed; what is wrong with it goes to ``problems``."""
        if self.view == FORM:
            value, self.problems = parse_texts(self.fields, self.texts)
            self.problems += find_missing_texts(self.fields, self.texts)
            return value
        try:
            return parse_object(self.json)
        except ValueError as error:
            self.problems = [Problem("", str(error))]
            return None

    def fill_in(self, value: Any) -> None:
        """Hold ``value``: in the fields if they can show it and are wanted, else as JSON, with a note."""
        self.json, self.problems = show_invisible(dump_json(value, indent=2)), []
        if self.view == FORM and can_show(self.fields, value):
            self.texts = format_texts(self.fields, value)
        else:
            self.notes += [_NO_FORM] if self.fields and self.view == FORM else []
            self.view = JSON

    def switch_view(self) -> None:
        """Go over to the other view with everything that was typed; stay if that isn't possible."""
        value, is_form = self.parse(), self.view == FORM
        if is_form or not self.problems:
            text, self.view = self.json, JSON if is_form else FORM
            self.fill_in(value)
            self.json = self.json if is_form else text

    def change_fields(self, fields: tuple[InputField, ...]) -> _Draft:
        """The same for the fields of another version: what was typed comes along."""
        value = self.parse()
        draft = _Draft(fields, self.view, json=self.json, options=self.options)
        if self.view == FORM:
            draft.fill_in(value)
        return draft

    def list_problems(self, input_problems: tuple[FormProblem, ...]) -> tuple[FormProblem, ...]:
        """The problems of the input for the summary; in the JSON view all of them lead to its one field."""
        if self.view == FORM:
            return input_problems
        return tuple(FormProblem("input-json", one.path or "Input", one.message) for one in self.problems)


def _can_parse(version: FlowVersion) -> bool:
    """Whether this release understands the definition."""
    try:
        return bool(version.flow_spec)
    except SpecError:
        return False


@require_http_methods(["GET", "HEAD", "POST"])
@require_permission("runs.add_run")
def start_run(request: HttpRequest, flow_name: str) -> HttpResponse:
    """The input of a new run, as a form or as JSON; sending it starts the run.

    ``from`` is the number of the run that is run again: its input is filled in. ``version`` is that of the version to
    run, if not the live one.
    """
    flow = Flow.objects.select_related("live_version").filter(name=flow_name).first()
    if flow is None:
        raise Http404
    asked = request.POST if request.method == "POST" else request.GET
    choice, notes = (None, []) if flow.is_archived else _parse_choice(request, flow, asked)
    if choice is None or not _can_parse(choice.version):
        context: dict[str, Any] = {"flow": flow, "notes": notes}
        if choice is not None:
            context = {"flow": flow, "version": choice.version, "is_live": choice.is_live}
        return render(request, "runs/not_runnable.html", context, status=409)
    fields = build_fields(choice.version.flow_spec.input_schema)
    if request.method != "POST":
        return _render_draft(request, choice, _prefill(request, choice, fields), notes)
    draft = _Draft.from_post(fields, request)
    if "switch" in request.POST:
        draft.switch_view()
    elif "take" in request.POST:
        return _take_version(request, choice, draft)
    elif choice.is_as_asked and (run := _submit(request, choice, draft)):
        return redirect("runs:page", run_id=run.pk)
    return _render_draft(request, choice, draft, notes)


def _submit(request: HttpRequest, choice: _Choice, draft: _Draft) -> Run | None:
    """The run that is started; None if something is wrong, which the draft then says."""
    value = draft.parse()
    options, draft.option_problems = draft.options.parse(choice.source)
    version = None if choice.is_live else choice.version
    user = request.user if request.user.pk else None
    try:
        if draft.problems:
            return None
        if draft.option_problems:
            # All problems are shown together.
            check_input(value, choice.version.flow_spec.input_schema)
            return None
        return submit_run(flow=choice.flow, version=version, input=value, started_by=user, **options)
    except InputError as error:
        draft.problems = list(error.problems)
    except NotRunnableError as error:
        draft.notes.append(str(error))
    return None


def _take_version(request: HttpRequest, choice: _Choice, draft: _Draft) -> HttpResponse:
    """The page for another version, with what was typed."""
    taken, notes = _parse_choice(request, choice.flow, {**request.POST.dict(), "version": request.POST["take"]})
    if taken is not None and not _can_parse(taken.version):
        taken, notes = choice, [f"This release of ToolFlow can’t read version {taken.version.number}."]
    taken = taken or choice
    changed = draft.change_fields(build_fields(taken.version.flow_spec.input_schema))
    return _render_draft(request, taken, changed, notes)


def _parse_choice(request: HttpRequest, flow: Flow, asked: Mapping[str, str]) -> tuple[_Choice | None, list[str]]:
    """The version to run and the run whose input is filled in; a sentence for each that does not exist.

    None if no existing version is asked for and none is live.
    """
    notes = []
    source = None
    if text := asked.get("from", ""):
        source = Run.objects.select_related("version").filter(pk=_parse_number(text), flow=flow).first()
        if source is None or not request.user.has_perm("runs.view_run"):
            source = None
            notes.append(f"This flow has no run #{text[:20]} whose input could be filled in.")
        elif source.outputs_removed_at is not None:
            notes.append(f"The input of run #{source.pk} can’t be filled in. {REMOVED_INPUT}")
            source = None
    version, is_as_asked = flow.live_version, True
    if text := asked.get("version", ""):
        found = flow.versions.filter(number=_parse_number(text)).first()
        if found is None:
            live = f" The form is for the live version, {version.number}." if version else ""
            notes.append(f"This flow has no version {text[:20]}.{live}")
        version, is_as_asked = found or version, found is not None
    return _Choice(flow, version, source, is_as_asked) if version else None, notes


def _parse_number(text: str) -> int:
    """A number from an address; 0 for a text that can't be the number of a row."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _prefill(request: HttpRequest, choice: _Choice, fields: tuple[InputField, ...]) -> _Draft:
    schema = choice.version.flow_spec.input_schema
    draft = _Draft(fields, JSON if request.GET.get("view") == JSON or not fields else FORM)
    if choice.source:
        draft.options = RunOptions.from_run(choice.source)
        draft.fill_in(choice.source.input)
    elif "example" in request.GET:
        draft.fill_in(example_input(schema) or default_input(schema))
    elif draft.view == FORM:
        # Defaults seldom make a whole input: the rest is what the form asks for.
        draft.texts = format_texts(fields, default_input(schema))
    else:
        draft.fill_in(default_input(schema))
    return draft


def _render_draft(request: HttpRequest, choice: _Choice, draft: _Draft, notes: list[str]) -> HttpResponse:
    bound, input_problems = bind_fields(draft.fields, draft.texts, draft.problems)
    options = draft.options.build_fields(choice.version.flow_spec, draft.option_problems)
    problems = (*draft.list_problems(input_problems), *list_problems(options))
    example = request.method != "POST" and example_input(choice.version.flow_spec.input_schema)
    context = {
        "flow": choice.flow,
        "choice": choice,
        "draft": draft,
        "notes": [*notes, *draft.notes],
        "fields": bound,
        "problems": problems,
        "has_example": bool(example),
        "rows": min(max(draft.json.count("\n") + 2, 12), 40),
        "options": options,
        "kept": KeptParts.of_run(choice.source),
        "is_unattended": runs_without_worker().exists(),
    }
    return render(request, "runs/start_run.html", context, status=422 if problems else 200)


@require_http_methods(["GET", "HEAD", "POST"])
@require_permission("runs.change_run")
def cancel_run(request: HttpRequest, run_id: int) -> HttpResponse:
    """Ask whether to cancel a run, and do it. One that has ended meanwhile stays as it is, with a sentence."""
    run = Run.objects.select_related("flow").filter(pk=run_id).first()
    if run is None:
        raise Http404
    if request.method != "POST" and not run.has_ended:
        return render(request, "runs/cancel_run.html", {"run": run})
    if request.method == "POST" and cancel_run_of(run=run):
        messages.success(request, "Run cancelled." if run.has_ended else "Cancellation requested.")
    else:
        word = STATES[run.status].word.lower()
        messages.info(request, f"The run had already ended ({word}). Nothing was changed.")
    return redirect("runs:page", run_id=run_id)
