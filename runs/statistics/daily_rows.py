"""Daily rows in memory, and storing them: one row for each combination of the values in ``KEY_NAMES``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar, cast

from runs.models import DailyAudits, DailyIssues, DailyRuns, DailySteps
from runs.models.statistics import DailyCounts
from runs.statistics.sums import add_up

Key = tuple[Any, ...]
"""The values of a row's ``KEY_NAMES``."""

_HEAD = ("flow_id", "day", "version_id", "is_simulated")
KEY_NAMES: Mapping[type[DailyCounts], tuple[str, ...]] = {
    DailyRuns: (*_HEAD, "model", "has_several"),
    DailySteps: (*_HEAD, "step", "model"),
    DailyAudits: (*_HEAD, "step", "audit", "code"),
    DailyIssues: (*_HEAD, "step", "code", "audit", "severity"),
}


VALUE_NAMES = {
    model: tuple(
        field.attname for field in model._meta.concrete_fields if field.attname not in ("id", "name", *key_names)
    )
    for model, key_names in KEY_NAMES.items()
}
"""What the rows of each model count."""
_MERGED: Mapping[str, Callable[..., int]] = {"first_run": min, "last_run": max}
"""Values that are not sums."""
BATCH_SIZE = 500
"""Rows in one statement."""

_Row = TypeVar("_Row", bound=DailyCounts)


class DailyRows:
    """Rows in memory, by model and key."""

    def __init__(self) -> None:
        self.by_model: dict[type[DailyCounts], dict[Key, DailyCounts]] = {model: {} for model in KEY_NAMES}

    def get(self, model: type[_Row], *key: Any) -> _Row:
        """The row of ``key``; a new one if there is none yet."""
        rows = cast("dict[Key, _Row]", self.by_model[model])
        if (row := rows.get(key)) is None:
            row = rows[key] = model(**dict(zip(KEY_NAMES[model], key, strict=True)))
        return row

    def add_to_stored(self) -> None:
        """Add the counts to those of the stored rows. The caller holds ``locks.STATISTICS``."""
        for model, rows in self.by_model.items():
            if not rows:
                continue
            flows, days, versions = (set(column) for column in list(zip(*rows, strict=True))[:3])
            stored_rows = model._default_manager.filter(flow__in=flows, day__in=days, version__in=versions).order_by()
            for stored in stored_rows:
                if (row := rows.get(build_key(stored))) is not None:
                    for name in VALUE_NAMES[model]:
                        setattr(row, name, _merge(name, getattr(stored, name), getattr(row, name)))
            store_rows(model, rows.values())


def _merge(name: str, stored: Any, counted: Any) -> Any:
    if (choose := _MERGED.get(name)) is None:
        return add_up((stored, counted))
    return counted if stored is None else choose(stored, counted)


def build_key(row: DailyCounts) -> Key:
    """The values that distinguish a row from others of its model."""
    return tuple(getattr(row, name) for name in KEY_NAMES[type(row)])


def store_rows(model: type[DailyCounts], rows: Collection[DailyCounts]) -> None:
    """Insert rows, or replace the counts of those that are there."""
    model._default_manager.bulk_create(
        rows,
        batch_size=BATCH_SIZE,
        update_conflicts=True,
        unique_fields=KEY_NAMES[model],
        update_fields=VALUE_NAMES[model],
    )
