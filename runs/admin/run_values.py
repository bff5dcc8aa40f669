"""The variables of a step's expressions as they were in one run, each read when it is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from flows.engine.errors import ExpressionError, SpecError
from flows.engine.expression_scope import Scope
from flows.engine.expressions import FIELD_VARIABLES, parse_expression
from flows.engine.history import UNDECIDED, Outcome
from flows.engine.plugins import PREFIX
from flows.models import FlowVersion
from runs.models import Attempt, Issue, Run, Step
from runs.stored_history import read_issue

MOST_ISSUES = 20
RULE_TIMEOUT = 1.0
"""Seconds that a rule may take here, in a process of its own, if it is no quick one."""

_JUDGED = (Outcome.PASSED.value, Outcome.FAILED.value)
_NOT_FINAL = ("", *UNDECIDED)

Reading = tuple[Any, str]
"""A value, and a sentence where there is none or where it is not quite what the variable holds."""


class RunValues:
    """What ``field`` of step ``step``, from 1, of an editor's page would have seen in a run.

    ``names`` are those of the page's steps. Steps of the run are found by their names: in the meantime they may have
    been moved. One that was renamed is found by its place.
    """

    def __init__(self, run_id: int, *, field: str, step: int, names: Sequence[str], rule: str = "") -> None:
        self._run_id = run_id
        self._field = field
        self._step = step
        self._names = names
        self._rule = rule
        self._outputs: dict[int, Any] = {}

    def read(self, name: str) -> Reading:
        """What a variable held; ``steps`` is read by ``list_steps`` and ``read_step``."""
        match name:
            case "input":
                return self._input, ""
            case "previous":
                return self._explain(self._step - 1, self._read_output(self._step - 1))
            case "output":
                return self._explain(self._step, self._read_output(self._step))
            case "value":
                return self._read_value()
            case "issues":
                return self._explain(self._step, self._read_issues(self._step))
            case _:
                return self._read_item()

    def list_steps(self) -> list[str]:
        """For each element of ``steps`` a few words: its name, and how it ended."""
        words = ["the input"]
        for index in range(1, self._step):
            final = self._finals.get(self._find(index))
            words.append(f"“{self._names[index - 1]}”, {final[1] if final else 'not in this run'}")
        return words

    def read_step(self, index: int) -> dict[str, Any]:
        """The element of ``steps`` at ``index``."""
        final = self._finals.get(self._find(index))
        return {
            "name": self._names[index - 1] if index else "Initial input",
            "output": self._read_output(index),
            "issues": self._read_issues(index) or [],
            "passed": index == 0 or bool(final and final[1] == Outcome.PASSED.value),
        }

    @cached_property
    def _input(self) -> Any:
        return Run.objects.values_list("input", flat=True).get(pk=self._run_id)

    @cached_property
    def _steps(self) -> dict[str, int]:
        """The indices of the run's steps by name."""
        rows = Step.objects.filter(run=self._run_id).order_by("index").values_list("name", "index")
        return dict(rows)

    @cached_property
    def _finals(self) -> dict[int | None, tuple[int, str]]:
        """Key and outcome of the attempt that decided about each step, by index."""
        attempts = Attempt.objects.filter(step__run=self._run_id).exclude(outcome__in=_NOT_FINAL)
        rows = attempts.order_by("step__index", "number").values_list("step__index", "pk", "outcome")
        return {index: (pk, outcome) for index, pk, outcome in rows}

    def _find(self, index: int) -> int | None:
        """The index in the run of the page's step at ``index``; None if the run has none like it."""
        if index == 0:
            return 0
        found = self._steps.get(self._names[index - 1])
        if found is None and index in self._steps.values():
            there = next(name for name, other in self._steps.items() if other == index)
            return None if there in self._names else index
        return found

    def _read_output(self, index: int) -> Any:
        """The output that later steps worked with, None if there is none."""
        if index == 0:
            return self._input
        if index not in self._outputs:
            final = self._finals.get(self._find(index))
            is_usable = final is not None and final[1] != Outcome.INVALID.value
            rows = Attempt.objects.filter(pk=final[0]) if final and is_usable else Attempt.objects.none()
            self._outputs[index] = rows.values_list("output", flat=True).first()
        return self._outputs[index]

    def _read_issues(self, index: int) -> list[dict[str, Any]] | None:
        final = self._finals.get(self._find(index))
        if final is None:
            return None
        rows = Issue.objects.filter(attempt=final[0]).order_by("position")[:MOST_ISSUES]
        return [read_issue(row).model_dump(mode="json") for row in rows]

    def _read_value(self) -> Reading:
        """What the sanitizer was given, as far as it was kept."""
        final = self._finals.get(self._find(self._step))
        if final is None:
            return self._explain(self._step, None)
        input, output, raw_output = Attempt.objects.values_list("input", "output", "raw_output").get(pk=final[0])
        if self._field == "output_sanitizer":
            value = output if raw_output is None else raw_output
            return value, "" if value is not None else "No output in this run."
        try:
            spec = FlowVersion.objects.get(runs=self._run_id).flow_spec
        except SpecError:
            return input, "Perhaps as a sanitizer left it: the version of this run can’t be read by this ToolFlow."
        was_changed = spec.step(self._find(self._step) or 1).input_sanitizer is not None
        return input, "As the sanitizer of then left it; what it was given is not kept." if was_changed else ""

    def _read_item(self) -> Reading:
        """The first element that the rule gives now for the output of then."""
        what = "The element of the rule’s list that the issue is about; null if the rule gives false."
        if not self._rule.strip() or self._rule.strip().startswith(PREFIX):
            return None, what
        try:
            expression = parse_expression(self._rule.strip(), variables=FIELD_VARIABLES["rule"])
        except ExpressionError:
            return None, f"{what} The rule can’t be read yet."
        if "steps" in expression.variables:
            # All earlier outputs would have to be read.
            return None, what
        output = self._read_output(self._step)
        if output is None and "output" in expression.variables:
            return None, what
        try:
            scope = Scope({"output": output, "input": self._input})
            found = asyncio.run(scope.evaluate(expression, timeout=RULE_TIMEOUT))
        except ExpressionError:
            return None, f"{what} The rule could not be evaluated over this output."
        if isinstance(found, list) and found:
            return found[0], "The first of the rule’s list."
        return None, f"{what} Here the rule gives {'an empty list' if found == [] else 'no list'}."

    def _explain(self, index: int, value: Any) -> Reading:
        if value is not None:
            return value, ""
        if self._finals.get(self._find(index)) is None:
            return None, f"Run {self._run_id} did not come to this step." if index == self._step else "Not in this run."
        return None, "No usable output in this run."
