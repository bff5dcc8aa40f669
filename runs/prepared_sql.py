"""Statements that a drain executes for every attempt, built once.

Building an INSERT or UPDATE from querysets and model instances takes several times as long as executing it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.db import connections, models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.sql import UpdateQuery

_UNCONVERTED_FIELDS = (models.CharField, models.TextField, models.IntegerField, models.ForeignKey)
"""Fields whose values the drivers take without conversion."""


class _Columns:
    """Columns of a model that each row has its own values for."""

    def __init__(self, model: type[models.Model], names: Iterable[str]) -> None:
        self.fields = {name: _find_field(model, name) for name in names}
        self._converted = [(name, not isinstance(field, _UNCONVERTED_FIELDS)) for name, field in self.fields.items()]

    def convert(self, values: Mapping[str, Any], connection: BaseDatabaseWrapper) -> list[Any]:
        """The parameters for one row."""
        return [
            self.fields[name].get_db_prep_save(values[name], connection) if is_converted else values[name]
            for name, is_converted in self._converted
        ]


class PreparedInsert:
    """The INSERT of rows of a model. Columns that are not named get the defaults of their fields."""

    def __init__(self, model: type[models.Model], *names: str) -> None:
        """``names`` are the fields that every row has its own value for."""
        self._model = model
        self._columns = _Columns(model, names)
        named = self._columns.fields.values()
        self._rest = [field for field in model._meta.concrete_fields if field not in named and not field.primary_key]
        self._statements: dict[str, tuple[str, str, list[Any]]] = {}

    def execute(self, rows: Iterable[Mapping[str, Any]], *, using: str = "default") -> None:
        """Insert each row, given as its values by name."""
        self._insert(rows, "", using)

    def execute_returning(self, rows: Iterable[Mapping[str, Any]], *, using: str = "default") -> list[int]:
        """Insert each row; return their primary keys in the same order."""
        return [pk for (pk,) in self._insert(rows, f" RETURNING {_quote_column(self._model, 'pk', using)}", using)]

    def _insert(self, rows: Iterable[Mapping[str, Any]], ending: str, using: str) -> list[tuple[int]]:
        connection = connections[using]
        if using not in self._statements:
            self._statements[using] = self._build(using)
        sql, row, constants = self._statements[using]
        parameters = [[*self._columns.convert(values, connection), *constants] for values in rows]
        if not parameters:
            return []
        with connection.cursor() as cursor:
            values = [value for parameters_of_row in parameters for value in parameters_of_row]
            cursor.execute(f"{sql}{', '.join([row] * len(parameters))}{ending}", values)
            return cursor.fetchall() if ending else []

    def _build(self, using: str) -> tuple[str, str, list[Any]]:
        """The statement up to its rows, the text of a row, and the parameters behind those that a row has itself."""
        connection = connections[using]
        names = [*self._columns.fields, *(field.name for field in self._rest)]
        columns = ", ".join(_quote_column(self._model, name, using) for name in names)
        constants = [field.get_db_prep_save(field.get_default(), connection) for field in self._rest]
        table = connection.ops.quote_name(self._model._meta.db_table)
        # Made of the model's own names alone.
        return f"INSERT INTO {table} ({columns}) VALUES ", f"({', '.join(['%s'] * len(names))})", constants  # noqa: S608


class PreparedUpdate:
    """The UPDATE of some columns by primary key."""

    def __init__(self, model: type[models.Model], *names: str, **expressions: Any) -> None:
        """``names`` are the fields that every row has its own value for; ``expressions`` are the same for all rows."""
        self._model = model
        self._columns = _Columns(model, names)
        self._expressions = expressions
        self._statements: dict[str, tuple[str, list[Any]]] = {}

    def execute(self, rows: Iterable[tuple[int, Mapping[str, Any]]], *, using: str = "default") -> None:
        """Update each row, given as its primary key and the values by name. Rows that are gone are left out."""
        connection = connections[using]
        if using not in self._statements:
            self._statements[using] = self._build(using)
        sql, constants = self._statements[using]
        parameters = [(*self._columns.convert(values, connection), *constants, pk) for pk, values in rows]
        if parameters:
            with connection.cursor() as cursor:
                cursor.executemany(sql, parameters)

    def _build(self, using: str) -> tuple[str, list[Any]]:
        """The statement, and the parameters between the values of a row and its primary key."""
        query = UpdateQuery(self._model)
        compiler = query.get_compiler(using)
        sets = [f"{_quote_column(self._model, name, using)} = %s" for name in self._columns.fields]
        constants: list[Any] = []
        for name, expression in self._expressions.items():
            resolved = expression.resolve_expression(query, allow_joins=False, for_save=True)
            sql, parameters = compiler.compile(resolved)
            sets.append(f"{_quote_column(self._model, name, using)} = {sql}")
            constants += parameters
        table = connections[using].ops.quote_name(self._model._meta.db_table)
        key = _quote_column(self._model, "pk", using)
        # Made of the model's own names alone.
        return f"UPDATE {table} SET {', '.join(sets)} WHERE {key} = %s", constants  # noqa: S608


def _find_field(model: type[models.Model], name: str) -> models.Field[Any, Any]:
    field = model._meta.pk if name == "pk" else model._meta.get_field(name)
    assert isinstance(field, models.Field) and field.column is not None, f"{model.__name__}.{name} is no column."
    return field


def _quote_column(model: type[models.Model], name: str, using: str) -> str:
    return connections[using].ops.quote_name(_find_field(model, name).column or "")
