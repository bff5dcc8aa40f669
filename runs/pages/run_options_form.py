"""What the start form asks besides the input: labels, priority, budgets, time limit, and what is kept of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from flows.engine.spec import FlowSpec
from runs.models import Priority, Run
from runs.pages.attempt_rows import read_spec
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
        f"To find the run by, with commas between them: up to {MAX_LABELS}, of up to {MAX_LABEL_LENGTH} characters.",
    ),
    "priority": ("Priority", "Of two runs that are ready, the one with the higher priority starts first."),
    "token_budget": ("Token budget", "Tokens. Asked before each call, so that the last one may go beyond it."),
    "cost_budget": ("Cost budget", "USD. Asked before each call; calls at an unknown price count as nothing."),
    "time_limit": ("Time limit", "Seconds from the start of the run to its end."),
}


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
    is_number: bool = True


@dataclass(frozen=True, slots=True)
class KeptParts:
    """What a run that is started again has of the one before although no field shows it: metadata and webhook."""

    values: Mapping[str, Any]
    """As ``submit_run`` takes them."""
    problems: tuple[str, ...]
    """A sentence for each that can't be kept."""

    @classmethod
    def of_run(cls, run: Run | None) -> KeptParts:
        """Those of an earlier run, or of none."""
        if run is None:
            return cls({}, ())
        values: dict[str, Any] = {}
        problems = []
        if run.metadata:
            try:
                check_metadata(run.metadata)
                values["metadata"] = run.metadata
            except ValueError as error:
                problems.append(f"The metadata of run #{run.pk} can’t be kept: {error} {_WITHOUT}")
        if run.webhook_url:
            # It was stored when other addresses would do.
            if problem := find_obstacle(run.webhook_url):
                problems.append(f"The webhook of run #{run.pk} can’t be told any more: {problem} {_WITHOUT}")
            else:
                values["webhook_url"] = run.webhook_url
        return cls(values, tuple(problems))

    @property
    def names(self) -> str:
        """What they are, for a sentence; nothing if there are none."""
        return " and ".join(name for key, name in _KEPT.items() if key in self.values)


_WITHOUT = "The new run goes without it."
_KEPT = {"metadata": "the metadata", "webhook_url": "the webhook"}


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
        texts = {name: _write(own) for name, own in find_own_limits(run, read_spec(run)).items()}
        if run.priority != Priority.NORMAL:
            texts["priority"] = Priority(run.priority).name.lower()
        if labels := list_lasting_labels(run.labels):
            texts["labels"] = ", ".join(labels)
        return cls(texts)

    def read(self, source: Run | None = None) -> tuple[dict[str, Any], dict[str, str]]:
        """The values as ``submit_run`` takes them, and a sentence for each field that can't be read.

        ``source`` is the run that is run again, if one is.
        """
        values, problems = parse_options(self.texts)
        if source is not None:
            values = {"again_of": source.pk, **(KeptParts.of_run(source).values if self.keeps else {}), **values}
        return values, problems

    def build_fields(self, spec: FlowSpec, problems: Mapping[str, str]) -> tuple[OptionField, ...]:
        """The fields, with what the flow says where a field is left empty."""
        inherited: dict[str, int | Decimal | None] = {
            "token_budget": spec.token_budget,
            "cost_budget": spec.cost_budget,
            "time_limit": spec.time_limit,
        }
        choices = tuple((name, str(priority.label)) for name, priority in PRIORITIES.items())
        return tuple(
            OptionField(
                name=name,
                label=label,
                help=help_text,
                text=self.texts.get(name, "") or ("normal" if name == "priority" else ""),
                placeholder=_write_placeholder(name, inherited.get(name)),
                problem=problems.get(name, ""),
                choices=choices if name == "priority" else (),
                is_number=name != "labels",
            )
            for name, (label, help_text) in _LABELS.items()
        )

    @property
    def is_used(self) -> bool:
        """Whether anything stands here that an untouched form doesn't hold."""
        return any(text and (name, text) != ("priority", "normal") for name, text in self.texts.items())


def _write_placeholder(name: str, inherited: int | Decimal | None) -> str:
    if name == "labels":
        return "None"
    return f"{_write(inherited)}, from the flow" if inherited else "No limit"


def _write(value: int | Decimal | None) -> str:
    if value is None:
        return ""
    if isinstance(value, int):
        return str(value)
    # Trailing zeros of the database's column say nothing, but cents are written with two digits.
    whole, _, places = f"{value:f}".partition(".")
    places = places.rstrip("0")
    return f"{whole}.{places.ljust(2, '0')}" if places else whole
