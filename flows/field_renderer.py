"""Draws the usual widgets in plain Python: the editor of a large flow has thousands, and templates take seconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape
from typing import Any

from django.forms.renderers import DjangoTemplates

_Context = Mapping[str, Any]


class FieldRenderer(DjangoTemplates):
    """A form's renderer. Widgets that it can't draw itself get their template."""

    def render(self, template_name: str, context: dict[str, Any], request: Any = None) -> str:
        """The markup of a widget, or of whatever else has a template."""
        draw = _DRAWN.get(template_name)
        return draw(context["widget"]) if draw else super().render(template_name, context, request)


# All text is escaped here. Django's own functions ask again and again whether it is, and whether it is lazy.


def _draw_attributes(attributes: _Context) -> str:
    return "".join(
        f" {name}" if value is True else f' {name}="{escape(str(value))}"'
        for name, value in attributes.items()
        if value is not False and value is not None
    )


def _draw_input(widget: _Context) -> str:
    value = "" if widget["value"] is None else f' value="{escape(str(widget["value"]))}"'
    return f'<input type="{widget["type"]}" name="{escape(widget["name"])}"{value}{_draw_attributes(widget["attrs"])}>'


def _draw_textarea(widget: _Context) -> str:
    # Browsers drop the line break after the tag, and no other.
    value = escape(str(widget["value"] or ""))
    return f'<textarea name="{escape(widget["name"])}"{_draw_attributes(widget["attrs"])}>\n{value}</textarea>'


def _draw_select(widget: _Context) -> str:
    options = "".join(
        f'<option value="{escape(str("" if option["value"] is None else option["value"]))}"'
        f"{_draw_attributes(option['attrs'])}>{escape(str(option['label']))}</option>"
        for _, group, _ in widget["optgroups"]
        for option in group
    )
    return f'<select name="{escape(widget["name"])}"{_draw_attributes(widget["attrs"])}>{options}</select>'


_DRAWN: Mapping[str, Callable[[_Context], str]] = {
    "django/forms/widgets/textarea.html": _draw_textarea,
    "django/forms/widgets/select.html": _draw_select,
    **{f"django/forms/widgets/{kind}.html": _draw_input for kind in ("input", "text", "number", "hidden", "checkbox")},
}
