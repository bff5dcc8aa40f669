"""Columns of rows as JSON values, and back: every value of a file is checked before it comes near the database."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cached_property
from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import DecimalValidator
from django.db import connection, models
from django.utils.dateparse import parse_datetime, parse_duration
from django.utils.duration import duration_iso_string

from flows.engine.json_values import clean_value
from flows.json_field import PackedJSONField


class Columns:
    """The columns of a model that are kept in files."""

    def __init__(self, model: type[models.Model], *, without: Collection[str] = ()) -> None:
        self._columns = {
            field.name: _Column(field)
            for field in model._meta.concrete_fields
            if not field.is_relation and not field.primary_key and field.name not in without
        }

    def write(self, row: models.Model) -> dict[str, Any]:
        """The values of a row as JSON types."""
        return {name: _write(getattr(row, name)) for name in self._columns}

    def read(self, values: Any) -> dict[str, Any]:
        """The values for a row. What is missing is left to the model. Raises ``ValueError`` with a sentence."""
        if not isinstance(values, Mapping):
            raise ValueError("an object was expected")
        if unknown := values.keys() - self._columns.keys():
            raise ValueError(f"“{min(unknown)[:60]}” is not known to this version of ToolFlow")
        return {name: self._columns[name].read(value) for name, value in values.items()}


class _Column:
    """One of them. What a form asks of new values is not asked again of stored ones: only that the column holds it."""

    def __init__(self, field: models.Field[Any, Any]) -> None:
        self._field = field
        self._read: Callable[[Any], Any] = next(read for kind, read in _READERS.items() if isinstance(field, kind))
        self._choices = {choice for choice, _ in field.flatchoices} | ({""} if field.blank else set())
        self._most = field.max_length if isinstance(field, models.CharField) else None

    def read(self, value: Any) -> Any:
        """The value of a row. Raises ``ValueError`` with a sentence."""
        if value is None:
            if self._field.null:
                return None
            raise ValueError(f"“{self._field.name}” is missing")
        try:
            read = self._read(value)
            self._check(read)
        except (ValueError, ArithmeticError, ValidationError):
            raise ValueError(f"“{self._field.name}” has a value that can’t be: {str(value)[:60]!r}") from None
        return read

    def _check(self, value: Any) -> None:
        if self._most is not None and len(value) > self._most:
            raise ValueError
        if self._range is not None and not self._range[0] <= value <= self._range[1]:
            raise ValueError
        if isinstance(self._field, models.DecimalField):
            DecimalValidator(self._field.max_digits, self._field.decimal_places)(value)
        if self._field.choices and value not in self._choices:
            raise ValueError

    @cached_property
    def _range(self) -> tuple[int, int] | None:
        is_integer = isinstance(self._field, models.IntegerField)
        return connection.ops.integer_field_range(self._field.get_internal_type()) if is_integer else None


def _write(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, timedelta):
        return duration_iso_string(value)
    return value


def _read_time(value: Any) -> datetime:
    moment = parse_datetime(_read_text(value))
    if moment is None or moment.tzinfo is None:
        raise ValueError
    return moment


def _read_duration(value: Any) -> timedelta:
    duration = parse_duration(_read_text(value))
    if duration is None:
        raise ValueError
    return duration


def _read_decimal(value: Any) -> Decimal:
    number = Decimal(_read_text(value))
    if not number.is_finite():
        raise ValueError
    return number


def _read_text(value: Any) -> str:
    if not isinstance(value, str) or clean_value(value).notes:
        raise ValueError
    return value


def _read_flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _read_integer(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError
    return value


_READERS: dict[type[models.Field[Any, Any]], Any] = {
    models.JSONField: lambda value: clean_value(value).value,
    PackedJSONField: lambda value: clean_value(value).value,
    models.BooleanField: _read_flag,
    models.IntegerField: _read_integer,
    models.DecimalField: _read_decimal,
    models.DateTimeField: _read_time,
    models.DurationField: _read_duration,
    models.CharField: _read_text,
    models.TextField: _read_text,
}
"""How the value of a field is read, by the first kind that the field is of."""
