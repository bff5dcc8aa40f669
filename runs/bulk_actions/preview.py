"""What a bulk action would come to, for whoever is asked to confirm it. Nothing here changes a row."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from decimal import Decimal

from django.db.models import Count, Q, Sum

from runs.bulk_actions.working import UNDER_WAY, narrow_statuses
from runs.filters import RunFilters, find_runs
from runs.models import BulkKind, Run
from runs.models.run import ENDED
from runs.paging import Position

MAX_COUNTED = 1_000
"""Runs; of more it is only said that there are more."""
MOST_LOOKS = 20
"""How often is looked for more runs where looking stops early."""
EXAMPLES = 10


@dataclass(frozen=True, slots=True)
class BulkPreview:
    """The runs that would be cancelled or run again."""

    count: int
    """Runs that are meant, as far as they were counted."""
    is_exact: bool
    """False if there may be more."""
    examples: tuple[Run, ...]
    """The newest of them."""
    cost: Decimal | None
    """USD that the counted runs came to; None if that is not known of any."""
    unpriced: int
    """Attempts of theirs at an unknown price."""
    simulated: int
    """How many of the counted were answered by the simulated model."""
    left_out: int
    """Chosen runs to which nothing will be done, because they have ended or have not, or because there are none."""


def preview_chosen(kind: BulkKind, run_ids: Collection[int]) -> BulkPreview:
    """What ``kind`` would do to these runs."""
    is_meant = ~Q(status__in=ENDED) if kind == BulkKind.CANCEL else Q(status__in=ENDED)
    runs = Run.objects.filter(is_meant, pk__in=run_ids).order_by("-created_at", "-pk")
    meant = list(runs.values_list("pk", flat=True))
    return _sum_up(meant, is_exact=True, left_out=len(set(run_ids)) - len(meant))


def preview_matching(kind: BulkKind, query: str, *, newest: int) -> BulkPreview:
    """What ``kind`` would do to all runs up to ``newest`` that match the filters of a list."""
    # To others nothing would be done, and to look among those that have ended may take long.
    filters = narrow_statuses(RunFilters(query), UNDER_WAY if kind == BulkKind.CANCEL else ENDED)
    if filters is None:
        return _sum_up([], is_exact=True, left_out=0)
    ids: list[int] = []
    position: Position | None = None
    for _ in range(MOST_LOOKS):
        part = find_runs(filters, before=position, newest=newest, limit=MAX_COUNTED + 1 - len(ids))
        ids += part.ids
        position = part.searched_to
        if position is None:
            break
    is_exact = position is None and len(ids) <= MAX_COUNTED
    return _sum_up(ids[:MAX_COUNTED], is_exact=is_exact, left_out=0)


def _sum_up(ids: list[int], *, is_exact: bool, left_out: int) -> BulkPreview:
    figures = Run.objects.filter(pk__in=ids).aggregate(
        cost=Sum("cost"), unpriced=Sum("unpriced_count"), simulated=Count("pk", filter=Q(is_simulated=True))
    )
    examples = (
        Run.objects.filter(pk__in=ids[:EXAMPLES])
        .select_related("flow", "version")
        .defer("input", "model_settings", "end_sentence", "flow__input_schema", "version__spec")
        .order_by("-created_at", "-pk")
    )
    return BulkPreview(
        count=len(ids),
        is_exact=is_exact,
        examples=tuple(examples),
        cost=figures["cost"],
        unpriced=figures["unpriced"] or 0,
        simulated=figures["simulated"],
        left_out=left_out,
    )
