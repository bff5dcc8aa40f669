"""Draws the usual widgets in plain Python: the editor of a large flow has thousands, and templates take seconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.forms.renderers import DjangoTemplates
from django.utils.html import escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

_Context = Mapping[str, Any]


class FieldRenderer(DjangoTemplates):
    """A form's renderer. Widgets that it can't draw itself get their template."""

    def render(self, template_name: str, context: dict[str, Any], request: Any = None) -> str:
        """The markup of a widget, or of whatever else has a template."""
        draw = _DRAWN.get(template_name)
        return draw(context["widget"]) if draw else super().render(template_name, context, request)


def _draw_attributes(attributes: _Context) -> SafeString:
    drawn = (
        f" {name}" if value is True else f' {name}="{escape(value)}"'
        for name, value in attributes.items()
        if value is not False and value is not None
    )
    return mark_safe("".join(drawn))  # noqa: S308  # names are written by us, values are escaped


def _draw_input(widget: _Context) -> str:
    value = widget["value"]
    attrs = _draw_attributes(widget["attrs"])
    if value is None:
        return format_html('<input type="{}" name="{}"{}>', widget["type"], widget["name"], attrs)
    return format_html('<input type="{}" name="{}" value="{}"{}>', widget["type"], widget["name"], value, attrs)


def _draw_textarea(widget: _Context) -> str:
    # Browsers drop the line break after the tag, and no other.
    attrs, value = _draw_attributes(widget["attrs"]), widget["value"] or ""
    return format_html('<textarea name="{}"{}>\n{}</textarea>', widget["name"], attrs, value)


def _draw_select(widget: _Context) -> str:
    options = format_html_join(
        "",
        '<option value="{}"{}>{}</option>',
        (
            ("" if option["value"] is None else option["value"], _draw_attributes(option["attrs"]), option["label"])
            for _, group, _ in widget["optgroups"]
            for option in group
        ),
    )
    return format_html('<select name="{}"{}>{}</select>', widget["name"], _draw_attributes(widget["attrs"]), options)


_DRAWN: Mapping[str, Callable[[_Context], str]] = {
    "django/forms/widgets/textarea.html": _draw_textarea,
    "django/forms/widgets/select.html": _draw_select,
    **{f"django/forms/widgets/{kind}.html": _draw_input for kind in ("input", "text", "number", "hidden", "checkbox")},
}
