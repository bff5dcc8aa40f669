"""What an earlier release stored opens in this one, and that release's processes may finish beside it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations import AddField
from django.test import Client
from django.utils import timezone

from flows.engine.history import Outcome
from runs.models import Attempt, DailyRuns, Issue, Priority, Run, TokenUsage
from runs.search import read_query
from runs.stored_history import load_history
from runs.tally import tally_ended_runs
from tests.engine.builders import make_flow, make_step
from tests.engine.model_server import ModelServer
from tests.runs.builders import make_run, make_version
from tests.runs.executing import drain, script
from tests.runs.older_tables import hold_older_tables, migrate, migrate_to_newest
from tests.runs.searching import search_runs

pytestmark = pytest.mark.django_db(transaction=True)

FIRST_TABLES = [("flows", "0001_initial"), ("runs", "0002_sweep_schedule")]
FIRST_RELEASE = [("flows", "0003_revision"), ("runs", "0008_version_status_index")]
"""The tables of version 0.1.0."""


@pytest.fixture
def first_tables() -> Iterator[Any]:
    """The models of the first tables there were, in a database that has these."""
    with hold_older_tables(FIRST_TABLES) as models:
        yield models


@pytest.fixture
def first_release() -> Iterator[Any]:
    """The models of the first release, in a database of that release."""
    with hold_older_tables(FIRST_RELEASE) as models:
        yield models


@pytest.fixture
def old_models() -> Any:
    """The models of the first release, over the newest tables: they read and write the columns that it knows."""
    return MigrationLoader(connection).project_state(FIRST_RELEASE).apps


def test_a_run_in_the_first_tables_opens_with_all_that_was_stored(first_tables: Any) -> None:
    flow = first_tables.get_model("flows", "Flow").objects.create(name="example", title="Example")
    spec = make_flow(make_step())
    version = first_tables.get_model("flows", "FlowVersion").objects.create(
        flow=flow, number=1, spec=spec.to_document(), digest=spec.digest
    )
    run = first_tables.get_model("runs", "Run").objects.create(
        flow=flow, version=version, input={"topic": "tea"}, model_settings={"model": "gpt-5-mini"}, step_count=1
    )
    step = first_tables.get_model("runs", "Step").objects.create(run=run, index=1, name="Step 1")
    request = {"model": "gpt-4.1", "messages": [{"role": "user", "content": "Tee, süß 🍵"}], "a": 1}
    for number, sent in enumerate((request, None), start=1):
        attempt = first_tables.get_model("runs", "Attempt").objects.create(
            step=step, number=number, outcome="failed", output={"text": "Tea."}, request=sent
        )
        first_tables.get_model("runs", "TokenUsage").objects.create(attempt=attempt, total=30)

    migrate_to_newest()
    upgraded = Run.objects.get()
    assert (upgraded.priority, upgraded.token_budget, upgraded.record_number) == (Priority.NORMAL, None, 0)
    first, second = load_history(upgraded).attempts(1)
    assert (first.outcome, first.output, first.usage.total) == (Outcome.FAILED, {"text": "Tea."}, 30)
    assert first.request == request and list(first.request or {}) == ["model", "messages", "a"]
    assert second.request is None


def _store_ended_run(models: Any) -> None:
    """A run of the first release that failed once and then passed."""
    spec = make_flow(make_step())
    flow = models.get_model("flows", "Flow").objects.create(name=spec.name, title="Example")
    version = models.get_model("flows", "FlowVersion").objects.create(
        flow=flow, number=1, spec=spec.to_document(), digest=spec.digest
    )
    models.get_model("flows", "Flow").objects.update(live_version=version)
    now = timezone.now()
    run = models.get_model("runs", "Run").objects.create(
        flow=flow, version=version, input={"topic": "quince"}, model_settings={"model": "gpt-5-mini"}, step_count=1,
        status="succeeded", end_reason="all_steps_passed", end_sentence="All steps passed.", steps_passed=1,
        started_at=now, ended_at=now, attempt_count=2, retry_count=1, issues_high=1, total_tokens=60,
    )  # fmt: skip
    step = models.get_model("runs", "Step").objects.create(run=run, index=1, name="Step 1")
    for number, outcome in enumerate(("failed", "passed"), start=1):
        attempt = models.get_model("runs", "Attempt").objects.create(
            step=step, number=number, outcome=outcome, output={"text": "Jam."}, started_at=now, ended_at=now
        )
        models.get_model("runs", "TokenUsage").objects.create(attempt=attempt, total=30)
        if outcome == "failed":
            models.get_model("runs", "Issue").objects.create(
                attempt=attempt, position=0, code="too_short", severity="high", description="Too short."
            )


def test_every_page_and_the_api_show_runs_of_the_first_release(first_release: Any) -> None:
    _store_ended_run(first_release)
    migrate_to_newest()
    # Workers of this release count and index what they find.
    assert tally_ended_runs() == 1
    run = Run.objects.get()
    assert search_runs(read_query("quince")) == [run.pk]
    assert DailyRuns.objects.get().runs == 1
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    for address in (f"/runs/{run.pk}/", "/runs/?q=quince", f"/flows/{run.flow.name}/", "/"):
        page = client.get(address)
        assert page.status_code == 200, address
    document: Any = client.get(f"/api/v1/runs/{run.pk}").json()
    first, second = document["steps"][1]["attempts"]
    assert (first["outcome"], [issue["code"] for issue in first["issues"]]) == ("failed", ["too_short"])
    assert (second["outcome"], second["output"], document["usage"]["total"]) == ("passed", {"text": "Jam."}, 60)


def test_all_migrations_can_be_undone_and_done_again() -> None:
    migrate(FIRST_TABLES)
    migrate_to_newest()
    assert make_run(make_version(make_flow(make_step()))).status == "queued"


def test_rows_of_an_older_process_fit_the_newest_tables() -> None:
    """A column that older processes don't know must be fillable by the database: they may write beside newer ones."""
    loader = MigrationLoader(None)
    newest = loader.project_state().apps
    of_first_release = {key for release in FIRST_RELEASE for key in loader.graph.forwards_plan(release)}
    offenders = []
    for key, migration in loader.disk_migrations.items():
        if key[0] not in ("flows", "runs") or key in of_first_release:
            continue
        made = {operation.name.lower() for operation in migration.operations if hasattr(operation, "fields")}
        added = [operation for operation in migration.operations if isinstance(operation, AddField)]
        for operation in added:
            if operation.model_name_lower in made:
                continue
            field = newest.get_model(key[0], operation.model_name)._meta.get_field(operation.name)
            if not field.null and not field.has_db_default():
                offenders.append(f"{'.'.join(key)}: {operation.model_name}.{operation.name}")
    assert not offenders


def test_a_worker_of_the_release_before_finishes_its_run_in_the_newest_tables(old_models: Any) -> None:
    """What it inserts while it works: only columns that its own models know."""
    run = make_run(make_version(make_flow(make_step())))
    step = old_models.get_model("runs", "Step").objects.create(run_id=run.pk, index=1, name="Step 1")
    attempt = old_models.get_model("runs", "Attempt").objects.create(step=step, number=1, input={"topic": "tea"})
    old_models.get_model("runs", "Attempt").objects.filter(pk=attempt.pk).update(outcome="failed", output={"text": "x"})
    old_models.get_model("runs", "TokenUsage").objects.create(attempt=attempt, total=30)
    old_models.get_model("runs", "Issue").objects.create(
        attempt=attempt, position=0, code="too_short", severity="high", description="Too short."
    )
    old_models.get_model("runs", "FlowSpending").objects.create(flow_id=run.flow_id, period_start="2026-11-01")
    old_models.get_model("runs", "Worker").objects.create(owner="alpha/7/x", host="alpha", pid=7, slots=1)
    old_models.get_model("runs", "Run").objects.filter(pk=run.pk).update(status="failed", ended_at=timezone.now())
    assert tally_ended_runs() == 1
    assert (Attempt.objects.get().outcome, Issue.objects.count(), TokenUsage.objects.get().total) == ("failed", 1, 30)
    assert load_history(run).attempts(1)[0].output == {"text": "x"}


def test_a_website_of_the_release_before_saves_flows_and_starts_runs_in_the_newest_tables(
    old_models: Any, provider: ModelServer
) -> None:
    """Whoever uses it meanwhile loses nothing, and workers of this release do what it asks for."""
    spec = make_flow(make_step())
    flow = old_models.get_model("flows", "Flow").objects.create(name="example", title="Example")
    step = old_models.get_model("flows", "StepDefinition").objects.create(flow=flow, name="Step 1", position=0)
    old_models.get_model("flows", "AuditRule").objects.create(step=step, name="Length", rule="true", position=0)
    version = old_models.get_model("flows", "FlowVersion").objects.create(
        flow=flow, number=1, spec=spec.to_document(), digest=spec.digest
    )
    old_models.get_model("flows", "Flow").objects.filter(pk=flow.pk).update(live_version=version)
    old_models.get_model("runs", "RateLimit").objects.create(model="gpt-5", calls_in_flight=1)
    old_models.get_model("runs", "Run").objects.create(
        flow=flow, version=version, input={"topic": "tea"}, model_settings={"model": "gpt-5-mini"}, step_count=1
    )

    script(provider, tool_1=[{"text": "Tea."}])
    drain()
    run = Run.objects.get()
    assert (run.status, run.labels, run.metadata) == ("succeeded", [], {})
    assert (run.webhook_url, run.flow.webhook_url, run.again_of) == ("", "", None)
    assert tally_ended_runs() == 1
    assert load_history(run).attempts(1)[0].output == {"text": "Tea."}
