"""Every operation of the API costs the same few queries however much there is. Asked is what the access matrix asks."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.http import HttpResponse
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from flows.models import Flow, FlowVersion
from runs.api.documentation import build_schema
from runs.bulk_actions.work import work_on
from runs.models import ApiToken, Run, WebhookTry
from tests.api.asking import Script, create_token, make_user
from tests.api.long_work import make_bulk_action, make_delivery, make_view
from tests.api.test_access_matrix import TABLE, Ask, World
from tests.engine.builders import make_attempt, make_issue, make_step
from tests.runs.builders import make_run, make_version, make_worker
from tests.runs.pages.history_builders import make_page_flow, make_retried_run, make_stored_run

pytestmark = pytest.mark.django_db

MANY = 5
"""Of everything that there may be many of."""

MAX_QUERIES = 40
"""Of one request."""
# Each run that is cancelled costs some more, up to a batch of runs in a request.
MORE_FOR_MANY = {("bulk-actions", "POST"): 5 * (MANY - 1)}


class Measured:
    """An installation with a little or with much of everything, and the script of an administrator."""

    def __init__(self) -> None:
        self._world = World()
        owner = make_user("administrator", "Administrator", "Editor")
        self._script = Script(create_token(owner))
        # Nothing is written of the use of a token that was used just now.
        ApiToken.objects.update(last_used_at=timezone.now() + timedelta(days=1))
        flow = Flow.objects.get(name="colour-theme")
        Run.objects.filter(pk=self._world._values["<run_id>"]).update(labels=["a"])
        make_missing("missing")
        make_version(make_page_flow(name="unused", title="Unused"))
        self._places = {
            ("saved-views/<view_id>", "DELETE"): f"saved-views/{make_view(owner, name='Mine').pk}",
            ("flows/<name>", "DELETE"): "flows/unused",
            ("flows/<name>/versions/<number>", "DELETE"): f"flows/{flow.name}/versions/{make_spare(flow).number}",
        }

    def add_many(self) -> None:
        """Let there be much of everything."""
        world, version = self._world, make_version(make_page_flow())
        issue = make_issue("high", "Too dark.", code="dark", audit="Contrast")
        tries = [make_attempt(1, number, "failed", issues=(issue,)) for number in range(1, MANY)]
        run = make_stored_run(*tries, make_attempt(1, MANY), labels=["a", "b"], metadata={"row": 1})
        world._values["<run_id>"] = run.pk
        now = timezone.now()
        delivery = make_delivery(run, url="https://example.com/other")
        world._values["<delivery_id>"] = delivery.pk
        for number in range(1, MANY):
            WebhookTry.objects.create(delivery=delivery, number=number, started_at=now, ended_at=now)
            other = make_run(version, status="failed", ended_at=now, labels=[f"label-{number}"])
            make_delivery(other)
            make_run(version, labels=["nightly"])
            make_retried_run()
            make_view(make_user(f"user-{number}"), name=f"View {number}", is_shared=True)
            make_bulk_action()
            make_worker(pid=number)
            make_missing(f"flow-{number}")
        make_spare(version.flow)

    def count(self, address: str, method: str, *, is_first: bool = False) -> int:
        """The queries of one request; whatever it changes is undone."""
        ask = TABLE[address][method]
        if is_first:
            # What processes remember of tables is remembered.
            self._ask(address, method, ask)
        answer, count = self._ask(address, method, ask)
        assert answer.status_code < 400 or answer.status_code == 501, (address, method, answer.content)
        return count

    def _ask(self, address: str, method: str, ask: Ask) -> tuple[HttpResponse, int]:
        place = self._places.get((address, method)) or self._world.fill(address + ask.query)
        with transaction.atomic():
            with CaptureQueriesContext(connection) as captured:
                answer: Any = self._script.ask(method, place, ask.body)
                if answer.streaming:
                    b"".join(answer)
            transaction.set_rollback(True)
        return answer, len(captured)


def make_spare(flow: Flow) -> FlowVersion:
    """The latest version of a flow, which is not in use: the first one is live."""
    spare = make_version(make_page_flow(description="Spare"))
    flow.make_live(flow.versions.get(number=1))
    return spare


def make_missing(name: str) -> None:
    """A flow that names a function which is not registered."""
    make_version(make_page_flow(make_step(1, compute="python:nowhere"), name=name, title=name))


def list_operations() -> list[tuple[str, str]]:
    """All operations of the document, as the access matrix writes them."""
    return [
        (re.sub(r"\{(\w+)\}", r"<\1>", path.removeprefix("/")), method.upper())
        for path, methods in build_schema()["paths"].items()
        for method in methods
    ]


def test_every_operation_costs_the_same_few_queries_however_much_there_is(
    groups: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # All of a bulk action is done at once, however slow this machine is.
    monkeypatch.setattr(work_on, "__defaults__", (600.0,))
    measured = Measured()
    few = {operation: measured.count(*operation, is_first=True) for operation in list_operations()}
    measured.add_many()
    many = {operation: measured.count(*operation) - MORE_FOR_MANY.get(operation, 0) for operation in few}
    assert Run.objects.count() > 2 * MANY
    assert many == few
    assert {operation: count for operation, count in few.items() if count > MAX_QUERIES} == {}
