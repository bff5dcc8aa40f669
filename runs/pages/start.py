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
from flows.models import Flow, FlowVersion
from runs.history.json_lines import show_invisible
from runs.models import Run
from runs.models.run import REMOVED_INPUT
from runs.pages.access import require_permission
from runs.pages.badges import STATES
from runs.pages.input_fields import InputField, build_fields, default_input, example_input, walk_fields
from runs.pages.input_form import bind_fields, can_show, read_value, write_texts
from runs.pages.run_options_form import KeptParts, RunOptions
from runs.statistics.queue_state import runs_without_worker
from runs.submission import NotRunnableError, submit_run
from runs.submission import cancel_run as cancel_run_of

FORM, JSON = "form", "json"
"""The two views of one input."""

_NO_FORM = "The form can’t show this input exactly: it has parts that no field stands for. It stays as JSON."


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
        """The versions that can be taken instead: the live one, if any is, and that of the run before."""
        live = self.flow.live_version
        versions = [*([live] if live else []), *([self.source.version] if self.source else [])]
        return tuple({version.pk: version for version in versions if version.pk != self.version.pk}.values())


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
    def from_value(cls, fields: tuple[InputField, ...], value: Any, *, view: str = FORM) -> _Draft:
        """A draft that holds ``value``, as JSON if the fields can't show it."""
        json = show_invisible(dump_json(value, indent=2))
        if view == FORM and can_show(fields, value):
            return cls(fields, FORM, texts=write_texts(fields, value), json=json)
        return cls(fields, JSON, json=json)

    @classmethod
    def from_post(cls, fields: tuple[InputField, ...], request: HttpRequest) -> _Draft:
        """A draft as it was typed."""
        view = FORM if fields and request.POST.get("view") == FORM else JSON
        texts = {name: str(text) for name, text in request.POST.items() if name.startswith("input/")}
        json = request.POST.get("json", "").replace("\r\n", "\n")
        return cls(fields, view, texts=texts, json=json, options=RunOptions.from_post(request.POST))

    def read(self) -> Any:
        """The input that was typed; what can't be read goes to ``problems``."""
        if self.view == FORM:
            value, self.problems = read_value(self.fields, self.texts)
            self.problems += _ask_for_texts(self.fields, self.texts)
            return value
        try:
            return parse_object(self.json)
        except ValueError as error:
            self.problems = [Problem("", str(error))]
            return None

    def switch_view(self) -> None:
        """Go over to the other view with everything that was typed; stay if that isn't possible."""
        value = self.read()
        if self.view == FORM:
            self.view, self.json, self.problems = JSON, show_invisible(dump_json(value, indent=2)), []
        elif not self.problems and can_show(self.fields, value):
            self.view, self.texts = FORM, write_texts(self.fields, value)
        elif not self.problems:
            self.notes.append(_NO_FORM)

    def change_fields(self, fields: tuple[InputField, ...]) -> _Draft:
        """The same for the fields of another version: what was typed comes along."""
        value = self.read()
        if self.view == JSON or value is None:
            return _Draft(fields, JSON, json=self.json, options=self.options)
        draft = _Draft.from_value(fields, value)
        draft.options = self.options
        if fields and draft.view == JSON:
            draft.notes.append(_NO_FORM)
        return draft


def _ask_for_texts(fields: tuple[InputField, ...], texts: dict[str, str]) -> list[Problem]:
    """A problem for each text that must be given and was left empty.

    An empty text fits the schema; of whoever sees a field that must be filled in it is a mistake.
    """
    return [
        Problem(field.pointer, "Write something here. An empty text can be given as JSON.")
        for field in walk_fields(fields)
        if field.kind in ("text", "long")
        and field.is_required
        and not field.is_nullable
        and not texts.get(field.name, "").strip()
    ]


def _is_readable(version: FlowVersion) -> bool:
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
    choice, notes = (None, []) if flow.is_archived else _read_choice(request, flow, asked)
    if choice is None:
        return render(request, "runs/not_runnable.html", {"flow": flow, "notes": notes}, status=409)
    if not _is_readable(choice.version):
        context = {"flow": flow, "version": choice.version, "is_live": choice.version == flow.live_version}
        return render(request, "runs/not_runnable.html", context, status=409)
    schema = choice.version.flow_spec.input_schema
    fields = build_fields(schema)
    if request.method != "POST":
        draft = _prefill(request, choice, fields, schema)
        draft.notes = notes + draft.notes
        return _render_draft(request, choice, draft, has_example=example_input(schema) is not None)
    draft = _Draft.from_post(fields, request)
    draft.notes += notes
    if "switch" in request.POST:
        draft.switch_view()
    elif "take" in request.POST:
        return _take_version(request, choice, draft)
    elif choice.is_as_asked:
        value = draft.read()
        chosen, draft.option_problems = draft.options.read(choice.source)
        if not draft.problems and not draft.option_problems:
            user = request.user if request.user.pk else None
            version = None if choice.is_live else choice.version
            try:
                run = submit_run(flow=flow, version=version, input=value, started_by=user, **chosen)
            except InputError as error:
                draft.problems = list(error.problems)
            except NotRunnableError as error:
                draft.notes.append(str(error))
            else:
                return redirect("runs:page", run_id=run.pk)
    return _render_draft(request, choice, draft, has_example=False)


def _take_version(request: HttpRequest, choice: _Choice, draft: _Draft) -> HttpResponse:
    """The page for another version, with what was typed."""
    asked = {**request.POST.dict(), "version": request.POST["take"]}
    taken, notes = _read_choice(request, choice.flow, asked)
    if taken is None:
        taken = choice
    elif not _is_readable(taken.version):
        taken, notes = choice, [f"This release of ToolFlow can’t read version {taken.version.number}."]
    changed = draft.change_fields(build_fields(taken.version.flow_spec.input_schema))
    changed.notes = notes + changed.notes
    return _render_draft(request, taken, changed, has_example=False)


def _read_choice(request: HttpRequest, flow: Flow, asked: Mapping[str, str]) -> tuple[_Choice | None, list[str]]:
    """The run to start from and the version to run; a sentence for each that there isn't.

    None if no version is asked for that there is, and none is live.
    """
    notes = []
    source = None
    if text := asked.get("from", ""):
        source = Run.objects.select_related("version").filter(pk=_read_number(text), flow=flow).first()
        if source is None or not request.user.has_perm("runs.view_run"):
            source = None
            notes.append(f"There is no run #{text[:20]} of this flow whose input could be filled in.")
        elif source.outputs_removed_at is not None:
            notes.append(f"Run #{source.pk} can’t be filled in. {REMOVED_INPUT}")
            source = None
    version, is_as_asked = flow.live_version, True
    if text := asked.get("version", ""):
        found = flow.versions.filter(number=_read_number(text)).first()
        if found is None:
            live = f"; this is its live version {version.number}" if version else ""
            notes.append(f"There is no version {text[:20]} of this flow{live}.")
        version, is_as_asked = found or version, found is not None
    return _Choice(flow, version, source, is_as_asked) if version else None, notes


def _read_number(text: str) -> int:
    """A number from an address; 0 for what is none that a row could have."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _prefill(
    request: HttpRequest, choice: _Choice, fields: tuple[InputField, ...], schema: dict[str, Any] | None
) -> _Draft:
    value: Any = default_input(schema)
    options = RunOptions({})
    view = JSON if request.GET.get("view") == JSON else FORM
    if choice.source:
        value, options = choice.source.input, RunOptions.from_run(choice.source)
    elif "example" in request.GET:
        value = example_input(schema) or value
    elif fields and view == FORM:
        # Defaults seldom make a whole input: the rest is what the form asks for.
        return _Draft(fields, FORM, texts=write_texts(fields, value))
    draft = _Draft.from_value(fields, value, view=view)
    if fields and view == FORM and draft.view == JSON:
        draft.notes.append(_NO_FORM)
    draft.options = options
    return draft


def _render_draft(request: HttpRequest, choice: _Choice, draft: _Draft, *, has_example: bool) -> HttpResponse:
    bound, placed = bind_fields(draft.fields, draft.texts, draft.problems)
    options = draft.options.build_fields(choice.version.flow_spec, draft.option_problems)
    context = {
        "flow": choice.flow,
        "choice": choice,
        "draft": draft,
        "fields": bound,
        "problems": placed,
        "has_example": has_example,
        "rows": min(max(draft.json.count("\n") + 2, 12), 40),
        "options": options,
        "kept": KeptParts.of_run(choice.source),
        "is_more_open": draft.options.is_used,
        "is_unattended": runs_without_worker().exists(),
    }
    is_refused = draft.problems or draft.option_problems
    return render(request, "runs/start_run.html", context, status=422 if is_refused else 200)


@require_http_methods(["GET", "HEAD", "POST"])
@require_permission("runs.change_run")
def cancel_run(request: HttpRequest, run_id: int) -> HttpResponse:
    """Ask whether to cancel a run, and do it. One that has ended meanwhile stays as it is, with a sentence."""
    run = Run.objects.select_related("flow").filter(pk=run_id).first()
    if run is None:
        raise Http404
    if request.method == "POST":
        if cancel_run_of(run=run):
            messages.success(request, "The run is being cancelled." if not run.has_ended else "The run is cancelled.")
        else:
            messages.info(request, f"The run had ended already: {STATES[run.status].word.lower()}.")
        return redirect("runs:page", run_id=run_id)
    if run.has_ended:
        messages.info(request, f"The run has ended already: {STATES[run.status].word.lower()}.")
        return redirect("runs:page", run_id=run_id)
    return render(request, "runs/cancel_run.html", {"run": run})
