"""SELECTs that pages ask again and again, with other numbers or texts each time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple, TypeVar

from django.db import connections
from django.db.models import Model, QuerySet

_Model = TypeVar("_Model", bound=Model)


class _Statement(NamedTuple):
    sql: str
    parameters: tuple[Any, ...]
    places: tuple[tuple[int, int], ...]
    """Where among the parameters a value goes, and the how manieth."""
    converters: Mapping[int, tuple[Sequence[Any], Any]]
    """What makes of a column's values what its field holds, by the place of the column."""
    loaders: tuple[tuple[str, Any], ...]
    """What reads columns, by their types in the database, where the driver has something faster than Django."""


class PreparedSelect:
    """A query of rows for some values: numbers such as primary keys, or texts.

    To build a statement from a queryset takes several times as long as to execute it: so it is built once for each
    database, with stand-ins for the values.
    """

    def __init__(
        self,
        build: Callable[[Sequence[Any]], QuerySet[Any, tuple[Any, ...]]],
        *,
        most: int = 0,
        kind: type[int] | type[str] = int,
    ) -> None:
        """``build`` gives the queryset, a ``values_list``, for ``most`` values, which it may use for nothing else.

        All of them are of one ``kind``.
        """
        self._build = build
        self._most = most
        self._kind = kind
        self._statements: dict[str, _Statement] = {}

    def fetch(self, values: Sequence[int] | Sequence[str] = (), *, using: str = "default") -> list[tuple[Any, ...]]:
        """The rows for these values, as the queryset would give them. Raises ``ValueError`` for more than ``most``."""
        if len(values) > self._most:
            raise ValueError(f"This statement is for {self._most} values, not for {len(values)}.")
        if self._most and not values:
            return []
        if using not in self._statements:
            self._statements[using] = self._prepare(using)
        statement = self._statements[using]
        parameters = list(statement.parameters)
        last = len(values) - 1
        for place, index in statement.places:
            # Any of them may stand twice: what is missing is filled up with one that is there.
            parameters[place] = values[min(index, last)]
        connection = connections[using]
        with connection.cursor() as cursor:
            for type_name, loader in statement.loaders:
                cursor.cursor.adapters.register_loader(type_name, loader)
            cursor.execute(statement.sql, parameters)
            rows = cursor.fetchall()
        return _convert(rows, statement.converters, connection)

    def _prepare(self, using: str) -> _Statement:
        stand_ins = [~index if self._kind is int else f"stand-in {index}" for index in range(self._most)]
        query = self._build(stand_ins).using(using).query
        compiler = query.get_compiler(using)
        sql, parameters = compiler.as_sql()
        places = tuple(
            (place, stand_ins.index(value))
            for place, value in enumerate(parameters)
            if type(value) is self._kind and value in stand_ins
        )
        converters = compiler.get_converters([column[0] for column in compiler.select])
        return _Statement(sql, tuple(parameters), places, converters, _find_loaders(using))


def _convert(rows: list[tuple[Any, ...]], converters: Mapping[int, Any], connection: Any) -> list[tuple[Any, ...]]:
    if not rows or not converters:
        return rows
    # A column at a time: Django goes through the columns of each row anew.
    columns: list[Sequence[Any]] = list(zip(*rows, strict=True))
    for place, (functions, expression) in converters.items():
        for convert in functions:
            columns[place] = [convert(value, expression, connection) for value in columns[place]]
    return list(zip(*columns, strict=True))


def list_columns(model: type[Model], relation: str = "", *, among: Collection[str] | None = None) -> tuple[str, ...]:
    """The names of all columns of a model which ``relation`` leads to, for a ``values_list`` and ``build_row``.

    ``among`` are the names of those that are wanted, if not all of them.
    """
    names = (field.attname for field in model._meta.concrete_fields if among is None or field.attname in among)
    return tuple(f"{relation}__{name}" if relation else name for name in names)


class RowParts:
    """Rows that hold the columns of several objects, one after the other."""

    def __init__(self, *parts: tuple[str, ...]) -> None:
        self.columns = tuple(name for part in parts for name in part)
        ends = list(accumulate(len(part) for part in parts))
        self._slices = [slice(begin, end) for begin, end in zip([0, *ends], ends, strict=False)]

    def split(self, values: Sequence[Any]) -> list[Sequence[Any]]:
        """The values of each part."""
        return [values[part] for part in self._slices]


def build_row(
    model: type[_Model], values: Sequence[Any], *, among: Collection[str] | None = None, using: str = "default"
) -> _Model:
    """The object of a row that holds the columns of ``list_columns``; the others are read when they are wanted."""
    return model.from_db(using, list_columns(model, among=among), values)


def _find_loaders(using: str) -> tuple[tuple[str, Any], ...]:
    connection = connections[using]
    # The driver gives times in the zone of the connection.
    if connection.vendor != "postgresql" or connection.timezone_name != "UTC":
        return ()
    from psycopg.types.datetime import TimestamptzLoader

    # Django's own is written in Python: for fifty rows with three times each it takes longer than all else does.
    return (("timestamptz", TimestamptzLoader),)
