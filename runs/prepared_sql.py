"""Statements that a drain executes for every attempt, built once.

Building an INSERT or UPDATE from querysets and model instances takes several times as long as executing it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.db import connections, models
from django.db.models.sql import UpdateQuery


class PreparedInsert:
    """The INSERT of rows of a model. Columns that are not named get the defaults of their fields."""

    def __init__(self, model: type[models.Model], *names: str) -> None:
        """``names`` are the fields that every row has its own value for."""
        self._model = model
        self._columns = {name: _find_column(model, name) for name in names}
        self._rest = [
            field
            for field in model._meta.concrete_fields
            if field not in self._columns.values() and not field.primary_key
        ]

    def execute(self, rows: Iterable[Mapping[str, Any]], *, using: str = "default") -> None:
        """Insert each row, given as its values by name."""
        self._insert(rows, "", using)

    def execute_returning(self, rows: Iterable[Mapping[str, Any]], *, using: str = "default") -> list[int]:
        """Insert each row; return their primary keys in the same order."""
        key = connections[using].ops.quote_name(_name_column(_find_column(self._model, "pk")))
        return [pk for (pk,) in self._insert(rows, f" RETURNING {key}", using)]

    def _insert(self, rows: Iterable[Mapping[str, Any]], ending: str, using: str) -> list[tuple[int]]:
        connection = connections[using]
        constants = [field.get_db_prep_save(field.get_default(), connection) for field in self._rest]
        parameters: list[Any] = []
        count = 0
        for row in rows:
            count += 1
            parameters += [column.get_db_prep_save(row[name], connection) for name, column in self._columns.items()]
            parameters += constants
        if not count:
            return []
        quote = connection.ops.quote_name
        columns = [*self._columns.values(), *self._rest]
        names = ", ".join(quote(_name_column(column)) for column in columns)
        places = f"({', '.join(['%s'] * len(columns))})"
        # Made of the model's own names alone.
        sql = f"INSERT INTO {quote(self._model._meta.db_table)} ({names}) VALUES {', '.join([places] * count)}{ending}"  # noqa: S608
        with connection.cursor() as cursor:
            cursor.execute(sql, parameters)
            return cursor.fetchall() if ending else []


class PreparedUpdate:
    """The UPDATE of some columns by primary key."""

    def __init__(self, model: type[models.Model], *names: str, **expressions: Any) -> None:
        """``names`` are the fields that every row has its own value for; ``expressions`` are the same for all rows."""
        self._model = model
        self._columns = {name: _find_column(model, name) for name in names}
        self._expressions = expressions
        self._statements: dict[str, tuple[str, tuple[Any, ...]]] = {}

    def execute(self, rows: Iterable[tuple[int, Mapping[str, Any]]], *, using: str = "default") -> None:
        """Update each row, given as its primary key and the values by name. Rows that are gone are left out."""
        connection = connections[using]
        if using not in self._statements:
            self._statements[using] = self._build(using)
        sql, constants = self._statements[using]
        parameters = [
            (
                *(column.get_db_prep_save(values[name], connection) for name, column in self._columns.items()),
                *constants,
                pk,
            )
            for pk, values in rows
        ]
        if parameters:
            with connection.cursor() as cursor:
                cursor.executemany(sql, parameters)

    def _build(self, using: str) -> tuple[str, tuple[Any, ...]]:
        """The statement, and the parameters between the values of a row and its primary key."""
        quote = connections[using].ops.quote_name
        query = UpdateQuery(self._model)
        compiler = query.get_compiler(using)
        sets = [f"{quote(_name_column(column))} = %s" for column in self._columns.values()]
        constants: list[Any] = []
        for name, expression in self._expressions.items():
            resolved = expression.resolve_expression(query, allow_joins=False, for_save=True)
            sql, parameters = compiler.compile(resolved)
            sets.append(f"{quote(_name_column(_find_column(self._model, name)))} = {sql}")
            constants += parameters
        table, key = quote(self._model._meta.db_table), quote(_name_column(_find_column(self._model, "pk")))
        # Made of the model's own names alone.
        return f"UPDATE {table} SET {', '.join(sets)} WHERE {key} = %s", tuple(constants)  # noqa: S608


def _find_column(model: type[models.Model], name: str) -> models.Field[Any, Any]:
    field = model._meta.pk if name == "pk" else model._meta.get_field(name)
    assert isinstance(field, models.Field), f"{model.__name__}.{name} is no column."
    return field


def _name_column(field: models.Field[Any, Any]) -> str:
    assert field.column is not None, f"{field.name} is no column."
    return field.column
