"""What Django and WhiteNoise would do anew for every test, to the same end: done once for all tests of a process."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import Permission
from django.contrib.contenttypes.models import ContentType
from django.core.management.commands import flush
from whitenoise.middleware import WhiteNoiseMiddleware


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


def keep_permissions(patch: pytest.MonkeyPatch) -> None:
    """Compare all models with the stored permissions once, and not whenever a test with transactions has ended.

    Emptied tables get the same rows again.
    """
    compare = flush.emit_post_migrate_signal
    kept: list[tuple[Any, list[Any]]] = []

    def restore(*args: Any, **options: Any) -> None:
        if not kept:
            compare(*args, **options)
            kept.extend((model, list(model._default_manager.all())) for model in (ContentType, Permission))
        else:
            for model, rows in kept:
                model._default_manager.bulk_create(rows)
        ContentType.objects.clear_cache()

    patch.setattr(flush, "emit_post_migrate_signal", restore)
