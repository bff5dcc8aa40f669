"""A whole flow as it was posted: checked before anything is stored, its problems shown where they are, then saved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from django.core.exceptions import NON_FIELD_ERRORS
from django.db import models

from flows.admin.formsets import RowFormSet, StepFormSet
from flows.engine.errors import Problem, SpecError
from flows.engine.json_values import format_pointer, parse_pointer
from flows.engine.spec import FlowSpec
from flows.forms import FlowForm, JsonObjectField
from flows.models import AuditRule, Flow, StepDefinition
from flows.providers import check_flow
from flows.publishing import find_contradictions, read_spec

MOST_SHOWN = 10
"""Problems of one field that are shown; of more their number is told."""

_Row = TypeVar("_Row", bound=models.Model)


@dataclass(frozen=True, slots=True)
class StepDraft:
    """A step that stays, and its audits that stay, in the order that was posted."""

    form: Any
    audits: Sequence[Any]


@dataclass(frozen=True, slots=True)
class FormError:
    """One error of the page: where it is in words, what it says, and the id of the element to go to."""

    place: str
    message: str
    anchor: str


class FlowDraft:
    """What the forms of one page make of a flow."""

    def __init__(self, form: FlowForm, step_formset: StepFormSet) -> None:
        """Validate the forms one by one, and put them in order."""
        self.spec: FlowSpec | None = None
        """The flow that a check could read, whether it can run or not; fields in error are not set in it."""
        self._form = form
        self._step_formset = step_formset
        self._formsets: list[RowFormSet] = [step_formset]
        for step in step_formset.forms:
            self._formsets += getattr(step, "nested_formsets", [])
        for formset in self._formsets:
            formset.is_valid()
        self.steps = [
            StepDraft(step, [audit for nested in getattr(step, "nested_formsets", []) for audit in _list_kept(nested)])
            for step in _list_kept(step_formset)
        ]

    def check(self) -> None:
        """Add everything that keeps the flow from running to the fields that it is about.

        What forms found out themselves is not told twice: a field that can't be read counts as not filled in, and
        problems of that field are dropped.
        """
        if any(formset.non_form_errors() for formset in self._formsets):
            return
        if any(len(set(keys)) < len(keys) for keys in self._list_keys()):
            self._form.add_error(None, "The page names one step or audit twice. Reload it and try again.")
            return
        try:
            self.spec = read_spec(
                _read_row(Flow, self._form, {"name": "unnamed"}),
                [
                    (
                        _read_row(StepDefinition, step.form, {"name": f"Unnamed step {index}", "compute": "{}"}),
                        [
                            _read_row(AuditRule, audit, {"name": f"Unnamed audit {position}", "rule": "true"})
                            for position, audit in enumerate(step.audits, start=1)
                        ],
                    )
                    for index, step in enumerate(self.steps, start=1)
                ],
            )
        except SpecError as error:
            self._show_problems(error.problems)
        else:
            self._show_problems(check_flow(self.spec) or list(find_contradictions(self.spec)))

    def save(self, flow: Flow) -> bool:
        """Store the steps and audits of a checked draft; rows that the page does not have are deleted.

        Gives whether rows came or went.
        """
        before = self._list_stored()
        steps, audits = [], []
        for position, step in enumerate(self.steps):
            row = step.form.instance
            _store_row(row, step.form, flow=flow, position=position)
            steps.append(row.pk)
            for audit_position, form in enumerate(step.audits):
                audit = form.instance
                _store_row(audit, form, step=row, position=audit_position)
                audits.append(audit.pk)
        AuditRule.objects.filter(step__flow=flow).exclude(pk__in=audits).delete()
        StepDefinition.objects.filter(flow=flow).exclude(pk__in=steps).delete()
        return before != (set(map(str, steps)), set(map(str, audits)))

    def list_lost_rows(self) -> list[models.Model]:
        """Stored steps and audits that the page does not have; saving it deletes them."""
        stored, kept = (self._step_formset.rows, self._step_formset.audit_rows), self._list_keys()
        return [row for rows, keys in zip(stored, kept, strict=True) for key, row in rows.items() if key not in keys]

    def list_errors(self) -> Iterator[FormError]:
        """Every error of the page, from top to bottom."""
        yield from _list_form_errors(self._form, "Flow")
        for formset in self._formsets:
            for message in formset.non_form_errors():
                yield FormError("Steps" if formset is self._step_formset else "Audits", str(message), "steps-group")
        for index in range(1, len(self.steps) + 1):
            yield from self.list_step_errors(index)

    def list_step_errors(self, index: int) -> Iterator[FormError]:
        """The errors of step ``index``, counted from 1, and of its audits."""
        step = self.steps[index - 1]
        place = f"Step {index}{_quote_name(step.form)}"
        yield from _list_form_errors(step.form, place)
        for position, audit in enumerate(step.audits, start=1):
            yield from _list_form_errors(audit, f"{place}, audit {position}{_quote_name(audit)}")

    def find_step(self, prefix: str) -> int | None:
        """The index, counted from 1, of the step whose form has this ``prefix`` (``steps-3``); None if none has."""
        return next((index for index, step in enumerate(self.steps, start=1) if step.form.prefix == prefix), None)

    def _list_keys(self) -> tuple[list[str], list[str]]:
        """The keys of the rows on the page, also of those to be deleted: steps, audits."""
        audits = [key for formset in self._formsets[1:] for key in _list_keys(formset)]
        return _list_keys(self._step_formset), audits

    def _list_stored(self) -> tuple[set[str], set[str]]:
        return set(self._step_formset.rows), set(self._step_formset.audit_rows)

    def _show_problems(self, problems: Sequence[Problem]) -> None:
        messages: dict[tuple[Any, str | None], list[str]] = {}
        for problem in problems:
            form, rest = self._find_form(parse_pointer(problem.path))
            field = rest[0] if rest and rest[0] in form.fields else None
            if field is not None and field in form.errors:
                continue
            deeper = rest[1:] if field and isinstance(form.fields[field], JsonObjectField) else ()
            message = f"{format_pointer(deeper)}: {problem.message}" if deeper else problem.message
            messages.setdefault((form, field), []).append(message)
        for (form, field), lines in messages.items():
            more = len(lines) - MOST_SHOWN
            form.add_error(field, lines[:MOST_SHOWN] + ([f"{more} more problems follow."] if more > 0 else []))

    def _find_form(self, parts: Sequence[str]) -> tuple[Any, Sequence[str]]:
        """The form that a JSON pointer into the flow's document leads to, and what follows of the pointer."""
        match parts:
            case ["steps", index, "audits", position, *rest]:
                return self.steps[int(index)].audits[int(position)], rest
            case ["steps", index, *rest]:
                return self.steps[int(index)].form, rest
            case _:
                return self._form, parts


def _list_kept(formset: RowFormSet) -> list[Any]:
    kept = [form for form in formset.forms if not formset.is_removed(form)]
    # Forms stay where they are if a position was tampered with; that is an error of theirs already.
    return sorted(kept, key=lambda form: form.cleaned_data.get("position", 0))


def _list_keys(formset: RowFormSet) -> list[str]:
    return [str(form.instance.pk) for form in formset.forms if form.instance.pk is not None]


def _store_row(row: models.Model, form: Any, **place: Any) -> None:
    """Store a row at its place, unless that is how it is stored already."""
    is_stored = row.pk is not None and not form.changed_data
    for name, value in place.items():
        is_stored = is_stored and form.initial.get(name) == getattr(value, "pk", value)
        setattr(row, name, value)
    if not is_stored:
        row.save()


def _read_row(model: type[_Row], form: Any, stand_ins: Mapping[str, str]) -> _Row:
    """A row, not to be stored, of the form's fields that are valid; stand-ins where a spec can't do without."""
    row = model()
    for name in form._meta.fields:
        if name in form.cleaned_data:
            setattr(row, name, form.cleaned_data[name])
        elif name in stand_ins:
            setattr(row, name, stand_ins[name])
    return row


def _list_form_errors(form: Any, place: str) -> Iterator[FormError]:
    # Fields stand in the order of the page.
    for name in (NON_FIELD_ERRORS, *form.fields):
        errors = form.errors.get(name, ())
        bound = form[name] if name in form.fields else None
        words = f"{place}, {bound.label.lower()}" if bound is not None and not bound.is_hidden else place
        anchor = bound.id_for_label if bound is not None and not bound.is_hidden else form.prefix or ""
        for message in errors:
            yield FormError(words, str(message), anchor)


def _quote_name(form: Any) -> str:
    name = str(form["name"].value() or "").strip()
    return f" “{name[:60]}”" if name else ""
