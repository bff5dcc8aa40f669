"""Statements that a drain executes for every attempt, built once for rows with the same columns.

Building an INSERT or UPDATE from querysets and model instances takes several times as long as executing it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.db import connection, models
from django.db.models.sql import UpdateQuery

_UNCONVERTED_FIELDS = (models.CharField, models.TextField, models.IntegerField, models.ForeignKey)
"""Fields whose values the drivers take without conversion."""

MAX_PARAMETERS = 30_000
"""Parameters of one statement: SQLite takes 32,766 by default, PostgreSQL 65,535."""

_Columns = list[tuple[str, Any]]
"""Names of fields, each with the field where its values need a conversion."""


class PreparedInsert:
    """The INSERT of rows of a model. Columns that the rows don't name get the defaults of their fields."""

    def __init__(self, model: type[models.Model]) -> None:
        self._model = model
        self._built: dict[tuple[str, ...], tuple[_Columns, str, str, list[Any]]] = {}

    def execute(self, rows: Iterable[Mapping[str, Any]], *, returns_keys: bool = False) -> list[int]:
        """Insert each row, given as its values by field; all name the same. Gives their primary keys if asked to."""
        rows = list(rows)
        if not rows:
            return []
        names = tuple(rows[0])
        if names not in self._built:
            self._built[names] = self._build(names)
        columns, sql, row, constants = self._built[names]
        ending = f" RETURNING {_quote(self._model, 'pk')}" if returns_keys else ""
        keys: list[int] = []
        size = MAX_PARAMETERS // (len(columns) + len(constants))
        with connection.cursor() as cursor:
            for start in range(0, len(rows), size):
                part = rows[start : start + size]
                values = [value for one in part for value in (*_convert(one, columns), *constants)]
                cursor.execute(f"{sql}{', '.join([row] * len(part))}{ending}", values)
                if returns_keys:
                    keys += [pk for (pk,) in cursor.fetchall()]
        return keys

    def _build(self, names: tuple[str, ...]) -> tuple[_Columns, str, str, list[Any]]:
        """Columns, the statement up to its rows, the text of a row, and the parameters behind its own values."""
        named = [_find_field(self._model, name) for name in names]
        rest = [field for field in self._model._meta.concrete_fields if field not in named and not field.primary_key]
        every = [*names, *(field.name for field in rest)]
        quoted = ", ".join(_quote(self._model, name) for name in every)
        table = connection.ops.quote_name(self._model._meta.db_table)
        constants = [field.get_db_prep_save(field.get_default(), connection) for field in rest]
        # Made of the model's own names alone.
        sql = f"INSERT INTO {table} ({quoted}) VALUES "  # noqa: S608
        return _list_columns(self._model, names), sql, f"({', '.join(['%s'] * len(every))})", constants


class PreparedUpdate:
    """The UPDATE of some columns by primary key; ``expressions`` are the same for all rows."""

    def __init__(self, model: type[models.Model], **expressions: Any) -> None:
        self._model = model
        self._expressions = expressions
        self._built: dict[tuple[str, ...], tuple[_Columns, str, list[Any]]] = {}

    def execute(self, rows: Iterable[tuple[int, Mapping[str, Any]]]) -> None:
        """Update each row, given as its primary key and its values by field; all name the same. None has to exist."""
        rows = list(rows)
        if not rows:
            return
        names = tuple(rows[0][1])
        if names not in self._built:
            self._built[names] = self._build(names)
        columns, sql, constants = self._built[names]
        with connection.cursor() as cursor:
            cursor.executemany(sql, [(*_convert(values, columns), *constants, pk) for pk, values in rows])

    def _build(self, names: tuple[str, ...]) -> tuple[_Columns, str, list[Any]]:
        """Columns, the statement, and the parameters between the values of a row and its primary key."""
        query = UpdateQuery(self._model)
        compiler = query.get_compiler("default")
        sets = [f"{_quote(self._model, name)} = %s" for name in names]
        constants: list[Any] = []
        for name, expression in self._expressions.items():
            resolved = expression.resolve_expression(query, allow_joins=False, for_save=True)
            sql, parameters = compiler.compile(resolved)
            sets.append(f"{_quote(self._model, name)} = {sql}")
            constants += parameters
        table = connection.ops.quote_name(self._model._meta.db_table)
        # Made of the model's own names alone.
        sql = f"UPDATE {table} SET {', '.join(sets)} WHERE {_quote(self._model, 'pk')} = %s"  # noqa: S608
        return _list_columns(self._model, names), sql, constants


def _find_field(model: type[models.Model], name: str) -> models.Field[Any, Any]:
    field = model._meta.pk if name == "pk" else model._meta.get_field(name)
    assert isinstance(field, models.Field) and field.column is not None, f"{model.__name__}.{name} is not a column."
    return field


def _quote(model: type[models.Model], name: str) -> str:
    return connection.ops.quote_name(_find_field(model, name).column or "")


def _list_columns(model: type[models.Model], names: Iterable[str]) -> _Columns:
    fields = [(name, _find_field(model, name)) for name in names]
    return [(name, None if isinstance(field, _UNCONVERTED_FIELDS) else field) for name, field in fields]


def _convert(values: Mapping[str, Any], columns: _Columns) -> list[Any]:
    """The parameters for one row."""
    return [
        values[name] if field is None else field.get_db_prep_save(values[name], connection) for name, field in columns
    ]
