"""SELECTs that pages ask again and again, with other numbers or texts each time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import cache
from itertools import accumulate
from json import JSONDecoder
from typing import Any, NamedTuple, TypeVar

from django.db import connections
from django.db.models import JSONField, Model, QuerySet
from django.db.models.expressions import Col

LARGEST_NUMBER = 2**63 - 1
"""The largest whole number that the databases hold."""

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
    """A query of rows for some values: numbers such as primary keys, texts or days.

    To build a statement from a queryset takes several times as long as to execute it: so it is built once for each
    database, with stand-ins for the values.
    """

    def __init__(
        self,
        build: Callable[[Sequence[Any]], QuerySet[Any, tuple[Any, ...]]],
        *,
        most: int = 0,
        kind: type[int] | type[str] = int,
        kinds: Sequence[type[int] | type[str] | type[date]] = (),
    ) -> None:
        """``build`` gives the queryset, a ``values_list``, for ``most`` values, which it may use for nothing else.

        All of them are of one ``kind``. Or each of them has its own, in ``kinds``: then there are always so many.
        """
        self._build = build
        self._most = len(kinds) or most
        self._least = len(kinds)
        self._kinds = tuple(kinds) or (kind,) * most
        self._statements: dict[str, _Statement] = {}

    def fetch(
        self, values: Sequence[int] | Sequence[str] | Sequence[Any] = (), *, using: str = "default"
    ) -> list[tuple[Any, ...]]:
        """The rows for these values, as the queryset would give them. Raises ``ValueError`` for more than ``most``."""
        if not self._least <= len(values) <= self._most:
            raise ValueError(f"This statement is for {self._most} values, not for {len(values)}.")
        # No row has a larger number, and drivers take none.
        values = [value for value in values if not isinstance(value, int) or value <= LARGEST_NUMBER]
        if self._most and len(values) < (self._least or 1):
            return []
        if using not in self._statements:
            self._statements[using] = self._prepare(using)
        statement = self._statements[using]
        parameters = list(statement.parameters)
        last = len(values) - 1
        connection = connections[using]
        adapted = [_adapt(value, connection) for value in values]
        for place, index in statement.places:
            # Any of them may stand twice: what is missing is filled up with one that is there.
            parameters[place] = adapted[min(index, last)]
        with connection.cursor() as cursor:
            for type_name, loader in statement.loaders:
                cursor.cursor.adapters.register_loader(type_name, loader)
            cursor.execute(statement.sql, parameters)
            rows = cursor.fetchall()
        return _convert(rows, statement.converters, connection)

    def _prepare(self, using: str) -> _Statement:
        stand_ins = [_STAND_INS[kind](index) for index, kind in enumerate(self._kinds)]
        query = self._build(stand_ins).using(using).query
        compiler = query.get_compiler(using)
        sql, parameters = compiler.as_sql()
        adapted = [_adapt(value, connections[using]) for value in stand_ins]
        # Django hands numbers to PostgreSQL as kinds of ``int`` that say how wide their column is.
        kinds = tuple(set(map(type, adapted)))
        places = tuple(
            (place, adapted.index(value))
            for place, value in enumerate(parameters)
            if isinstance(value, kinds) and value in adapted
        )
        converters = {
            place: ([_find_faster(convert, expression, using) for convert in functions], expression)
            for place, (functions, expression) in compiler.get_converters([it[0] for it in compiler.select]).items()
        }
        return _Statement(sql, tuple(parameters), places, converters, _find_loaders(using))


_STAND_INS: Mapping[type, Callable[[int], Any]] = {
    int: lambda index: ~index,
    str: lambda index: f"stand-in {index}",
    date: lambda index: date.min + timedelta(days=index),
}
"""A value of each kind that no query has by itself, and a different one for each place."""


def _adapt(value: Any, connection: Any) -> Any:
    """A value as the driver takes it: SQLite has days as texts."""
    return connection.ops.adapt_datefield_value(value) if type(value) is date else value


def _convert(rows: list[tuple[Any, ...]], converters: Mapping[int, Any], connection: Any) -> list[tuple[Any, ...]]:
    if not rows or not converters:
        return rows
    # A column at a time: Django goes through the columns of each row anew.
    columns: list[Sequence[Any]] = list(zip(*rows, strict=True))
    for place, (functions, expression) in converters.items():
        for convert in functions:
            columns[place] = [convert(value, expression, connection) for value in columns[place]]
    return list(zip(*columns, strict=True))


def _find_faster(convert: Any, expression: Any, using: str) -> Any:
    """What does the same as one of Django's converters where half of a list's time would go into that one."""
    own, name = getattr(convert, "__self__", None), getattr(convert, "__name__", "")
    if type(own) is JSONField and own.decoder is None and isinstance(expression, Col) and name == "from_db_value":
        return _read_json
    if name == "convert_datetimefield_value" and connections[using].timezone is UTC:
        return _name_utc
    return convert


_decode_json = JSONDecoder().raw_decode


def _read_json(value: Any, expression: Any, connection: Any) -> Any:
    """What ``JSONField`` makes of a column; ``json.loads`` takes five times as long for the short texts of most."""
    if value is None:
        return None
    try:
        read, end = _decode_json(value)
    except ValueError:
        end = -1
    return read if end == len(value) else expression.output_field.from_db_value(value, expression, connection)


def _name_utc(value: datetime | None, expression: Any, connection: Any) -> datetime | None:
    """A time that the database tells in UTC."""
    return value if value is None or value.tzinfo is not None else value.replace(tzinfo=UTC)


def list_columns(model: type[Model], relation: str = "", *, among: Collection[str] | None = None) -> tuple[str, ...]:
    """The names of all columns of a model which ``relation`` leads to, for a ``values_list`` and ``build_row``.

    ``among`` are the names of those that are wanted, if not all of them.
    """
    names = _list_names(model)
    if among is not None:
        names = tuple(name for name in names if name in among)
    return tuple(f"{relation}__{name}" for name in names) if relation else names


@cache
def _list_names(model: type[Model]) -> tuple[str, ...]:
    return tuple(field.attname for field in model._meta.concrete_fields)


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
