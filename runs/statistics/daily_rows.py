"""Daily rows by what they are about: sums in memory, and adding them to what is stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

from django.db.models import QuerySet

from runs.models import DailyAudits, DailyIssues, DailyRuns, DailySteps
from runs.models.statistics import DailyCounts
from runs.prepared_update import PreparedUpdate
from runs.statistics.durations import merge_counts

Key = tuple[Any, ...]
"""The values of what a daily row is about, in the order of ``KEY_NAMES``."""

_HEAD = ("flow_id", "day", "version_id", "is_simulated")
KEY_NAMES: Mapping[type[DailyCounts], tuple[str, ...]] = {
    DailyRuns: _HEAD,
    DailySteps: (*_HEAD, "step", "model"),
    DailyAudits: (*_HEAD, "step", "audit", "code"),
    DailyIssues: (*_HEAD, "code", "audit", "severity"),
}
"""What each kind of daily row is about; a row for each combination of values."""


def _list_values(model: type[DailyCounts]) -> tuple[str, ...]:
    known = {"id", "name", *KEY_NAMES[model]}
    return tuple(column.attname for column in model._meta.concrete_fields if column.attname not in known)


VALUE_NAMES = {model: _list_values(model) for model in KEY_NAMES}
"""What each kind of daily row counts."""

_UPDATES = {model: PreparedUpdate(model, *names) for model, names in VALUE_NAMES.items()}

CHUNK = 500
"""Rows created or deleted with one statement."""

_Row = TypeVar("_Row", bound=DailyCounts)


class DailyRows:
    """Daily rows that are not stored, begun as they are asked for."""

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
"""What a daily row counts, by name."""


def read_values(row: DailyCounts) -> Values:
    """What a row counts."""
    return {name: getattr(row, name) for name in VALUE_NAMES[type(row)]}


def load_stored(rows: QuerySet[_Row]) -> dict[Key, tuple[int, Values]]:
    """The primary keys of stored rows and what they count, by key."""
    key_names, value_names = KEY_NAMES[rows.model], VALUE_NAMES[rows.model]
    split = 1 + len(key_names)
    found = rows.order_by().values_list("pk", *key_names, *value_names)
    return {row[1:split]: (row[0], dict(zip(value_names, row[split:], strict=True))) for row in found}


def add_to_stored(rows: DailyRows) -> None:
    """Add what was counted to the stored rows; those that are missing are made.

    Nobody else may do so at the same time (``runs.statistics.turns``). The statements don't grow in number with rows.
    """
    for model, counted in rows:
        if not counted:
            continue
        flows, days, versions = (set(values) for values in list(zip(*counted, strict=True))[:3])
        near = model._default_manager.filter(flow_id__in=flows, day__in=days, version_id__in=versions)
        stored = load_stored(near)
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
