"""Making runs that have ended searchable."""

from __future__ import annotations

from collections.abc import Collection

from django.db import connection, transaction

from runs.models import Run
from runs.search import postgresql, sqlite
from runs.search.documents import build_documents


def index_runs(run_ids: Collection[int]) -> None:
    """Make the texts of runs that have ended searchable; what is stored of them already is replaced.

    The caller's transaction holds their rows: a run that is deleted meanwhile would leave its words behind.
    """
    documents = build_documents(run_ids)
    if documents:
        (postgresql if connection.vendor == "postgresql" else sqlite).store_documents(documents)


def reindex_runs(*, above: int, limit: int) -> list[int]:
    """Index the next ``limit`` runs above a run number again, of those that were indexed; gives their numbers.

    Runs that lost what they read and wrote are among them, and lose the words by which they may still be found.
    """
    with transaction.atomic():
        runs = Run.objects.filter(pk__gt=above, is_counted=True).order_by("pk").select_for_update()
        found = list(runs.only("pk", "outputs_removed_at")[:limit])
        index_runs([run.pk for run in found if run.outputs_removed_at is None])
        _forget_runs([run.pk for run in found if run.outputs_removed_at is not None])
    return [run.pk for run in found]


def _forget_runs(run_ids: Collection[int]) -> None:
    with connection.cursor() as cursor:
        cursor.executemany("DELETE FROM runs_searchdocument WHERE run_id = %s", [(run_id,) for run_id in run_ids])
