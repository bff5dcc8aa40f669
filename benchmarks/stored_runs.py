"""Many stored runs, quickly: copies of the last run that ended, made within the database."""

from __future__ import annotations

from django.core.management.color import no_style
from django.db import connection, models, transaction
from django.db.models import Max

from runs.models import Attempt, Issue, Run, Step, TokenUsage

BATCH = 10_000
"""Runs copied in one transaction."""

PARENTS: dict[type[models.Model], tuple[str, type[models.Model] | None]] = {
    Run: ("", None),
    Step: ("run_id", Run),
    Attempt: ("step_id", Step),
    Issue: ("attempt_id", Attempt),
    TokenUsage: ("attempt_id", Attempt),
}
"""For each model its column that names the row it belongs to, and the model of that."""


def copy_runs(count: int) -> None:
    """Store ``count`` copies of the last run that ended, with all that belongs to it."""
    template = Run.objects.ended().latest("pk")
    rows = _find_rows(template)
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            # For this connection only, and for a database that nobody will miss.
            cursor.execute("PRAGMA synchronous = OFF")
            cursor.execute("PRAGMA cache_size = -262144")
    for done in range(0, count, BATCH):
        with transaction.atomic():
            _copy(rows, min(BATCH, count - done))
    with connection.cursor() as cursor:
        for statement in connection.ops.sequence_reset_sql(no_style(), list(PARENTS)):
            cursor.execute(statement)
        cursor.execute("ANALYZE")


def _find_rows(run: Run) -> dict[type[models.Model], list[int]]:
    """The keys of all rows of a run, by model."""
    steps = Step.objects.filter(run=run)
    attempts = Attempt.objects.filter(step__in=steps)
    return {
        Run: [run.pk],
        Step: list(steps.order_by("pk").values_list("pk", flat=True)),
        Attempt: list(attempts.order_by("pk").values_list("pk", flat=True)),
        Issue: list(Issue.objects.filter(attempt__in=attempts).order_by("pk").values_list("pk", flat=True)),
        TokenUsage: list(TokenUsage.objects.filter(attempt__in=attempts).order_by("pk").values_list("pk", flat=True)),
    }


def _copy(rows: dict[type[models.Model], list[int]], count: int) -> None:
    """The n-th copy of a row gets a key that follows from n and the row's place among the rows of the run."""
    highest = {model: model._default_manager.aggregate(highest=Max("pk"))["highest"] for model in rows}
    highest[TokenUsage] = highest[Attempt]
    places = {model: {key: place for place, key in enumerate(keys, start=1)} for model, keys in rows.items()}
    parents: dict[type[models.Model], dict[int, int]] = {}
    with connection.cursor() as cursor:
        for model, keys in rows.items():
            column, parent = PARENTS[model]
            if parent is not None:
                parents[model] = dict(model._default_manager.filter(pk__in=keys).values_list("pk", column))
            for key in keys:
                if model is TokenUsage:
                    # Its key is that of its attempt.
                    values = {column: (highest[Attempt], len(rows[Attempt]), places[Attempt][key])}
                else:
                    values = {"id": (highest[model], len(keys), places[model][key])}
                    if parent is not None:
                        values[column] = (highest[parent], len(rows[parent]), places[parent][parents[model][key]])
                cursor.execute(_build_insert(model, values), [count, key])


def _build_insert(model: type[models.Model], values: dict[str, tuple[int, int, int]]) -> str:
    """Copies of one row, the given columns counted up: highest key so far, rows a run, place in the run."""
    quote = connection.ops.quote_name
    table = quote(model._meta.db_table)
    columns = [field.column for field in model._meta.concrete_fields if field.column]
    selected = [
        "{} + (copy.n - 1) * {} + {}".format(*values[column]) if column in values else f"template.{quote(column)}"
        for column in columns
    ]
    key = quote("attempt_id" if model is TokenUsage else "id")
    return (
        "WITH RECURSIVE copy(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM copy WHERE n < %s) "  # noqa: S608  # all names come from the models
        f"INSERT INTO {table} ({', '.join(map(quote, columns))}) "
        f"SELECT {', '.join(selected)} FROM copy CROSS JOIN {table} AS template WHERE template.{key} = %s"
    )
