"""Redaction in the dashboard: nothing that is stored or shown holds what a flow redacts, and runs still work on it."""

from __future__ import annotations

import json
from typing import Any, NoReturn
from uuid import uuid4

import pytest
from django.apps import apps
from django.db import DataError
from django.test import Client
from django.urls import reverse

from flows.engine import execution
from flows.engine.errors import InputError
from flows.engine.spec import AuditSpec, FlowSpec
from runs.bulk_actions.requests import request_bulk_action
from runs.group_commit import RunWrite, commit_writes
from runs.models import BulkKind, EndReason, OriginalInput, Run, RunStatus
from runs.rollup import count_ended_runs
from runs.stored_history import load_history, load_original_input
from runs.submission import OrdersError, RunOrder, submit_run, submit_runs
from runs.worker import database_thread
from tests.engine.builders import make_flow, make_step
from tests.engine.model_server import ModelServer
from tests.runs.builders import claim_run, make_version
from tests.runs.executing import attempts_of, drain, script

SECRET = "Anna “Ännchen” Bach"
INPUT = {"customer": SECRET, "topic": f"Write to {SECRET}"}
ECHO = AuditSpec(name="No names", rule="!output.text.contains('Anna')", message="'It says ' + output.text")
SPEC = make_flow(
    make_step(1, audits=(ECHO,)),
    make_step(2, input_expression="{'name': input.customer}"),
    redact=("/customer", "email"),
)
PLAIN = make_flow().model_copy(update={"name": "plain"})


def submit(spec: FlowSpec = SPEC, input: Any = INPUT, source: Run | None = None) -> Run:
    return submit_run(flow=make_version(spec).flow, input=input, source=source)


def find_in_database(text: str) -> list[str]:
    """The columns of the database that contain a text, however it is stored there."""
    found = set()
    for model in apps.get_models():
        for row in model._base_manager.all():
            for field in model._meta.concrete_fields:
                value = getattr(row, field.attname)
                written = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
                if text in written or json.dumps(text)[1:-1] in written:
                    found.add(f"{model.__name__}.{field.name}")
    return sorted(found)


@pytest.mark.django_db(transaction=True)
class TestRun:
    def test_works_on_its_input_and_keeps_none_of_it(self, provider: ModelServer) -> None:
        script(
            provider,
            tool_1=[{"text": f"Dear {SECRET}, or anna@example.com"}, {"text": "Dear customer"}],
            tool_2=[{"text": f"Yours, {SECRET}"}],
        )
        run = submit()
        assert find_in_database("Ännchen") == ["OriginalInput.input"]
        drain()
        run.refresh_from_db()
        assert run.status == RunStatus.SUCCEEDED
        assert run.input == {"customer": "[redacted]", "topic": "Write to [redacted]"}
        assert [attempt.output for attempt in attempts_of(run)] == [
            {"text": "Dear [redacted], or [redacted: email]"},
            {"text": "Dear customer"},
            {"text": "Yours, [redacted]"},
        ]
        # What was sent is what came in.
        sent = json.dumps([call.body for call in provider.app.calls], ensure_ascii=False)
        assert sent.count("Ännchen") >= 3
        while count_ended_runs():
            pass
        assert not OriginalInput.objects.exists()
        assert find_in_database("Ännchen") == find_in_database("anna@example.com") == []

    def test_goes_on_with_its_input_after_its_worker_died(self, provider: ModelServer) -> None:
        script(provider, tool_1=[{"text": "Dear customer"}], tool_2=[{"text": "Yours"}])
        run = submit()
        held = claim_run(run)
        assert load_original_input(held) == INPUT
        assert held.hand_back()
        drain()
        run.refresh_from_db()
        assert run.status == RunStatus.SUCCEEDED
        assert "Ännchen" in json.dumps(provider.app.calls[-1].body, ensure_ascii=False)

    @pytest.mark.parametrize("redacts", [True, False])
    @pytest.mark.parametrize("culprit", ["ToolFlow", "database"])
    def test_a_failure_that_quotes_it_is_reported_without_words_unless_the_flow_redacts_nothing(
        self,
        culprit: str,
        redacts: bool,
        provider: ModelServer,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        def break_down(output: Any) -> NoReturn:
            try:
                raise KeyError(json.dumps(output, ensure_ascii=False))
            except KeyError as error:
                raise ValueError(f"Can’t read {output!r}") from error

        def refuse(writes: list[RunWrite]) -> Any:
            if any(write.ended is not None for write in writes):
                raise DataError(f"value too long: {SECRET}")
            return commit_writes(writes)

        if culprit == "ToolFlow":
            monkeypatch.setattr(execution, "clean_output", break_down)
        else:
            monkeypatch.setattr(database_thread, "commit_writes", refuse)
        script(provider, tool_1=[{"text": f"Dear {SECRET}"}])
        run = submit(SPEC if redacts else PLAIN)
        drain()
        run.refresh_from_db()
        while count_ended_runs():
            pass
        assert (run.status, run.end_reason, run.crashes) == (RunStatus.ERRORED, EndReason.INTERNAL_ERROR, 0)
        assert provider.app.call_count == 1, "it is not called again"
        assert {"ToolFlow": "ValueError", "database": "DataError"}[culprit] in run.end_sentence
        assert ("nnchen" in run.end_sentence) is not redacts
        if redacts:
            assert find_in_database("nnchen") == [] and "nnchen" not in caplog.text
        if culprit == "ToolFlow":
            assert f"{run.pk}" in caplog.text and "break_down" in caplog.text, "the log tells where"


@pytest.mark.django_db
class TestSubmitting:
    def test_others_see_the_redacted_input_while_the_run_waits(self) -> None:
        inputs = [INPUT, {"customer": "Bob"}, {"topic": "tea"}]
        runs = submit_runs(flow=make_version(SPEC).flow, orders=[RunOrder(input) for input in inputs])
        stored = [Run.objects.get(pk=run.pk) for run in runs]
        assert [load_original_input(run) for run in stored] == inputs
        assert [run.is_input_redacted for run in stored] == [True, True, False]
        assert load_history(stored[0]).initial_input == stored[0].input
        assert SECRET not in json.dumps(stored[0].input, ensure_ascii=False)
        # One without anything to redact is kept once.
        assert OriginalInput.objects.count() == 2

    def test_an_input_that_was_redacted_is_refused_with_the_place_unless_the_flow_redacts_nothing(self) -> None:
        redacted = {"customer": "[redacted]", "topic": "Mail [redacted: email]"}
        with pytest.raises(InputError) as refused:
            submit(input=redacted)
        assert [problem.path for problem in refused.value.problems] == ["/customer", "/topic"]
        with pytest.raises(OrdersError) as many:
            submit_runs(flow=make_version(SPEC).flow, orders=[RunOrder({"customer": "[redacted]"})])
        assert many.value.problems[0].path == "/0/input/customer"
        source = submit(input={"customer": "Ada Lovelace"})
        assert submit(PLAIN, redacted).input == redacted
        # To run one again takes its values, also where the flow no longer redacts.
        with pytest.raises(InputError):
            submit(PLAIN, source.input, source=source)


@pytest.mark.django_db
def test_pages_show_what_is_redacted_as_redacted(admin_client: Client) -> None:
    run = submit()
    addresses = {
        reverse("runs:page", args=[run.pk]): True,
        reverse("runs:document", args=[run.pk]): True,
        reverse("runs:list"): False,
        f"{reverse('runs:start', args=[run.flow.name])}?from={run.pk}": True,
        reverse("api:get_run", args=[run.pk]): True,
        reverse("admin:runs_run_change", args=[run.pk]): True,
    }
    texts = {address: admin_client.get(address).content.decode() for address in addresses}
    assert [address for address, text in texts.items() if "nnchen" in text] == []
    assert {address: "[redacted]" in text for address, text in texts.items()} == addresses


@pytest.mark.django_db
def test_a_run_whose_input_is_gone_can_not_be_run_again_in_bulk() -> None:
    run = submit()
    Run.objects.update(status="succeeded", ended_at="2026-11-21T12:00:00Z")
    action = request_bulk_action(token=uuid4(), kind=BulkKind.RUN_AGAIN, run_ids=[run.pk])
    assert action.failed == 1
