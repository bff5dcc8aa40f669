"""What the forms of the flow editor have in common: quickly drawn, fields that grow with what they hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms

from flows.field_renderer import FieldRenderer

_CODE = {"class": "code", "spellcheck": "false"}

MOST_ROWS = 24
"""Lines of a text that are shown at once where the browser can't fit fields to what they hold."""

_RENDERER = FieldRenderer()


class GrowingTextarea(forms.Textarea):
    """A text in several lines, at least ``rows`` and as many as it has."""

    def __init__(self, *, rows: int, attrs: Mapping[str, Any] | None = None) -> None:
        super().__init__({**(attrs or {}), "rows": rows})
        del self.attrs["cols"]  # The style sheet knows how wide fields are.

    def get_context(self, name: str, value: Any, attrs: Any) -> dict[str, Any]:
        """What is drawn."""
        context = super().get_context(name, value, attrs)
        lines = (context["widget"]["value"] or "").count("\n") + 1
        context["widget"]["attrs"]["rows"] = max(self.attrs["rows"], min(lines, MOST_ROWS))
        return context


def make_code_area(rows: int) -> forms.Textarea:
    """A field for code, in whose spelling the browser has no say."""
    return GrowingTextarea(rows=rows, attrs=_CODE)


def make_text_area(rows: int) -> forms.Textarea:
    """A field for prose."""
    return GrowingTextarea(rows=rows, attrs={"autocapitalize": "sentences"})


class EditorForm(forms.BaseForm):
    """A form of the editor: quickly drawn, and with what assistive technology wants to know of its fields."""

    help_prefix = ""
    """Begins the ids of the texts that all forms of this class share; empty where each has its own."""
    _errors: Any
    _found: Any = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.renderer = _RENDERER
        for name, field in self.fields.items():
            attrs = field.widget.attrs
            if field.widget.is_hidden:
                continue
            if field.required and not isinstance(field.widget, forms.Select):
                attrs["aria-required"] = "true"
            if self.help_prefix and field.help_text:
                attrs["aria-describedby"] = self.help_prefix + name
            if isinstance(field.widget, forms.Textarea):
                # Browsers would cut off what is too long without a word. The server has one.
                attrs.pop("maxlength", None)

    def full_clean(self) -> None:
        """Check the fields, once.

        nested_admin forgets all errors when something is to be deleted, and checks again. What the flow as a whole had
        found wrong with this form would be lost.
        """
        if self._found is None:
            super().full_clean()
            self._found = self._errors
        self._errors = self._found

    @property
    def media(self) -> forms.Media:
        """Nothing: the page's scripts are those of the editor as a whole, and asking each field takes long."""
        return forms.Media()
