"""What the start form asks besides the input: labels, priority, budgets, time limit, and what is kept of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from flows.engine.spec import FlowSpec
from runs.models import Priority, Run
from runs.pages.attempt_rows import read_spec
from runs.pages.input_form import FormProblem
from runs.run_options import (
    MAX_LABEL_LENGTH,
    MAX_LABELS,
    PRIORITIES,
    check_metadata,
    list_lasting_labels,
    parse_options,
)
from runs.submission import find_own_limits
from runs.webhooks.addresses import find_obstacle

_LABELS = {
    "labels": (
        "Labels",
        f"Separate them with commas: up to {MAX_LABELS} labels of up to {MAX_LABEL_LENGTH} characters each.",
    ),
    "priority": ("Priority", "Queued runs with a higher priority start first."),
    "token_budget": ("Token budget", "Tokens. Checked before each call, so the last call may exceed it."),
    "cost_budget": ("Cost budget", "USD. Checked before each call; calls at an unknown price count as 0."),
    "time_limit": ("Time limit", "Seconds from the start of the run to its end."),
}
_WITHOUT = "The new run starts without it."


@dataclass(frozen=True, slots=True)
class OptionField:
    """One field; ``name`` is its key in the form. ``choices`` is empty for a field to type in."""

    name: str
    label: str
    help: str
    text: str
    placeholder: str
    problem: str
    choices: tuple[tuple[str, str], ...] = ()

    @property
    def is_number(self) -> bool:
        """Whether digits are typed."""
        return self.name != "labels"


@dataclass(frozen=True, slots=True)
class KeptParts:
    """What a re-run takes over although no field shows it: metadata and webhook, as ``submit_run`` takes them."""

    values: Mapping[str, Any]
    problems: tuple[str, ...]
    """A sentence for each that can't be kept."""

    @classmethod
    def of_run(cls, run: Run | None) -> KeptParts:
        """Those of an earlier run, or of none."""
        values: dict[str, Any] = {}
        problems = []
        if run is not None and run.metadata:
            try:
                check_metadata(run.metadata)
                values["metadata"] = run.metadata
            except ValueError as error:
                problems.append(f"The metadata of run #{run.pk} can’t be kept: {error} {_WITHOUT}")
        if run is not None and run.webhook_url:
            # The rules for addresses may have become stricter since.
            if problem := find_obstacle(run.webhook_url):
                problems.append(f"The webhook of run #{run.pk} can’t be kept: {problem} {_WITHOUT}")
            else:
                values["webhook_url"] = run.webhook_url
        return cls(values, tuple(problems))

    @property
    def names(self) -> str:
        """What they are, for a label; empty if there are none."""
        words = {"metadata": "metadata", "webhook_url": "webhook"}
        return " and ".join(words[key] for key in self.values)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What was typed, by field, and whether ``KeptParts`` are wanted."""

    texts: Mapping[str, str]
    keeps: bool = True

    @classmethod
    def from_post(cls, post: Mapping[str, str]) -> RunOptions:
        """What a sent form holds."""
        return cls({name: post.get(name, "").strip() for name in _LABELS}, keeps="keep" in post)

    @classmethod
    def from_run(cls, run: Run) -> RunOptions:
        """What an earlier run was given beyond what its version says."""
        texts = {name: _format(own) for name, own in find_own_limits(run, read_spec(run)).items()}
        if run.priority != Priority.NORMAL:
            texts["priority"] = Priority(run.priority).name.lower()
        if labels := list_lasting_labels(run.labels):
            texts["labels"] = ", ".join(labels)
        return cls(texts)

    def parse(self, source: Run | None = None) -> tuple[dict[str, Any], dict[str, str]]:
        """The values as ``submit_run`` takes them, and a sentence for each field that is not valid.

        ``source`` is the run that is run again, if one is.
        """
        values, problems = parse_options(self.texts)
        if source is not None:
            values = {"again_of": source.pk, **(KeptParts.of_run(source).values if self.keeps else {}), **values}
        return values, problems

    def build_fields(self, spec: FlowSpec, problems: Mapping[str, str]) -> tuple[OptionField, ...]:
        """The fields, with what the flow says where a field is left empty."""
        inherited = {name: getattr(spec, name) for name in ("token_budget", "cost_budget", "time_limit")}
        placeholders = {name: f"{_format(value)}, from the flow" for name, value in inherited.items() if value}
        choices = tuple((name, str(priority.label)) for name, priority in PRIORITIES.items())
        return tuple(
            OptionField(
                name=name,
                label=label,
                help=help_text,
                text=self.texts.get(name, "") or ("normal" if name == "priority" else ""),
                placeholder=placeholders.get(name, "None" if name == "labels" else "No limit"),
                problem=problems.get(name, ""),
                choices=choices if name == "priority" else (),
            )
            for name, (label, help_text) in _LABELS.items()
        )

    @property
    def is_used(self) -> bool:
        """Whether anything stands here that an untouched form doesn't hold."""
        return any(text and (name, text) != ("priority", "normal") for name, text in self.texts.items())


def list_problems(fields: tuple[OptionField, ...]) -> tuple[FormProblem, ...]:
    """Entries of the summary above the form, in the order of the fields."""
    return tuple(FormProblem(f"option-{field.name}", field.label, field.problem) for field in fields if field.problem)


def _format(value: Any) -> str:
    if not isinstance(value, Decimal):
        return "" if value is None else str(value)
    # Trailing zeros of the database's column mean nothing, but cents have two digits.
    whole, _, places = f"{value:f}".partition(".")
    places = places.rstrip("0")
    return f"{whole}.{places.ljust(2, '0')}" if places else whole
