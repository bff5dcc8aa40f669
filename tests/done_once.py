"""What Django and WhiteNoise would do anew for every test, to the same end: done once for all tests of a process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import Permission
from django.contrib.contenttypes.models import ContentType
from django.core.management.commands import flush
from django.db.models import Model
from whitenoise.middleware import WhiteNoiseMiddleware

KEPT: tuple[type[Model], ...] = (ContentType, Permission)
MOST_ROWS = 1_000
"""Of a table from which PostgreSQL deletes row by row: where there are more, it truncates all tables."""


def keep_static_files(patch: pytest.MonkeyPatch) -> None:
    """Look through the folders of static files once for each way to serve them, and not for every client of a test."""
    find = WhiteNoiseMiddleware.add_files_from_finders
    found: dict[tuple[str, ...], dict[str, Any]] = {}

    def add_files_from_finders(middleware: Any) -> None:
        ways = (middleware.files, middleware.static_prefix, middleware.max_age, middleware.add_headers_function)
        places = (settings.STATICFILES_DIRS, settings.STATICFILES_FINDERS, settings.STORAGES["staticfiles"])
        key = tuple(map(repr, (*ways, *places)))
        if key not in found:
            find(middleware)
            found[key] = dict(middleware.files)
        middleware.files.update(found[key])

    patch.setattr(WhiteNoiseMiddleware, "add_files_from_finders", add_files_from_finders)


def empty_filled_tables(patch: pytest.MonkeyPatch) -> None:
    """Have a test with transactions leave empty tables behind without emptying all of them.

    PostgreSQL needs longer to truncate all tables than most tests take.
    """
    emptying = _Emptying(flush.sql_flush, flush.emit_post_migrate_signal)
    patch.setattr(flush, "sql_flush", emptying.list_statements)
    patch.setattr(flush, "emit_post_migrate_signal", emptying.restore)


class _Emptying:
    """What ``flush`` does after a test: rows go from the tables that have some; content types and permissions stay.

    Where a test changed those, they get the same rows again.
    """

    def __init__(self, empty_all: Callable[..., list[str]], compare_models: Callable[..., None]) -> None:
        self._empty_all = empty_all
        self._compare_models = compare_models
        self._tables: list[str] = []
        self._kept: dict[type[Model], list[tuple[Any, ...]]] = {}
        self._gone: list[type[Model]] = []

    def list_statements(self, style: Any, connection: Any, **options: bool) -> list[str]:
        """The statements that empty the tables; none if nothing was stored."""
        ContentType.objects.clear_cache()
        filled = self._count_rows(connection) if self._kept and not any(options.values()) else None
        if filled is None or (connection.vendor == "postgresql" and max(filled.values()) > MOST_ROWS):
            self._gone = [*KEPT]
            return self._empty_all(style, connection, **options)
        self._gone = [model for model, rows in self._kept.items() if _read_rows(model) != rows]
        names = [name for name, count in filled.items() if count] + [model._meta.db_table for model in self._gone]
        statements = [f"DELETE FROM {connection.ops.quote_name(name)}" for name in names]  # noqa: S608  # our own tables
        if connection.vendor == "postgresql":
            # Else a trigger refuses to have entries of the trail deleted.
            statements.insert(0, "SET LOCAL toolflow.purges_trail = 'on'")
        return statements if names else []

    def restore(self, *arguments: Any, **options: Any) -> None:
        """What follows upon it: the content types and permissions that there were."""
        if self._kept:
            for model in self._gone:
                model._default_manager.bulk_create(model(*values) for values in self._kept[model])
        else:
            self._compare_models(*arguments, **options)
            self._kept = {model: _read_rows(model) for model in KEPT}
        ContentType.objects.clear_cache()

    def _count_rows(self, connection: Any) -> dict[str, int]:
        """The tables beside the kept ones, with the number of their rows; those beyond ``MOST_ROWS`` aren't counted."""
        if not self._tables:
            kept = {model._meta.db_table for model in KEPT}
            names = connection.introspection.django_table_names(only_existing=True, include_views=False)
            self._tables = sorted(set(names) - kept)
        quote = connection.ops.quote_name
        counts = (
            f"(SELECT COUNT(*) FROM (SELECT 1 FROM {quote(name)} LIMIT {MOST_ROWS + 1}) AS found)"  # noqa: S608  # as above
            for name in self._tables
        )
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {', '.join(counts)}")
            return dict(zip(self._tables, cursor.fetchone(), strict=True))


def _read_rows(model: type[Model]) -> list[tuple[Any, ...]]:
    return list(model._default_manager.order_by("pk").values_list())
