"""Pages that start and cancel runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe

from flows.engine.errors import InputError, Problem
from flows.engine.json_values import dump_json, parse_object
from flows.engine.schemas import parse_input
from flows.models import Flow, FlowVersion
from runs.filter_fields import parse_run_number
from runs.formatting import format_budget
from runs.history.texts import show_invisible
from runs.models import Priority, Run
from runs.models.run import REMOVED_INPUT
from runs.pages.access import confirm, refuse, require_permission
from runs.pages.attempts import read_spec
from runs.pages.badges import STATES
from runs.pages.input_form import (
    InputField,
    bind_fields,
    build_fields,
    can_show,
    default_input,
    example_input,
    format_texts,
    parse_texts,
)
from runs.run_options import (
    MAX_LABEL_LENGTH,
    MAX_LABELS,
    PRIORITIES,
    list_lasting_labels,
    parse_options,
    validate_metadata,
)
from runs.statistics.queue_state import runs_without_worker
from runs.submission import NotRunnableError, find_own_limits, submit_run
from runs.submission import cancel_run as cancel_run_of
from runs.webhooks.addresses import find_target_problem

FORM, JSON = "form", "json"
"""The two views of one input."""

OPTIONS: Mapping[str, tuple[str, str, str]] = {
    "labels": (
        "text",
        "Labels",
        f"Separate them with commas: up to {MAX_LABELS} labels of up to {MAX_LABEL_LENGTH} characters each.",
    ),
    "priority": ("choice", "Priority", "Queued runs with a higher priority start first."),
    "token_budget": ("number", "Token budget", "Tokens. Checked before each call, so the last call may exceed it."),
    "cost_budget": ("number", "Cost budget", "USD. Checked before each call; calls at an unknown price count as 0."),
    "time_limit": ("number", "Time limit", "Seconds from the start of the run to its end."),
}
"""What a run may be given besides its input: kind, label and help of each field."""

_NO_FORM = "The form can’t show this input exactly, because parts of it have no field. Edit it as JSON."
_WITHOUT = "The new run starts without it."


@require_safe
@require_permission("runs.add_run")
def choose_flow(request: HttpRequest) -> HttpResponse:
    """All flows that can be run."""
    flows = Flow.objects.runnable().select_related("live_version").defer("live_version__spec")
    context = {"flows": flows, "has_no_worker": runs_without_worker().exists()}
    return render(request, "runs/choose_flow.html", context)


@dataclass
class StartForm:
    """The form of a new run: its input, as fields or as JSON, its options, and what is wrong with them."""

    flow: Flow
    version: FlowVersion
    source: Run | None
    """The run whose input was filled in."""
    notes: list[str]
    view: str = JSON
    fields: Sequence[InputField] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    json: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    """What was typed, by the names of ``OPTIONS``."""
    keeps: bool = True
    """Whether the metadata and the webhook of ``source`` are wanted."""
    problems: list[Problem] = field(default_factory=list)
    option_problems: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.fields = build_fields(self.schema)

    @property
    def schema(self) -> dict[str, Any] | None:
        """The input schema."""
        return self.version.flow_spec.input_schema

    @property
    def is_live(self) -> bool:
        """Whether the version is the live one."""
        return self.version.pk == self.flow.live_version_id

    @property
    def other_versions(self) -> Sequence[FlowVersion]:
        """The versions that can be taken instead: the live one, if any is, and that of the earlier run."""
        versions = [self.flow.live_version, self.source.version if self.source else None]
        return list({one.pk: one for one in versions if one and one.pk != self.version.pk}.values())

    def prefill(self, *, view: str, wants_example: bool) -> None:
        """Fill in the input of the earlier run, the example if it is wanted, or the defaults."""
        self.view = JSON if view == JSON or not self.fields else FORM
        if self.source:
            self.options = _list_options(self.source)
            self.fill_in(self.source.input)
        elif wants_example:
            self.fill_in(example_input(self.schema) or default_input(self.schema))
        elif self.view == FORM:
            # Defaults seldom make a whole input: the rest is what the form asks for.
            self.texts = format_texts(self.fields, default_input(self.schema))
        else:
            self.fill_in(default_input(self.schema))

    def read(self, post: QueryDict) -> None:
        """Take over what was typed."""
        self.view = FORM if self.fields and post.get("view") == FORM else JSON
        self.texts = {name: str(text) for name, text in post.items() if name.startswith("input/")}
        self.json = post.get("json", "").replace("\r\n", "\n")
        self.options = {name: post.get(name, "").strip() for name in OPTIONS}
        self.keeps = "keep" in post

    def parse(self) -> Any:
        """The input that was typed; what is wrong with it goes to ``problems``."""
        if self.view == FORM:
            value, self.problems = parse_texts(self.fields, self.texts)
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
        value, typed = self.parse(), self.json
        if self.view == FORM:
            self.view = JSON
            self.fill_in(value)
        elif not self.problems:
            self.view = FORM
            self.fill_in(value)
            # What stays JSON stays as it was typed.
            self.json = typed

    def take_version(self, version: FlowVersion) -> None:
        """Go over to another version; what was typed comes along."""
        value = self.parse()
        self.version, self.fields, self.problems = version, build_fields(version.flow_spec.input_schema), []
        if self.view == FORM:
            self.fill_in(value)

    def submit(self, request: HttpRequest) -> Run | None:
        """The run that is started; None if something is wrong, which the form then says."""
        value = self.parse()
        options, self.option_problems = parse_options(self.options)
        if self.source is not None:
            kept = find_kept_parts(self.source)[0] if self.keeps else {}
            options = {"source": self.source, **kept, **options}
        try:
            if self.problems:
                return None
            if self.option_problems:
                # All problems are shown together.
                parse_input(value, self.schema)
                return None
            user = request.user if request.user.pk else None
            version = None if self.is_live else self.version
            return submit_run(flow=self.flow, version=version, input=value, started_by=user, **options)
        except InputError as error:
            self.problems = list(error.problems)
        except NotRunnableError as error:
            self.notes.append(str(error))
        return None

    def render(self, request: HttpRequest) -> HttpResponse:
        """The page."""
        problems = bind_fields(self.fields, self.texts, self.problems)
        if self.view == JSON:
            problems = [("input-json", one.path or "Input", one.message) for one in self.problems]
        options = self._build_option_fields()
        problems = [*problems, *((one.id, one.label, text) for one in options for text in one.problems)]
        kept, kept_problems = find_kept_parts(self.source)
        context = {
            "form": self,
            "flow": self.flow,
            "problems": problems,
            "warnings": self.notes,
            "has_example": request.method != "POST" and example_input(self.schema),
            "rows": min(max(self.json.count("\n") + 2, 12), 40),
            "options": options,
            "has_options": any(text and (name, text) != ("priority", "normal") for name, text in self.options.items()),
            "kept": " and ".join({"metadata": "metadata", "webhook_url": "webhook"}[name] for name in kept),
            "kept_problems": kept_problems,
            "has_no_worker": runs_without_worker().exists(),
        }
        return render(request, "runs/start_run.html", context, status=422 if problems else 200)

    def _build_option_fields(self) -> Sequence[InputField]:
        spec = self.version.flow_spec
        budgets = {
            "token_budget": spec.token_budget,
            "cost_budget": spec.cost_budget and format_budget(spec.cost_budget),
            "time_limit": spec.time_limit,
        }
        inherited = {name: f"{value}, from the flow" for name, value in budgets.items() if value}
        return [
            InputField(
                name=name,
                kind=kind,
                label=label,
                help=help,
                is_required=name == "priority",
                choices=[(value, str(priority.label)) for value, priority in PRIORITIES.items()],
                placeholder=inherited.get(name, "None" if name == "labels" else "No limit"),
                id=f"option-{name}",
                text=self.options.get(name) or ("normal" if name == "priority" else ""),
                problems=[self.option_problems[name]] if name in self.option_problems else [],
            )
            for name, (kind, label, help) in OPTIONS.items()
        ]


def _list_options(run: Run) -> dict[str, str]:
    """What an earlier run was given beyond what its version says, as texts."""
    limits = {name: own for name, own in find_own_limits(run, read_spec(run)).items() if own is not None}
    # Trailing zeros of the database's column mean nothing.
    texts = {name: f"{own.normalize():f}" if isinstance(own, Decimal) else str(own) for name, own in limits.items()}
    if run.priority != Priority.NORMAL:
        texts["priority"] = Priority(run.priority).name.lower()
    return {**texts, "labels": ", ".join(list_lasting_labels(run.labels))}


def find_kept_parts(run: Run | None) -> tuple[dict[str, Any], Sequence[str]]:
    """What a re-run takes over although no field shows it: metadata and webhook, as ``submit_run`` takes them.

    The second value has a sentence for each that can't be kept.
    """
    values: dict[str, Any] = {}
    problems = []
    if run is not None and run.metadata:
        try:
            validate_metadata(run.metadata)
            values["metadata"] = run.metadata
        except ValueError as error:
            problems.append(f"The metadata of run #{run.pk} can’t be kept: {error} {_WITHOUT}")
    if run is not None and run.webhook_url:
        # The rules for addresses may have become stricter since.
        if problem := find_target_problem(run.webhook_url):
            problems.append(f"The webhook of run #{run.pk} can’t be kept: {problem} {_WITHOUT}")
        else:
            values["webhook_url"] = run.webhook_url
    return values, problems


@require_http_methods(["GET", "HEAD", "POST"])
@require_permission("runs.add_run")
def start_run(request: HttpRequest, flow_name: str) -> HttpResponse:
    """The input of a new run, as a form or as JSON; sending it starts the run.

    ``from`` is the number of the run that is run again: its input is filled in. ``version`` is that of the version to
    run, if not the live one.
    """
    flow = get_object_or_404(Flow.objects.select_related("live_version"), name=flow_name)
    is_sent = request.method == "POST"
    asked = request.POST if is_sent else request.GET
    notes: list[str] = []
    source = _fetch_source(request, flow, asked.get("from", ""), notes)
    found = _fetch_version(flow, asked.get("version", ""), notes)
    version = found or flow.live_version
    if flow.is_archived or version is None or version.readable_spec is None:
        return _refuse(request, flow, version, notes)
    form = StartForm(flow, version, source, notes)
    if not is_sent:
        form.prefill(view=request.GET.get("view", FORM), wants_example="example" in request.GET)
        return form.render(request)
    form.read(request.POST)
    if "switch" in request.POST:
        form.switch_view()
    elif "take" in request.POST:
        taken = _fetch_version(flow, request.POST["take"], notes)
        if taken and taken.readable_spec is None:
            notes.append(f"This release of ToolFlow can’t read version {taken.number}.")
        elif taken:
            form.take_version(taken)
    elif found and (run := form.submit(request)):
        return redirect("runs:page", run_id=run.pk)
    return form.render(request)


def _refuse(request: HttpRequest, flow: Flow, version: FlowVersion | None, notes: list[str]) -> HttpResponse:
    """The page of a flow that can't be run."""
    back, back_url = "Other flows", reverse("runs:choose-flow")
    if flow.is_archived:
        reason = "The flow is archived. Unarchive it in the admin to run it."
    elif version is None:
        reason = "The flow has no live version. Save it in the admin without errors, or make one of its versions live."
    elif version.pk == flow.live_version_id:
        reason = f"This release of ToolFlow can’t read the live version, {version.number}. "
        reason += "Make another version live, or save the flow again in the admin."
    else:
        reason = f"This release of ToolFlow can’t read version {version.number}."
        if flow.live_version:
            back, back_url = "Run the live version", reverse("runs:start", args=[flow.name])
    heading = f"{flow.title} can’t be run"
    return refuse(request, heading, reason=reason, problems=notes, back=back, back_url=back_url, status=409)


def _fetch_source(request: HttpRequest, flow: Flow, text: str, notes: list[str]) -> Run | None:
    """The run whose input is filled in; a sentence goes to ``notes`` where that can't be."""
    if not text:
        return None
    run = Run.objects.select_related("version").filter(pk=parse_run_number(text) or 0, flow=flow).first()
    if run is None or not request.user.has_perm("runs.view_run"):
        notes.append(f"This flow has no run #{text[:20]} whose input could be filled in.")
        return None
    if run.outputs_removed_at is not None:
        notes.append(f"The input of run #{run.pk} can’t be filled in. {REMOVED_INPUT}")
        return None
    return run


def _fetch_version(flow: Flow, text: str, notes: list[str]) -> FlowVersion | None:
    """The version of this number, the live one if none is asked for; a sentence goes to ``notes`` if it isn't there."""
    if not text:
        return flow.live_version
    version = flow.versions.filter(number=parse_run_number(text) or 0).first()
    if version is None:
        live = f" The form is for the live version, {flow.live_version.number}." if flow.live_version else ""
        notes.append(f"This flow has no version {text[:20]}.{live}")
    return version


@require_http_methods(["GET", "HEAD", "POST"])
@require_permission("runs.change_run")
def cancel_run(request: HttpRequest, run_id: int) -> HttpResponse:
    """Ask whether to cancel a run, and do it. One that has ended meanwhile stays as it is, with a sentence."""
    run = get_object_or_404(Run.objects.select_related("flow"), pk=run_id)
    if request.method != "POST" and not run.has_ended:
        return confirm(
            request,
            "Cancel run",
            str(run),
            reason="A call in progress is aborted, and the provider may still bill it. Finished attempts are kept.",
            icon_name="stop",
            back="Keep running",
            back_url=reverse("runs:page", args=[run.pk]),
        )
    if request.method == "POST" and cancel_run_of(run=run):
        messages.success(request, "Run cancelled." if run.has_ended else "Cancellation requested.")
    else:
        word = STATES[run.status].word.lower()
        messages.info(request, f"The run had already ended ({word}). Nothing was changed.")
    return redirect("runs:page", run_id=run_id)
