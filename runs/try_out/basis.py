"""What a step that is tried works on: the course of an earlier run up to it, or values that somebody typed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Exists, OuterRef

from flows.engine.errors import InputError, SpecError
from flows.engine.history import Attempt, History, Outcome, initial_attempt
from flows.engine.json_values import clean_value, parse_object
from flows.engine.running import check_input
from flows.engine.schemas import compile_schema
from flows.engine.spec import FlowSpec
from runs.models import Run, Step

RUNS_OFFERED = 20
"""The latest runs of a flow that one may choose from; any other is found by its number."""
MOST_PROBLEMS = 5
"""Problems of one typed value that are told."""

_TYPED = "typed"


class BasisError(Exception):
    """What was chosen or typed can't be worked on.

    ``problems`` has a sentence for each field that is to blame: ``run``, ``after_attempt``, ``input``, or ``output-2``
    for that of step 2.
    """

    def __init__(self, problems: Mapping[str, str]) -> None:
        self.problems = dict(problems)
        super().__init__(" ".join(problems.values()))


@dataclass(frozen=True, slots=True)
class Basis:
    """What a step works on."""

    before: History
    """The input, and the attempts of all steps before the one that is tried."""
    attempts: tuple[Attempt, ...] = ()
    """What the run made of the step itself."""
    told_of: int = 0
    """How many of ``attempts`` the next one is told of, as a retry would be."""
    notes: tuple[str, ...] = ()
    """Sentences about what fits badly."""

    @property
    def history(self) -> History:
        """The history that the next attempt of the step would find."""
        history = self.before
        for attempt in self.attempts[: self.told_of]:
            history = history.append(attempt)
        return history


def list_runs(flow_id: int, index: int) -> list[Run]:
    """The latest runs of a flow, newest first. ``has_step`` on each says whether it got to step ``index``."""
    return list(
        Run.objects.filter(flow=flow_id)
        .annotate(has_step=Exists(Step.objects.filter(run=OuterRef("pk"), index=index)))
        .select_related("version")
        .only("status", "created_at", "version__number", "version__flow_id")
        .order_by("-pk")[:RUNS_OFFERED]
    )


def find_run(flow_id: int | None, number: str) -> Run:
    """The run of a flow with this number, as it was typed. Raises ``BasisError`` with a sentence."""
    text = number.strip().removeprefix("#")
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise BasisError({"run": f"“{number.strip()[:40]}” is no number of a run; write it like 12."})
    run = Run.objects.select_related("version").filter(pk=int(text)).first()
    if run is None:
        raise BasisError({"run": f"There is no run {text}."})
    if run.flow_id != flow_id:
        raise BasisError({"run": f"Run {text} is a run of another flow. Choose one of this flow."})
    return run


def base_on_run(run: Run, history: History, spec: FlowSpec, index: int, *, told_of: int = 0) -> Basis:
    """What step ``index`` of ``spec`` would find in ``run``, which has this ``history``; steps are matched by number.

    ``told_of`` is how many attempts of the step the next one follows. Raises ``BasisError``, for ``run`` if that did
    not get as far as the step, for ``after_attempt`` if the step has no such attempt.
    """
    if len(history.steps) < index:
        missing = len(history.steps)
        raise BasisError(
            {
                "run": f"Run {run.pk} can't be used for step {index}: no attempt of step {missing} has ended in it. "
                "Choose another run, or type the values."
            }
        )
    attempts = history.attempts(index)
    if not 0 <= told_of <= len(attempts):
        raise BasisError({"after_attempt": f"Run {run.pk} has no attempt {told_of} of step {index}."})
    value, notes = history.initial_input, list(_compare_steps(run, spec, index))
    try:
        value = _fit_input(value, spec)
    except InputError as error:
        notes.append(f"The run's input doesn't fit the input schema as it is now. {_join(error)}")
    # The parts are valid already.
    before = History.model_construct(run_id=history.run_id, steps=((initial_attempt(value),), *history.steps[1:index]))
    return Basis(before, attempts, told_of, tuple(notes))


def base_on_texts(spec: FlowSpec, index: int, *, input: str, outputs: Mapping[int, str]) -> Basis:
    """What somebody typed as JSON: the run's input, and by step the outputs of the steps before ``index``.

    An empty output stands for a step that left none. Raises ``BasisError`` that names every field that can't be read.
    """
    problems: dict[str, str] = {}
    notes: list[str] = []
    value: Any = None
    try:
        value = _fit_input(_read(input), spec)
    except InputError as error:
        problems["input"] = f"The input doesn't fit the input schema. {_join(error)}"
    except ValueError as error:
        problems["input"] = str(error)
    attempts = []
    for position in range(1, index):
        text = outputs.get(position, "")
        output, outcome = None, Outcome.ERRORED
        try:
            if text.strip():
                output, outcome = _read(text), Outcome.PASSED
        except ValueError as error:
            problems[f"output-{position}"] = str(error)
            continue
        schema = spec.step(position).output_schema
        if output is not None and schema is not None:
            output, misfits = _fit_output(output, schema)
            if misfits:
                notes.append(f"The output of step {position} doesn't fit its schema: a run would not hand it on.")
        attempts.append(Attempt(step=position, number=1, outcome=outcome, output=output))
    if problems:
        raise BasisError(problems)
    history = History.from_attempts([initial_attempt(value), *attempts], run_id=_TYPED)
    return Basis(history, notes=tuple(notes))


def _read(text: str) -> dict[str, Any]:
    value: dict[str, Any] = clean_value(parse_object(text)).value
    return value


def _fit_input(value: Any, spec: FlowSpec) -> dict[str, Any]:
    """The input with the numbers that its schema names. Raises ``InputError`` if it doesn't fit."""
    try:
        return check_input(value, spec.input_schema)
    except SpecError:
        # The schema is being written; its own problems are told where it stands.
        return check_input(value, None)


def _fit_output(output: dict[str, Any], schema: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    try:
        compiled = compile_schema(schema)
        fitting = compiled.coerce_numbers(output)
        return fitting, bool(compiled.validate_output(fitting))
    except SpecError:
        return output, False


def _join(error: InputError) -> str:
    shown = [str(problem) for problem in error.problems[:MOST_PROBLEMS]]
    more = len(error.problems) - len(shown)
    return " ".join([*shown, f"{more} more."] if more else shown)


def _compare_steps(run: Run, spec: FlowSpec, index: int) -> Iterator[str]:
    """What the run's version had at other places; names tell steps apart for people."""
    theirs = run.version.flow_spec.steps
    where = f"In run {run.pk} (version {run.version.number})"
    for position in range(1, index + 1):
        name = spec.step(position).name
        if position > len(theirs):
            yield f"{where} there was no step {position}."
            return
        if theirs[position - 1].name != name:
            yield f"{where} step {position} was “{theirs[position - 1].name}”; here it is “{name}”."
