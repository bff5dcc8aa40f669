"""UPDATEs of many rows, each with values of its own, in one go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.db import connections, models
from django.db.models.sql import UpdateQuery


class PreparedUpdate:
    """The UPDATE of some columns by primary key.

    Building the statement from a queryset takes ten times as long as executing it, and a drain does it for every
    attempt: so it is built once, from the model's own fields.
    """

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
