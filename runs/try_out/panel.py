"""The panel that tries a step in the flow editor: what was chosen in it, and what it shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from django.db.models import Exists, OuterRef
from django.http import HttpRequest

from flows.admin.draft import FlowDraft, FormError
from flows.engine.history import Attempt, History
from flows.engine.json_values import clean_value, dump_json, parse_object
from flows.engine.model_calls import resolve_spec
from flows.engine.plugins import registry
from flows.engine.providers import Provider
from flows.engine.simulated_model import invent_value
from flows.engine.spec import FlowSpec, StepSpec
from flows.models import Flow
from flows.providers import build_providers, default_model_settings
from runs import models
from runs.models import Run
from runs.pages.attempt_view import view_attempt
from runs.pages.badges import STATES
from runs.pages.input_fields import default_input, example_input
from runs.pages.json_lines import list_json, show_invisible
from runs.pages.model_request import ModelRequest, read_model_request
from runs.stored_history import build_issues, load_history
from runs.try_out.model_call import CallResult
from runs.try_out.trial import (
    Preview,
    Trial,
    TrialError,
    Verdict,
    fetch_run,
    find_audited_output,
    try_on_run,
    try_on_texts,
)

RUN, TYPED, PASTED = "run", "typed", "pasted"
"""The values of the panel's radio buttons, and of the list of outputs beside numbers of attempts."""

MAX_RUNS_OFFERED = 20
"""The latest runs of a flow that can be chosen from a list; any other is named by its number."""
NO_RUNS = "Your account may not see runs (it lacks “runs.view_run”). Type the values instead."
_OUTPUT = "try_output_"


class Panel:
    """The posted panel and what comes of it; templates read it."""

    def __init__(self, request: HttpRequest, flow: Flow | None, draft: FlowDraft, index: int) -> None:
        """``flow`` is the stored one, None for a new one; ``index`` is the step's, counted from 1."""
        self.flow = flow
        self.index = index
        self.can_see_runs = request.user.has_perm("runs.view_run")
        self.can_call = request.user.has_perm("runs.add_run")
        self._read_fields(request.POST)
        self.spec: FlowSpec | None = None
        """The edited flow as it would run, also where something in it is wrong; None if it can't be read."""
        if draft.spec is not None:
            self.spec = resolve_spec(draft.spec, default_model_settings(), build_providers())
        errors = list(draft.list_errors())
        self.errors: list[FormError] = list(draft.list_step_errors(index)) if self.spec else errors
        self.other_errors = len(errors) - len(self.errors)
        self.runs: list[Any] = []
        self.trial: Trial | None = None
        self.trial_problems: dict[str, str] = {}
        self.run_id: int | None = None
        """The run that the step is tried on."""
        self._histories: dict[str, tuple[Run, History]] = {}

    def _read_fields(self, post: Mapping[str, Any]) -> None:
        """Read the panel's own fields; what no page of ours sends counts as empty."""

        def read(name: str) -> str:
            return str(post.get(name, "")).replace("\r\n", "\n")

        self.prefix = read("try_step")
        self.source = read("try_source") if read("try_source") in {RUN, TYPED} else ""
        """Empty as long as nothing was chosen."""
        self.listed_run, self.typed_run = read("try_run"), read("try_number")
        self.feedback_count = _parse_number(read("try_after"))
        self.input = read("try_input")
        outputs = [name for name in post if name.startswith(_OUTPUT)]
        self.outputs = {_parse_number(name.removeprefix(_OUTPUT)): read(name) for name in outputs}
        self.judged, self.pasted = read("try_judged"), read("try_pasted")

    @property
    def step(self) -> StepSpec:
        assert self.spec is not None
        return self.spec.step(self.index)

    @property
    def earlier_steps(self) -> list[dict[str, Any]]:
        """The steps before this one, each with the output that is typed for it."""
        assert self.spec is not None
        steps = enumerate(self.spec.steps[: self.index - 1], start=1)
        return [{"index": index, "name": step.name, "text": self.outputs.get(index, "")} for index, step in steps]

    # What it is tried on

    def fill(self) -> None:
        """Offer runs, and fill in the fields if nothing was chosen: the latest run that reached the step, and values.

        For the first step any run will do. The values are those of that run, else examples that fit the schemas.
        """
        assert self.spec is not None
        if self.flow is not None and self.can_see_runs:
            self.runs = self._fetch_runs(self.flow)
        if self.source:
            return
        latest = self.runs[0] if self.runs else None
        chosen = next((run for run in self.runs if run.has_step), latest if self.index == 1 else None)
        self.source = RUN if chosen else TYPED
        history = None
        if run := chosen or latest:
            self.listed_run = str(run.pk)
            _, history = self._load(self.listed_run)
        can_invent = not self.errors and not self.other_errors
        input = history.initial_input if history else _suggest_input(self.spec, can_invent=can_invent)
        self.input = _format(input)
        for index, step in enumerate(self.spec.steps[: self.index - 1], start=1):
            final = history.final(index) if history else None
            output = final.usable_output if final else None
            if output is None and can_invent and step.output_schema is not None:
                output = invent_value(step.output_schema, seed=step.name)
            self.outputs[index] = "" if output is None else _format(output)

    def load_trial(self, *, is_new: bool = False) -> None:
        """Load or parse what was chosen; ``trial_problems`` says why it can't be used.

        With ``is_new`` another run may have been chosen, which lacks the attempts that were chosen of the last one.
        """
        assert self.spec is not None
        try:
            if self.source != RUN:
                self.trial = try_on_texts(self.spec, self.index, input=self.input, outputs=self.outputs)
            elif not self.can_see_runs:
                raise TrialError({"run": NO_RUNS})
            else:
                run, history = self._load(self.typed_run if self.typed_run.strip() else self.listed_run)
                if is_new and self.feedback_count > len(history.attempts(self.index)):
                    self.feedback_count = 0
                self.trial = try_on_run(self.spec, self.index, run, history, feedback_count=self.feedback_count)
                self.run_id = run.pk
        except TrialError as error:
            self.trial_problems = error.problems
        if is_new and self.judged != PASTED and self.judged_attempt is None:
            numbers = [attempt.number for attempt in self.stored if find_audited_output(attempt) is not None]
            self.judged = str(numbers[-1]) if numbers else PASTED

    def _fetch_runs(self, flow: Flow) -> list[Run]:
        """The latest runs, newest first; ``has_step`` of each says whether it reached the step."""
        reached = models.Step.objects.filter(run=OuterRef("pk"), index=self.index)
        runs = Run.objects.filter(flow=flow).annotate(has_step=Exists(reached)).select_related("version")
        fields = ("status", "created_at", "version__number", "version__flow_id")
        return list(runs.only(*fields).order_by("-created_at", "-pk")[:MAX_RUNS_OFFERED])

    def _load(self, number: str) -> tuple[Run, History]:
        if number not in self._histories:
            run = fetch_run(self.flow.pk if self.flow else None, number)
            self._histories[number] = run, load_history(run)
        return self._histories[number]

    @property
    def problems_of_fields(self) -> list[tuple[str, str, str]]:
        """Each problem of what was chosen or typed: the field's id, its label, and a sentence."""
        run = ("try-number" if self.typed_run.strip() else "try-run", "Run")
        # Where a run can't be used, its attempts aren't offered.
        fields = {"run": run, "after_attempt": run, "input": ("try-input", "Input")}
        return [
            (*fields.get(field, (f"try-{field}", f"Output of step {field.removeprefix('output-')}")), sentence)
            for field, sentence in self.trial_problems.items()
        ]

    # The request, and a call

    @cached_property
    def preview(self) -> Preview | None:
        """The request or the computed output; None where it is not known what the step is tried on."""
        return self.trial.preview(registry) if self.trial else None

    @cached_property
    def model_request(self) -> ModelRequest | None:
        """The request as people read it."""
        request = self.preview.request if self.preview else None
        return None if request is None else read_model_request(request)

    @property
    def obstacle(self) -> str:
        """Why the model can't be called now; empty if it can."""
        if not self.can_call:
            return "Your account may not call the model: it lacks “runs.add_run”."
        if self.step.is_local:
            return "This step calls no model."
        if self.errors:
            return "Fix the problems of this step first: a call may cost money."
        if self.preview is None or self.preview.request is None:
            return "There is no request to send yet."
        return self._provider.find_problem() or ""

    @property
    def is_simulated(self) -> bool:
        """Whether the simulated model answers and nothing is billed."""
        return self._provider.is_simulated

    @property
    def _provider(self) -> Provider:
        return build_providers().split(self.step.model or "")[0]

    # An output

    @property
    def stored(self) -> Sequence[Attempt]:
        """The attempts of the step in the run that it is tried on."""
        return self.trial.attempts if self.trial else ()

    @property
    def judged_number(self) -> int:
        """The number of the stored attempt whose output is to be judged; 0 for a pasted one."""
        return _parse_number(self.judged)

    @property
    def judged_attempt(self) -> Attempt | None:
        return self.trial.find_attempt(self.judged_number) if self.trial else None

    def read_output(self) -> tuple[dict[str, Any], str]:
        """The output to judge, and its title. Raises ``ValueError`` with a sentence if there is none."""
        if self.trial is None:
            raise ValueError("First choose what the step is tried on: audits may read it.")
        if attempt := self.judged_attempt:
            output = find_audited_output(attempt)
            if output is None:
                raise ValueError(f"Attempt {attempt.number} left no output that could be audited.")
            return output, f"Attempt {attempt.number} of run {self.run_id}"
        if self.judged_number:
            raise ValueError(f"There is no attempt {self.judged_number} of this step in the chosen run.")
        try:
            return clean_value(parse_object(self.pasted)).value, "The pasted output"
        except ValueError as error:
            raise ValueError(f"The pasted output can't be read. {error}") from None

    def paste(self, output: dict[str, Any]) -> None:
        """Put an output into the field for pasted ones, and choose it."""
        self.judged, self.pasted = PASTED, _format(output)

    def describe_verdict(
        self, title: str, verdict: Verdict, *, stored: Attempt | None = None, call: CallResult | None = None
    ) -> dict[str, Any]:
        """The context of the verdict's template: the attempt as run pages show one, though no row is stored.

        ``stored`` is the attempt that the output is of, ``call`` the call that brought it.
        """
        attempt = verdict.attempt
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
        return {
            "announcement": f"{title}: {STATES[attempt.outcome].word}.",
            "title": title,
            "verdict": verdict,
            "attempt": view_attempt(row, build_issues(row, attempt.issues), self.step, True, Run()),
            "raw_output": raw_output,
            "stored": stored,
            "call": call,
        }


def _suggest_input(spec: FlowSpec, *, can_invent: bool) -> Any:
    example = example_input(spec.input_schema)
    if example is None and can_invent and spec.input_schema is not None:
        example = invent_value(spec.input_schema, seed=spec.name)
    return example or default_input(spec.input_schema)


def _format(value: Any) -> str:
    return show_invisible(dump_json(value, indent=2))


def _parse_number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 7 else 0
