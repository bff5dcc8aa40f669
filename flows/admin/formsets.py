"""The steps of a flow and the audits of a step, as they come back from the editor."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.db import models
from nested_admin.formsets import NestedInlineFormSet

from flows.engine.spec import MAX_STEPS
from flows.models import AuditRule, StepDefinition

MAX_AUDITS = 50
"""Audits of one step."""


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
            raise ValidationError("This is no part of the flow: somebody deleted it meanwhile. Delete it here, too.")
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

    default_error_messages = {"too_many_forms": f"A flow has at most {MAX_STEPS} steps, and these are more."}

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

    default_error_messages = {"too_many_forms": f"A step has at most {MAX_AUDITS} audits, and these are more."}

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
