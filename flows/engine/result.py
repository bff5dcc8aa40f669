"""The result of a run as callers want it, all of it derived from the history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict

from flows.engine.errors import OutputError
from flows.engine.history import Attempt, History, Issue, Severity, TokenUsage, filter_issues, find_final, sum_usage
from flows.engine.planner import EndReason, EndStatus, Finish
from flows.engine.settling import find_accepted, find_step_final
from flows.engine.spec import FlowSpec
from flows.engine.typed_output import build_type

_Model = TypeVar("_Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class FoundIssue:
    """An issue and where it was found: it always belongs to one attempt of one step."""

    step: int
    attempt: int
    issue: Issue


class StepResult(BaseModel):
    """What one step brought. Index 0 is the initial input."""

    model_config = ConfigDict(frozen=True)

    index: int
    name: str
    retries_used: int
    attempts: tuple[Attempt, ...]
    """All attempts, or only the final one if the result was asked for without the others."""
    usage: TokenUsage | None = None
    """Usage of all attempts, also of those left out here; None if usage is not tracked."""
    accepted: int | None = None
    """The number of the attempt that was accepted as the step's best though it did not pass."""

    @property
    def final(self) -> Attempt | None:
        """The attempt that decides: the accepted one, else the last that was not interrupted or cancelled."""
        if self.accepted is not None:
            return next(attempt for attempt in self.attempts if attempt.number == self.accepted)
        return find_final(self.attempts)

    @property
    def output(self) -> Any:
        return self.final.output if self.final else None

    def output_as(self, model: type[_Model]) -> _Model:
        """The output as an instance of ``model``. Raises ``OutputError`` if there is none or it doesn't fit."""
        if self.output is None:
            raise OutputError(f"Step {self.index} “{self.name}” has no output.")
        typed, issues = build_type(model, self.output)
        if not isinstance(typed, model):
            reasons = " ".join(issue.description for issue in issues)
            raise OutputError(
                f"The output of step {self.index} “{self.name}” is not a valid {model.__name__}. {reasons}"
            )
        return typed

    @property
    def issues(self) -> tuple[Issue, ...]:
        """The issues of the final attempt."""
        return self.final.issues if self.final else ()

    @property
    def passed(self) -> bool:
        return bool(self.final and self.final.passed)


class RunResult(BaseModel):
    """How a flow ran on one input."""

    model_config = ConfigDict(frozen=True)

    status: EndStatus
    reason: EndReason
    sentence: str
    blocking: tuple[int, int] | None
    """Step and number of the attempt that decided against the run."""
    steps: tuple[StepResult, ...]
    """The steps that began; index 0 is the initial input."""

    @classmethod
    def of(
        cls,
        history: History,
        finish: Finish,
        *,
        spec: FlowSpec,
        include_all_attempts: bool = True,
        include_token_usage: bool = True,
    ) -> Self:
        """Derive the result of a run of ``spec`` from its history."""

        steps = []
        for index, attempts in enumerate(history.steps):
            final = find_step_final(spec, history, index)
            accepted = find_accepted(spec.step(index), attempts) if index else None
            step = StepResult(
                index=index,
                name=spec.step(index).name if index else "Initial input",
                retries_used=max(0, sum(attempt.counts for attempt in attempts) - 1),
                attempts=attempts if include_all_attempts else tuple(filter(None, [final])),
                usage=sum_usage(attempt.usage for attempt in attempts) if include_token_usage else None,
                accepted=accepted.number if accepted is not None else None,
            )
            steps.append(step)
        return cls(
            status=finish.status,
            reason=finish.reason,
            sentence=finish.sentence,
            blocking=finish.blocking,
            steps=tuple(steps),
        )

    @property
    def passed(self) -> bool:
        """Whether every step passed, or had its best output accepted."""
        return self.status is EndStatus.SUCCEEDED

    @property
    def results(self) -> list[list[Attempt]]:
        """The attempts of every step; index 0 is the input."""
        return [list(step.attempts) for step in self.steps]

    @property
    def final_results(self) -> list[Attempt]:
        """The final attempt of every step; index 0 is the input."""
        return [step.final for step in self.steps if step.final is not None]

    @property
    def output(self) -> Any:
        """The output of the last step; None unless the run succeeded."""
        return self.steps[-1].output if self.passed else None

    def output_as(self, model: type[_Model]) -> _Model:
        """``output`` as an instance of ``model``. Raises ``OutputError`` if there is none or it doesn't fit."""
        if not self.passed:
            raise OutputError(f"The run has no final output: it {self.status.value}. {self.sentence}")
        return self.steps[-1].output_as(model)

    @property
    def initial_input(self) -> Any:
        return self.steps[0].output

    def step(self, index: int) -> StepResult:
        """The result of one step, 0 for the input. Raises ``IndexError`` if it never began."""
        if not 0 <= index < len(self.steps):
            raise IndexError(f"Step {index} did not start; the result has steps 0 to {len(self.steps) - 1}.")
        return self.steps[index]

    def all_issues(self, minimum: Severity = Severity.LOW) -> list[FoundIssue]:
        """The issues of all attempts carried, from ``minimum`` severity on, each with its step and attempt."""
        return _list_issues([attempt for step in self.steps for attempt in step.attempts], minimum)

    def final_issues(self, minimum: Severity = Severity.LOW) -> list[FoundIssue]:
        """The issues of final attempts only, from ``minimum`` severity on."""
        return _list_issues(self.final_results, minimum)

    @property
    def state(self) -> dict[str, Any]:
        """The input merged with the usable outputs of all steps, later ones over earlier ones."""
        merged: dict[str, Any] = {}
        for attempt in self.final_results:
            merged.update(attempt.usable_output or {})
        return merged

    @property
    def usage(self) -> TokenUsage | None:
        """Usage of all attempts of the run; None if usage is not tracked."""
        usages = [step.usage for step in self.steps if step.usage is not None]
        return sum_usage(usages) if usages else None

    @property
    def retries_used(self) -> int:
        """Outputs beyond the first of each step; calls without an answer don't count."""
        return sum(step.retries_used for step in self.steps)

    def to_document(self) -> dict[str, Any]:
        """The result as JSON types; ``from_document`` reads it back."""
        document = self.model_dump(mode="json")
        for step in document["steps"]:
            if step["usage"] is None:
                for part in (step, *step["attempts"]):
                    del part["usage"]
        return document

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Self:
        """Read what ``to_document`` made. Raises ``ValueError`` on anything else."""
        return cls.model_validate(document)


def _list_issues(attempts: list[Attempt], minimum: Severity) -> list[FoundIssue]:
    return [
        FoundIssue(attempt.step, attempt.number, issue)
        for attempt in attempts
        for issue in filter_issues(attempt.issues, minimum)
    ]
