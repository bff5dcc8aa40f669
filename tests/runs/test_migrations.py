"""What an earlier release stored opens in this one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from flows.engine.history import Outcome
from runs.models import Priority, Run
from runs.stored_history import load_history
from tests.engine.builders import make_flow, make_step

pytestmark = pytest.mark.django_db(transaction=True)

FIRST_RELEASE = [("flows", "0001_initial"), ("runs", "0002_sweep_schedule")]


def migrate(targets: list[tuple[str, str]]) -> Any:
    """Migrate to ``targets``; gives the models as they are then."""
    executor = MigrationExecutor(connection)
    executor.migrate(targets)
    return MigrationExecutor(connection).loader.project_state(targets).apps


@pytest.fixture
def first_release() -> Iterator[Any]:
    """The models of the first release, in a database of that release; afterwards it is the newest again."""
    newest = MigrationExecutor(connection).loader.graph.leaf_nodes()
    yield migrate(FIRST_RELEASE)
    migrate(newest)


def test_a_run_of_the_first_release_opens_with_all_that_was_stored(first_release: Any) -> None:
    flow = first_release.get_model("flows", "Flow").objects.create(name="example", title="Example")
    spec = make_flow(make_step())
    version = first_release.get_model("flows", "FlowVersion").objects.create(
        flow=flow, number=1, spec=spec.to_document(), digest=spec.digest
    )
    run = first_release.get_model("runs", "Run").objects.create(
        flow=flow, version=version, input={"topic": "tea"}, model_settings={"model": "gpt-5-mini"}, step_count=1
    )
    step = first_release.get_model("runs", "Step").objects.create(run=run, index=1, name="Step 1")
    request = {"model": "gpt-4.1", "messages": [{"role": "user", "content": "Tee, süß 🍵"}], "a": 1}
    for number, sent in enumerate((request, None), start=1):
        attempt = first_release.get_model("runs", "Attempt").objects.create(
            step=step, number=number, outcome="failed", output={"text": "Tea."}, request=sent
        )
        first_release.get_model("runs", "TokenUsage").objects.create(attempt=attempt, total=30)

    migrate(MigrationExecutor(connection).loader.graph.leaf_nodes())
    upgraded = Run.objects.get()
    assert (upgraded.priority, upgraded.token_budget, upgraded.record_number) == (Priority.NORMAL, None, 0)
    first, second = load_history(upgraded).attempts(1)
    assert (first.outcome, first.output, first.usage.total) == (Outcome.FAILED, {"text": "Tea."}, 30)
    assert first.request == request and list(first.request or {}) == ["model", "messages", "a"]
    assert second.request is None
