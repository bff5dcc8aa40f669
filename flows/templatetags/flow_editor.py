"""What the flow editor's templates ask about forms, and their fields, which are drawn here: templates would be slow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from html import escape
from typing import Any

from django import forms, template
from django.db.models import Model
from django.forms.utils import pretty_name
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from flows.forms import AuditForm, FlowForm, StepForm
from flows.models import AuditRule, Flow, StepDefinition

register = template.Library()

_FORMS: dict[type[Model], Any] = {Flow: FlowForm, StepDefinition: StepForm, AuditRule: AuditForm}
_WITH_TEMPLATE = {"steps", "steps-empty-audits"}


@register.filter
def by_position(inline_forms: Iterable[Any]) -> list[Any]:
    """The forms of an inline in the order that they were posted in; the template of new ones comes last.

    One template for new audits is enough: the one in the template for new steps.
    """

    def key(inline_form: Any) -> tuple[bool, int]:
        form = inline_form.form
        # A position that was tampered with is an error of the form, not of the page that shows it.
        text = str(form["position"].value()) if "position" in form.fields else "0"
        return is_blank(inline_form), int(text) if text.isdecimal() and len(text) < 10 else 0

    shown = [form for form in inline_forms if not is_blank(form) or form.formset.prefix in _WITH_TEMPLATE]
    return sorted(shown, key=key)


@register.filter
def is_blank(inline_form: Any) -> bool:
    """Whether this is the template from which the page makes new forms."""
    return str(inline_form.form.prefix).endswith("__prefix__")


@register.filter
def is_deleted(inline_form: Any) -> bool:
    """Whether the form was posted with its mark for deletion."""
    form = inline_form.form
    return form.is_bound and "DELETE" in form.fields and bool(form["DELETE"].value())


@register.filter
def form_number(inline_form: Any) -> str:
    """The place of a form in its formset, as the page's script counts; ``empty`` for the template of new ones."""
    return "empty" if is_blank(inline_form) else str(inline_form.form.prefix).rpartition("-")[2]


@register.filter
def form_value(inline_form: Any, name: str) -> str:
    """What stands in a field of the form, or in its row where the page only shows."""
    form = inline_form.form
    value = form[name].value() if name in form.fields else getattr(form.instance, name)
    return "" if value is None else str(value)


@register.filter
def count_errors(inline_form: Any) -> int:
    """How many errors a form and the forms nested in it have."""
    form = inline_form.form
    if not form.is_bound:
        return 0
    return sum(len(errors) for one in (form, *_list_nested(form)) for errors in one.errors.values())


@register.filter
def count_audits(inline_form: Any) -> int:
    """How many audits a step's form has."""
    return len(_list_nested(inline_form.form))


@register.filter
def has_errors(fieldset: Any) -> bool:
    """Whether a field of the fieldset has an error."""
    form = fieldset.form
    return form.is_bound and any(name in form.errors for name in fieldset_names(fieldset))


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
    return [name for names in _list_rows(fieldset) for name in names]


@register.simple_tag
def field_rows(fieldset: Any, with_help: bool = True) -> SafeString:
    """The visible fields of a fieldset; ``with_help`` shows a line of help below each, which is told in any case."""
    form = fieldset.form
    rows = []
    for names in _list_rows(fieldset):
        if any(name in form.fields and form.fields[name].widget.is_hidden for name in names):
            continue
        drawn = [
            _draw_shown(form, name) if name in fieldset.readonly_fields else _draw_field(form[name], with_help)
            for name in names
        ]
        row = "".join(drawn)
        rows.append(row if len(drawn) == 1 else f'<div class="tf-row tf-columns-{len(drawn)}">{row}</div>')
    return mark_safe("".join(rows))  # noqa: S308  # both give markup


@register.simple_tag
def hidden_fields(inline_admin_form: Any) -> SafeString:
    """The fields of a nested form that nobody sees: its place, its key, its parent's key, and its mark for deletion."""
    form, formset = inline_admin_form.form, inline_admin_form.formset
    names = ["position", formset._pk_field.name, formset.fk.name]
    drawn = [form[name].as_widget() for name in names if name in form.fields]
    deletion = f"<span hidden>{form['DELETE'].as_widget()}</span>" if "DELETE" in form.fields else ""
    return mark_safe("".join(drawn) + deletion)  # noqa: S308  # widgets are markup


_TOOLS = {
    "up": "Move up",
    "down": "Move down",
    "copy": "Duplicate",
    "insert": "Insert a step after this one",
    "delete": "Delete",
}


@register.simple_tag
@cache
def card_tools(*names: str) -> SafeString:
    """The handle and the buttons of a card. Their icons are drawn once a page, in ``steps.html``.

    They stand in the templates of new forms; the page's script gives each card a copy.
    """
    buttons = format_html_join(
        "",
        '<button type="button" data-tool="{}" title="{}">{}</button>',
        ((name, _TOOLS[name], _draw_icon(name)) for name in names),
    )
    handle = format_html('<span class="drag-handler" title="Drag to another place">{}</span>', _draw_icon("drag"))
    return format_html('<div class="djn-tools card-tools">{}{}</div>', handle, buttons)


def _draw_icon(name: str) -> SafeString:
    return format_html('<svg class="icon"><use href="#tf-{}"/></svg>', name)


@register.simple_tag
def shared_help() -> SafeString:
    """The lines of help of steps and audits, once; fields refer to them."""
    return format_html_join("", '<p id="{}">{}</p>', _list_help())


def _list_help() -> Iterator[tuple[str, str]]:
    for form in (StepForm, AuditForm):
        for name, field in form.base_fields.items():
            if field.help_text:
                yield form.help_prefix + name, str(field.help_text)


def _list_nested(form: Any) -> list[Any]:
    return [nested for formset in getattr(form, "nested_formsets", ()) for nested in formset.forms]


def _list_rows(fieldset: Any) -> Iterator[list[str]]:
    for line in fieldset.fields:
        yield [line] if isinstance(line, str) else list(line)


def _draw_field(bound: Any, with_help: bool) -> str:
    field, errors = bound.field, bound.errors if bound.form.is_bound else ()
    is_checkbox = isinstance(field.widget, forms.CheckboxInput)
    shared = field.widget.attrs.get("aria-describedby")
    help_id = shared or f"{bound.auto_id}_helptext"
    attrs = {"aria-describedby": f"{help_id} {bound.auto_id}_error"} if errors and shared else None
    widget = bound.as_widget(attrs=attrs)
    mark = _MARK if field.required and field.initial is None and not is_checkbox else ""
    label = f'<label for="{escape(bound.auto_id)}">{escape(str(bound.label))}{mark}</label>'
    help_line = ""
    if field.help_text and not shared:
        help_line = f'<p class="help" id="{escape(help_id)}">{escape(str(field.help_text))}</p>'
    elif field.help_text and with_help:
        # Read out by way of the shared text.
        help_line = f'<p class="help">{escape(str(field.help_text))}</p>'
    classes = f"tf-field field-{bound.name}{' tf-check' if is_checkbox else ''}{' has-error' if errors else ''}"
    parts = (widget, label) if is_checkbox else (label, widget)
    return f'<div class="{classes}">{"".join(parts)}{errors or ""}{help_line}</div>'


_MARK = '<span class="required-mark" aria-hidden="true">*</span>'


def _draw_shown(form: Any, name: str) -> SafeString:
    field = _FORMS[form._meta.model].base_fields[name]
    value = field.prepare_value(getattr(form.instance, name))
    choices = dict(getattr(field, "choices", ()))
    is_code = "code" in field.widget.attrs.get("class", "").split()
    if isinstance(value, bool):
        value = "Yes" if value else "No"
    markup = '<pre class="shown code" tabindex="0">{}</pre>' if is_code and value else '<div class="shown">{}</div>'
    shown = format_html(markup, choices.get(value, value) if value not in (None, "") else "—")
    label = field.label or pretty_name(name)
    return format_html('<div class="tf-field field-{}"><span class="tf-label">{}</span>{}</div>', name, label, shown)
