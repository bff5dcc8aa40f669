"""Rows of days by what they are about: sums in memory, and adding them to what is stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from typing import Any, TypeVar, cast

from django.db.models import QuerySet

from runs.models import DailyAudits, DailyIssues, DailyRuns, DailySteps
from runs.models.statistics import DailyCounts
from runs.prepared_select import PreparedSelect
from runs.prepared_sql import PreparedUpdate
from runs.statistics.durations import merge_counts

Key = tuple[Any, ...]
"""The values of what a row is about, in the order of ``KEY_NAMES``."""

_HEAD = ("flow_id", "day", "version_id", "is_simulated")
KEY_NAMES: Mapping[type[DailyCounts], tuple[str, ...]] = {
    DailyRuns: (*_HEAD, "model", "has_several"),
    DailySteps: (*_HEAD, "step", "model"),
    DailyAudits: (*_HEAD, "step", "audit", "code"),
    DailyIssues: (*_HEAD, "code", "audit", "severity"),
}
"""What each kind of row is about; a row for each combination of values. The first three narrow down what is read."""


def _list_values(model: type[DailyCounts]) -> tuple[str, ...]:
    known = {"id", "name", *KEY_NAMES[model]}
    return tuple(column.attname for column in model._meta.concrete_fields if column.attname not in known)


VALUE_NAMES = {model: _list_values(model) for model in KEY_NAMES}
"""What each kind of row counts."""

_UPDATES = {model: PreparedUpdate(model) for model in KEY_NAMES}

_ROOM = (8, 4, 8)
"""For how many values of the first three there is room in a prepared statement: more than most batches have."""

CHUNK = 500
"""Rows created or deleted with one statement."""

_Row = TypeVar("_Row", bound=DailyCounts)


class DailyRows:
    """Rows that are not stored, begun as they are asked for."""

    def __init__(self) -> None:
        self._rows: dict[type[DailyCounts], dict[Key, DailyCounts]] = {model: {} for model in KEY_NAMES}

    def find(self, model: type[_Row], *key: Any) -> _Row:
        """The row for ``key``, new if there was none yet."""
        rows = cast("dict[Key, _Row]", self._rows[model])
        if (row := rows.get(key)) is None:
            row = rows[key] = model(**dict(zip(KEY_NAMES[model], key, strict=True)))
        return row

    def __iter__(self) -> Iterator[tuple[type[DailyCounts], dict[Key, DailyCounts]]]:
        """The rows of each model, by key."""
        yield from self._rows.items()


Values = dict[str, Any]
"""What a row counts, by name."""


def read_values(row: DailyCounts) -> Values:
    """What a row counts."""
    return {name: getattr(row, name) for name in VALUE_NAMES[type(row)]}


def load_stored(rows: QuerySet[_Row]) -> dict[Key, tuple[int, Values]]:
    """The primary keys of stored rows and what they count, by key."""
    return _key_rows(rows.model, _select_columns(rows))


def _select_columns(rows: QuerySet[_Row]) -> QuerySet[_Row, tuple[Any, ...]]:
    return rows.order_by().values_list("pk", *KEY_NAMES[rows.model], *VALUE_NAMES[rows.model])


def _key_rows(model: type[DailyCounts], found: Iterable[tuple[Any, ...]]) -> dict[Key, tuple[int, Values]]:
    value_names = VALUE_NAMES[model]
    split = 1 + len(KEY_NAMES[model])
    return {row[1:split]: (row[0], dict(zip(value_names, row[split:], strict=True))) for row in found}


def _load_near(model: type[DailyCounts], keys: Iterable[Key]) -> dict[Key, tuple[int, Values]]:
    """Stored rows, among them all that ``keys`` are of, as ``load_stored`` gives them."""
    columns = [sorted(set(column)) for column in list(zip(*keys, strict=True))[: len(_ROOM)]]
    if any(len(column) > room for column, room in zip(columns, _ROOM, strict=True)):
        return load_stored(_find_near(model, columns))
    # What is left of the room is filled up with a value that is there.
    values = [
        value
        for column, room in zip(columns, _ROOM, strict=True)
        for value in (*column, *column[-1:] * (room - len(column)))
    ]
    return _key_rows(model, _NEAR[model].fetch(values))


def _find_near(model: type[DailyCounts], columns: Sequence[Sequence[Any]]) -> QuerySet[DailyCounts]:
    names = KEY_NAMES[model][: len(_ROOM)]
    rows: QuerySet[DailyCounts] = model._default_manager.filter(
        **{f"{name}__in": column for name, column in zip(names, columns, strict=True)}
    )
    return rows


def _prepare_near(model: type[DailyCounts]) -> PreparedSelect:
    flows, days, _ = _ROOM

    def build(values: Sequence[Any]) -> QuerySet[Any, Any]:
        columns = (values[:flows], values[flows : flows + days], values[flows + days :])
        return _select_columns(_find_near(model, columns))

    kinds = [kind for kind, room in zip((int, date, int), _ROOM, strict=True) for _ in range(room)]
    return PreparedSelect(build, kinds=kinds)


_NEAR = {model: _prepare_near(model) for model in KEY_NAMES}
"""Building these statements takes several times as long as executing them, and there is one of each for every batch."""


def add_to_stored(rows: DailyRows) -> None:
    """Add what was counted to the stored rows; those that are missing are made.

    The caller holds ``locks.STATISTICS``. The statements don't grow in number with rows.
    """
    for model, counted in rows:
        if not counted:
            continue
        stored = _load_near(model, counted)
        create_rows(model, [row for key, row in counted.items() if key not in stored])
        update_rows(
            model,
            (
                (stored[key][0], _sum_values(stored[key][1], read_values(row)))
                for key, row in counted.items()
                if key in stored
            ),
        )


def _sum_values(total: Values, part: Values) -> Values:
    return {
        name: merge_counts([total[name], value]) if isinstance(value, dict) else total[name] + value
        for name, value in part.items()
    }


def create_rows(model: type[DailyCounts], rows: Iterable[DailyCounts]) -> None:
    """Store new rows of ``model``."""
    model._default_manager.bulk_create(rows, batch_size=CHUNK)


def update_rows(model: type[DailyCounts], rows: Iterable[tuple[int, Values]]) -> None:
    """Store what rows of ``model`` count now, given by their primary keys."""
    _UPDATES[model].execute(rows)


def delete_rows(model: type[DailyCounts], keys: Sequence[int]) -> None:
    """Delete stored rows of ``model``, given by their primary keys."""
    for begin in range(0, len(keys), CHUNK):
        model._default_manager.filter(pk__in=keys[begin : begin + CHUNK]).delete()
