"""Fields of filters: what is in an address, read as a value."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from typing import Any, NamedTuple

from django import forms
from django.core.validators import RegexValidator
from django.utils import timezone
from django.utils.datastructures import MultiValueDict
from django.utils.dateparse import parse_datetime

from runs.facets import MAX_VALUE_LENGTH
from runs.models import RunStatus
from runs.paging import MAX_NUMBER
from runs.search import parse_search

_RUN_NUMBER = re.compile(r"#?([0-9]{1,19})", re.ASCII)
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
"""How a day or a time begins: Python also takes weeks, and days without hyphens."""


class Moment(NamedTuple):
    """A day or a time as it is written, and the open interval that it stands for."""

    text: str
    after: datetime
    until: datetime


def parse_run_number(text: str) -> int | None:
    """The number of a run as it is typed, with or without “#”; None if it is something else."""
    match = _RUN_NUMBER.fullmatch(text)
    return int(match[1]) if match and int(match[1]) <= MAX_NUMBER else None


def shorten(text: str) -> str:
    """Text of an address as a sentence shows it."""
    return text if len(text) <= 40 else f"{text[:40]}…"


class TextField(forms.CharField):
    """A text that can be stored, of up to 200 characters unless ``max_length`` says otherwise."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"max_length": MAX_VALUE_LENGTH, **options})
        self.validators.append(
            RegexValidator("[\ud800-\udfff]", "It contains an incomplete character.", inverse_match=True)
        )


class SearchField(TextField):
    """The number of a run, or words to search for."""

    def clean(self, value: Any) -> Any:
        """The text. Raises ``ValidationError`` if there is nothing in it to search for."""
        text = super().clean(value)
        try:
            if text and parse_run_number(text) is None:
                parse_search(text)
        except ValueError as error:
            raise forms.ValidationError(str(error)) from error
        return text


class NameField(forms.ModelChoiceField):  # type: ignore[type-arg]  # no generic class when it runs
    """A row by its name."""

    def to_python(self, value: Any) -> Any:
        """The row. Raises ``ValidationError`` if there is none."""
        return super().to_python(TextField(required=False).clean(value))


class MomentField(forms.Field):
    """A day, or a time such as ``2026-11-21T08:00Z``; without an offset they are in the active time zone."""

    def to_python(self, value: Any) -> Moment | None:
        text = (value or "").strip()
        if not text:
            return None
        is_day, moment = len(text) == len("2026-11-21"), None
        with suppress(ValueError):
            if _DAY.match(text):
                moment = datetime.combine(date.fromisoformat(text), time.min) if is_day else parse_datetime(text)
        if moment is None or moment.year not in range(1970, 2200):
            problem = f"“{shorten(text)}” is not a day such as 2026-11-21, or a time such as 2026-11-21T08:30."
            raise forms.ValidationError(problem)
        begin, end = (
            one if timezone.is_aware(one) else timezone.make_aware(one)
            for one in (moment, moment + (timedelta(days=1) if is_day else timedelta(microseconds=1)))
        )
        # SQLite compares times as texts, which have 0, 3 or 6 digits: equality is left out.
        return Moment(text, begin - timedelta(microseconds=1), end)


class ListWidget(forms.Widget):
    """Values of a name that is repeated, or of one value with commas."""

    def value_from_datadict(self, data: Any, files: Any, name: str) -> list[str]:
        """The values that are not empty, each once."""
        texts = data.getlist(name) if isinstance(data, MultiValueDict) else [data.get(name, "")]
        return list(dict.fromkeys(text.strip() for text in texts if text.strip()))


class CommaWidget(ListWidget):
    """Values with commas between them, or of a name that is repeated."""

    def value_from_datadict(self, data: Any, files: Any, name: str) -> list[str]:
        """The values that are not empty."""
        texts = super().value_from_datadict(data, files, name)
        return [part for text in texts for part in text.split(",") if part]


class TextsField(forms.Field):
    """Several texts."""

    widget = ListWidget

    def to_python(self, value: Any) -> list[str]:
        """The texts. Raises ``ValidationError``."""
        return [TextField().clean(text) for text in value]


class StatusesField(forms.MultipleChoiceField):
    """Statuses; all of them together don't filter."""

    widget = CommaWidget

    def clean(self, value: Any) -> list[str]:
        """The statuses in the order of their list. Raises ``ValidationError`` for an unknown one."""
        wanted = super().clean(value)
        return [] if len(set(wanted)) == len(RunStatus) else [one for one in RunStatus.values if one in wanted]


class NumberField(forms.IntegerField):
    """A whole number, which may have spaces or commas between its digits."""

    def to_python(self, value: Any) -> int | None:
        """The number. Raises ``ValidationError``."""
        return super().to_python(re.sub(r"[\s,_]", "", value) if isinstance(value, str) else value)


class CostField(forms.DecimalField):
    """US dollars, with or without “$”."""

    def to_python(self, value: Any) -> Any:
        """The sum. Raises ``ValidationError``."""
        return super().to_python(value.strip().removeprefix("$") if isinstance(value, str) else value)
