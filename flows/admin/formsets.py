"""The steps of a flow and the audits of a step, as they come back from the editor."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.db import models
from django.http import QueryDict
from nested_admin.formsets import NestedInlineFormSet

from flows.engine.spec import MAX_AUDITS, MAX_STEPS
from flows.models import AuditRule, StepDefinition

_STEP_KEY = re.compile(r"steps-\d+-id")
_AUDIT_KEY = re.compile(r"steps-\d+-audits-\d+-id")
_LARGEST_KEY = 2**63 - 1


def forget_deleted_rows(page: QueryDict) -> QueryDict:
    """The posted page, on which steps and audits that somebody deleted meanwhile are new ones.

    What was typed into them stays. Keys of rows that there are, of whatever flow, stay as well: ``RowIdField`` judges
    those.
    """
    gone_steps = _find_gone(StepDefinition, page, _STEP_KEY)
    gone_audits = _find_gone(AuditRule, page, _AUDIT_KEY)
    if not gone_steps and not gone_audits:
        return page
    page = page.copy()
    for field in (*gone_steps, *gone_audits):
        page[field] = ""
    # Audits name the step that they were in.
    parents = tuple(f"{field.removesuffix('id')}audits-" for field in gone_steps)
    for field in list(page):
        if field.endswith("-step") and field.startswith(parents):
            page[field] = ""
    return page


def forget_deleted_flow(page: QueryDict) -> QueryDict:
    """The posted page of a flow that somebody deleted meanwhile, as one of a new flow.

    It still has a revision: by it the form knows that the flow was no new one.
    """
    page = page.copy()
    page.setdefault("revision", "")
    for field in list(page):
        if re.fullmatch(r"steps-\d+-flow", field):
            page[field] = ""
    return page


def _find_gone(model: type[models.Model], page: QueryDict, pattern: re.Pattern[str]) -> list[str]:
    keys = {field: key for field in page if pattern.fullmatch(field) and (key := _read_key(page[field])) is not None}
    known = set(model._default_manager.filter(pk__in=set(keys.values())).values_list("pk", flat=True))
    return [field for field, key in keys.items() if key not in known]


def _read_key(text: object) -> int | None:
    if not isinstance(text, str) or not re.fullmatch(r"[0-9]{1,19}", text):
        return None
    return key if (key := int(text)) <= _LARGEST_KEY else None


class RowIdField(forms.Field):
    """The hidden key of the row that a form edits; empty for a new one.

    Only rows of the flow that is being edited pass, whatever was posted.
    """

    widget = forms.HiddenInput

    def __init__(self, *, rows: Mapping[str, models.Model], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._rows = rows

    def clean(self, value: Any) -> models.Model | None:
        """The row."""
        if value in self.empty_values:
            return None
        row = self._rows.get(str(value))
        if row is None:
            raise ValidationError("This is not part of the flow on this page. Reload the page and try again.")
        return row

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Never: a key is not edited."""
        return False


class RowFormSet(NestedInlineFormSet):  # type: ignore[misc]  # nested_admin ships no types
    """Forms of rows that may be moved between parents; which row a form edits is known by its key alone."""

    default_error_messages = {
        "missing_management_form": "The page arrived incomplete (%(field_names)s). Reload it and try again.",
    }

    @property
    def rows(self) -> Mapping[str, models.Model]:
        """Every row of the edited flow that a form may be about, by its key."""
        raise NotImplementedError

    def is_removed(self, form: forms.BaseForm) -> bool:
        """Whether the editor wants this row gone. The form must have been validated."""
        return bool(self._should_delete_form(form))

    def get_queryset(self) -> Any:
        """The rows to show: those of the forms if there are any, for a row may have come from elsewhere."""
        return [form.instance for form in self.initial_forms] if self.is_bound else super().get_queryset()

    def add_fields(self, form: forms.BaseForm, index: int | None) -> None:
        """Add the hidden fields; the key is looked up among the rows known already, without a query for each form."""
        super().add_fields(form, index)
        initial = form.fields[self._pk_field.name].initial
        form.fields[self._pk_field.name] = RowIdField(rows=self.rows if self.is_bound else {}, initial=initial)

    def _construct_form(self, i: int, **kwargs: Any) -> forms.BaseForm:
        if self.is_bound:
            row = self.rows.get(self.data.get(f"{self.add_prefix(i)}-{self.model._meta.pk.name}", ""))
            if row is not None:
                kwargs["instance"] = row
        # An empty form is a step or an audit that lacks all it needs, and not one to pass over in silence.
        form: forms.BaseForm = super()._construct_form(i, empty_permitted=False, **kwargs)
        return form

    def _existing_object(self, pk: Any) -> models.Model | None:
        return self.rows.get(str(pk))


class StepFormSet(RowFormSet):
    """The steps of a flow."""

    default_error_messages = {"too_many_forms": f"A flow has at most {MAX_STEPS} steps; this one has more."}

    @cached_property
    def rows(self) -> Mapping[str, models.Model]:
        """The stored steps of the flow."""
        if self.instance.pk is None:
            return {}
        return {str(row.pk): row for row in StepDefinition.objects.filter(flow=self.instance)}

    @cached_property
    def audit_rows(self) -> Mapping[str, models.Model]:
        """The stored audits of all steps of the flow."""
        if self.instance.pk is None:
            return {}
        return {str(row.pk): row for row in AuditRule.objects.filter(step__flow=self.instance)}


class AuditFormSet(RowFormSet):
    """The audits of one step. ``parent_form`` is the step's form; nested_admin sets it."""

    default_error_messages = {"too_many_forms": f"A step has at most {MAX_AUDITS} audits; this one has more."}

    @property
    def rows(self) -> Mapping[str, models.Model]:
        """The stored audits of all steps: one may have been dragged here from another."""
        rows: Mapping[str, models.Model] = self.parent_form.parent_formset.audit_rows
        return rows

    def get_queryset(self) -> Any:
        """The audits to show; those of a stored step come from its prefetched ones."""
        if self.is_bound:
            return super().get_queryset()
        return list(self.instance.audits.all()) if self.instance.pk else []

    def _should_delete_form(self, form: forms.BaseForm) -> bool:
        step = self.parent_form
        return bool(super()._should_delete_form(form)) or step.parent_formset.is_removed(step)
