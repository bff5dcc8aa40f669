"""One look into the panel that tries a step: the edited flow, what was chosen, and what comes of it."""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import Any

from django.http import HttpRequest

from flows.admin.draft import FlowDraft, FormError
from flows.engine.history import Attempt, History
from flows.engine.json_values import clean_value, dump_json, parse_object
from flows.engine.plugins import registry
from flows.engine.providers import Provider
from flows.engine.spec import FlowSpec, StepSpec
from flows.models import Flow
from flows.providers import build_providers, default_model_settings
from runs.admin.try_choices import PASTED, RUN, TYPED, Choices, choose_run
from runs.models import Run
from runs.pages.json_lines import show_invisible
from runs.pages.model_request import ModelRequest, read_model_request
from runs.stored_history import load_history
from runs.try_out.basis import Basis, BasisError, base_on_run, base_on_texts, find_run, list_runs
from runs.try_out.preview import Preview, preview_attempt
from runs.try_out.verdict import find_output

NO_RUNS = "Your account may not see runs (it lacks “runs.view_run”): type the values instead."
STAND_IN = "\N{SYMBOL FOR NULL}"
"""What the names begin with that a draft gives to steps and audits without one."""


class Trial:
    """A step of a posted editor page that is tried. Templates read it."""

    def __init__(self, request: HttpRequest, flow: Flow | None, draft: FlowDraft, index: int) -> None:
        """``flow`` is the stored one, None for a new one; ``index`` is the step's, counted from 1."""
        self.flow = flow
        self.index = index
        self.prefix = request.POST["try_step"]
        self.choices = Choices.from_post(request.POST)
        self.spec: FlowSpec | None = None
        """The edited flow as it would run, also where something in it is wrong; None if it is beyond reading."""
        if draft.spec is not None:
            self.spec = _name_nameless(draft.spec).resolve(default_model_settings(), build_providers())
        self.errors: list[FormError] = list(draft.list_step_errors(index))
        every = list(draft.list_errors())
        self.other_errors = len(every) - len(self.errors)
        if self.spec is None:
            self.errors = every
        self.can_see_runs = request.user.has_perm("runs.view_run")
        self.can_call = request.user.has_perm("runs.add_run")
        self.runs: list[Run] = []
        self.basis: Basis | None = None
        self.basis_problems: dict[str, str] = {}
        self.run_number: int | None = None
        """The number of the run that is worked on."""
        self.preview: Preview | None = None
        self._loaded: tuple[Run, History] | None = None

    # What the step is

    @property
    def step(self) -> StepSpec:
        """The step as it stands on the page."""
        assert self.spec is not None
        return self.spec.step(self.index)

    @property
    def title(self) -> str:
        """What the flow is called on the page."""
        return (self.spec.title if self.spec else "") or "New flow"

    @property
    def is_local(self) -> bool:
        return self.step.is_local

    @property
    def earlier_steps(self) -> list[dict[str, Any]]:
        """The steps before this one, each with the output that stands in the panel for it."""
        assert self.spec is not None
        return [
            {"index": position, "name": self.spec.step(position).name, "text": self.choices.outputs.get(position, "")}
            for position in range(1, self.index)
        ]

    # What it works on

    def begin(self) -> None:
        """Choose what the panel begins with, unless somebody has chosen already, and find it."""
        if self.spec is None:
            return
        if self.flow is not None and self.can_see_runs:
            self.runs = list_runs(self.flow.pk, self.index)
        if not self.choices.source:
            self._fill_in()
        self.find_basis(is_fresh=True)

    def _fill_in(self) -> None:
        assert self.spec is not None
        choices = self.choices
        chosen = choose_run(self.runs, self.index)
        model = chosen or (self.runs[0] if self.runs else None)
        choices.source = RUN if chosen else TYPED
        history = None
        if model is not None:
            choices.run = str(model.pk)
            _, history = self._load(choices.run)
        choices.fill_in(self.spec, self.index, history, may_invent=not self.errors and not self.other_errors)

    def _load(self, number: str) -> tuple[Run, History]:
        if self._loaded is None or str(self._loaded[0].pk) != number:
            run = find_run(self.flow.pk if self.flow else None, number)
            self._loaded = run, load_history(run)
        return self._loaded

    def find_basis(self, *, is_fresh: bool = False) -> None:
        """Load or read what was chosen; ``basis_problems`` says what can't be.

        ``is_fresh`` says that another run may have been chosen: which of its attempts are meant is then chosen anew,
        where those that were meant are not among them.
        """
        assert self.spec is not None
        choices = self.choices
        try:
            if choices.source != RUN:
                self.basis = base_on_texts(self.spec, self.index, input=choices.input, outputs=choices.outputs)
            elif not self.can_see_runs:
                raise BasisError({"run": NO_RUNS})
            else:
                run, history = self._load(choices.run_number)
                if is_fresh and choices.told_of > len(history.attempts(self.index)):
                    choices.told_of = 0
                self.basis = base_on_run(run, history, self.spec, self.index, told_of=choices.told_of)
                self.run_number = run.pk
        except BasisError as error:
            self.basis_problems = error.problems
        if is_fresh and choices.judged != PASTED and self.judged_attempt is None:
            choices.choose_stored(self.stored)

    @property
    def problems_of_fields(self) -> list[tuple[str, str, str]]:
        """What can't be worked on: the field's id, its label, and a sentence."""
        # Where no run can be worked on, none of its attempts is there to be chosen.
        labels = {"run": "Run", "after_attempt": "Run", "input": "Input"}
        ids = dict.fromkeys(("run", "after_attempt"), "try-number" if self.choices.number.strip() else "try-run")
        return [
            (
                ids.get(field, f"try-{field}"),
                labels.get(field, f"Output of step {field.removeprefix('output-')}"),
                sentence,
            )
            for field, sentence in self.basis_problems.items()
        ]

    # The request

    def find_preview(self) -> None:
        """Find what the step would begin with, if what it works on is known."""
        if self.spec is not None and self.basis is not None:
            self.preview = asyncio.run(preview_attempt(self.spec, self.basis, self.index, registry))

    @property
    def is_hindered(self) -> bool:
        """Whether there is nothing to show of what the step would begin with."""
        return self.preview is None or bool(self.preview.problem)

    @cached_property
    def model_request(self) -> ModelRequest | None:
        """The request as people read it."""
        request = self.preview.request if self.preview else None
        return None if request is None else read_model_request(request)

    # An output

    @property
    def stored(self) -> list[Attempt]:
        """The attempts of the step in the run that is worked on."""
        return list(self.basis.attempts) if self.basis else []

    @property
    def judged_attempt(self) -> Attempt | None:
        """The stored attempt whose output is to be judged."""
        return next((attempt for attempt in self.stored if attempt.number == self.choices.judged_number), None)

    def find_judged(self) -> tuple[dict[str, Any] | None, str, str]:
        """The output to judge and what it is, or else the sentence that says why there is none."""
        if self.basis is None:
            return None, "", "First say what the step works on: audits may look at it."
        attempt = self.judged_attempt
        if attempt is not None:
            output = find_output(attempt)
            if output is None:
                return None, "", f"Attempt {attempt.number} left no output that could be audited."
            return output, f"Attempt {attempt.number} of run {self.run_number}", ""
        if self.choices.judged_number:
            return None, "", f"There is no attempt {self.choices.judged_number} of this step in what was chosen."
        try:
            return clean_value(parse_object(self.choices.pasted)).value, "The pasted output", ""
        except ValueError as error:
            return None, "", f"The pasted output can't be read. {error}"

    def paste(self, output: dict[str, Any]) -> None:
        """Put an output where one may be pasted, and choose it."""
        self.choices.judged = PASTED
        self.choices.pasted = show_invisible(dump_json(output, indent=2))

    # A call

    def find_obstacle(self) -> str:
        """Why the model is not called now; empty if nothing keeps it from being called."""
        if not self.can_call:
            return "Your account may not call the model: it lacks “runs.add_run”."
        if self.is_local:
            return "This step calls no model."
        if self.errors:
            return "Mend the problems of this step first: a call may cost money."
        if self.is_hindered:
            return "There is no request to send yet."
        return self._provider.find_problem() or ""

    @property
    def obstacle(self) -> str:
        """What ``find_obstacle`` gives, for templates."""
        return self.find_obstacle()

    @property
    def is_simulated(self) -> bool:
        """Whether the output is invented here and nothing is billed."""
        return self._provider.is_simulated

    @property
    def _provider(self) -> Provider:
        """Where the model of the step is asked, once there is a request."""
        return build_providers().split(self.step.model or "")[0]


def _name_nameless(spec: FlowSpec) -> FlowSpec:
    """``spec`` with names for people in place of the draft's stand-ins, which only must not clash with other names."""

    def name(step: StepSpec, number: int) -> StepSpec:
        audits = tuple(
            audit.model_copy(update={"name": f"Audit {position}"}) if audit.name.startswith(STAND_IN) else audit
            for position, audit in enumerate(step.audits, start=1)
        )
        own = f"Step {number}" if step.name.startswith(STAND_IN) else step.name
        return step.model_copy(update={"name": own, "audits": audits})

    return spec.model_copy(update={"steps": tuple(map(name, spec.steps, range(1, len(spec.steps) + 1)))})
