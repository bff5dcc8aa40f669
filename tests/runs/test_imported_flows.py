"""A flow that was exported and imported into an empty installation runs there as it did here."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from flows.engine.simulated_model import SimulatedModel
from flows.examples import load_examples, load_sample_input
from flows.examples.scripts import example_script
from flows.models import Flow, FlowVersion
from runs.models import Run
from tests.engine.model_server import ModelServer
from tests.runs.builders import make_run
from tests.runs.executing import attempts_of, drain

pytestmark = pytest.mark.django_db(transaction=True)

# One step of it has a registered output type, whose schema is frozen in the version.
NAMES = ["colour-theme", "invoice-extraction", "support-ticket-triage"]


def run_all(provider: ModelServer) -> dict[str, list[Any]]:
    """Run the live version of each flow; what each attempt sent, gave back and was told."""
    provider.app = SimulatedModel(script=example_script())
    runs = {}
    for name in NAMES:
        version = Flow.objects.get(name=name).live_version
        assert version is not None
        runs[name] = make_run(version, input=load_sample_input(name))
    drain()
    return {name: describe_run(run) for name, run in runs.items()}


def describe_run(run: Run) -> list[Any]:
    run.refresh_from_db()
    return [
        run.status,
        *(
            (one.step.name, one.number, one.outcome, one.request, one.output,
             [(issue.code, issue.description, issue.path) for issue in one.issues.all()])
            for one in attempts_of(run)
        ),
    ]  # fmt: skip


def test_every_request_output_and_issue_is_the_same_after_the_move(provider: ModelServer, tmp_path: Path) -> None:
    load_examples()
    digests = dict(FlowVersion.objects.values_list("flow__name", "digest"))
    before = run_all(provider)
    assert {run[0] for run in before.values()} == {"succeeded"}
    call_command("export_flow", all=str(tmp_path), stdout=StringIO())

    Run.objects.all().delete()
    Flow.objects.all().delete()
    assert not FlowVersion.objects.exists()

    call_command("import_flow", *sorted(map(str, tmp_path.glob("*.yaml"))), stdout=StringIO())
    assert dict(FlowVersion.objects.values_list("flow__name", "digest")) == digests
    assert run_all(provider) == before
