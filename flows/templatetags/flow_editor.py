"""Filters of the flow editor's templates."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django import template

register = template.Library()


@register.filter
def by_position(inline_forms: Iterable[Any]) -> list[Any]:
    """The forms of an inline in the order that they were posted in; the template of new ones comes last."""

    def key(inline_form: Any) -> tuple[bool, int]:
        form = inline_form.form
        # A position that was tampered with is an error of the form, not of the page that shows it.
        text = str(form["position"].value()) if "position" in form.fields else "0"
        return is_blank(inline_form), int(text) if text.isdecimal() and len(text) < 10 else 0

    return sorted(inline_forms, key=key)


@register.filter
def is_blank(inline_form: Any) -> bool:
    """Whether this is the template from which the page makes new forms."""
    return str(inline_form.form.prefix).endswith("__prefix__")


@register.filter
def form_number(inline_form: Any) -> str:
    """The place of a form in its formset, as the page's script counts; ``empty`` for the template of new ones."""
    return "empty" if is_blank(inline_form) else str(inline_form.form.prefix).rpartition("-")[2]


@register.filter
def count_errors(inline_form: Any) -> int:
    """How many errors a form and the forms nested in it have."""
    form = inline_form.form
    if not form.is_bound:
        return 0
    nested = [other for formset in getattr(form, "nested_formsets", []) for other in formset.forms]
    return sum(len(errors) for one in (form, *nested) for errors in one.errors.values())


@register.filter
def has_errors(fieldset: Any) -> bool:
    """Whether a field of the fieldset has an error."""
    return any(name in fieldset.form.errors for name in fieldset_names(fieldset))


@register.filter
def count_filled(fieldset: Any) -> int:
    """How many fields of the fieldset say something; what stands there by itself says nothing."""
    form = fieldset.form
    return sum(
        form[name].value() not in (None, "", [], False, form.fields[name].initial)
        for name in fieldset_names(fieldset)
        if name in form.fields
    )


def fieldset_names(fieldset: Any) -> list[str]:
    """The names of the fieldset's fields."""
    return [name for line in fieldset.fields for name in ([line] if isinstance(line, str) else line)]
