"""How many queries every operation of the API costs, whatever there is: a new one gets a line in ``COUNTS``.

What is asked is what the access matrix asks. Tests of single operations say what their queries are for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
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
from tests.api.asking import Script, make_token, make_user
from tests.api.long_work import make_bulk_action, make_delivery, make_view
from tests.api.test_access_matrix import TABLE, Ask, World
from tests.engine.builders import make_attempt, make_issue, make_step
from tests.runs.builders import make_run, make_version, make_worker
from tests.runs.pages.history_builders import make_page_flow, make_retried_run, make_stored_run

pytestmark = pytest.mark.django_db

MANY = 12
"""Of everything that there may be many of."""

# By address and method, with those that let somebody in: one for the token, one or two for permissions.
COUNTS: dict[str, dict[str, int]] = {
    "bulk-actions":                                    {"GET": 3, "POST": 28},
    "bulk-actions/<action_id>":                        {"GET": 3},
    "bulk-actions/<action_id>/stop":                   {"POST": 8},
    "flows":                                           {"GET": 3, "POST": 37},
    "flows/<name>":                                    {"GET": 4, "PUT": 31, "DELETE": 30},
    "flows/<name>/archive":                            {"POST": 11},
    "flows/<name>/settings":                           {"GET": 3, "PATCH": 11},
    "flows/<name>/statistics":                         {"GET": 8},
    "flows/<name>/statistics/audits":                  {"GET": 5},
    "flows/<name>/take-out":                           {"POST": 8},
    "flows/<name>/versions":                           {"GET": 4},
    "flows/<name>/versions/<number>":                  {"GET": 4, "DELETE": 17},
    "flows/<name>/versions/<number>/diff":             {"GET": 5},
    "flows/<name>/versions/<number>/make-live":        {"POST": 12},
    "flows/preview":                                   {"POST": 2},
    "flows/try-audits":                                {"POST": 2},
    "flows/validate":                                  {"POST": 4},
    "me":                                              {"GET": 2},
    "plugins":                                         {"GET": 5},
    "runs":                                            {"GET": 4, "POST": 11},
    "runs/<run_id>":                                   {"GET": 6, "PATCH": 11},
    "runs/<run_id>/attempts":                          {"GET": 5},
    "runs/<run_id>/cancel":                            {"POST": 13},
    "runs/<run_id>/events":                            {"GET": 3},
    "runs/<run_id>/issues":                            {"GET": 4},
    "runs/<run_id>/run-again":                         {"POST": 12},
    "runs/<run_id>/steps":                             {"GET": 6},
    "runs/<run_id>/steps/<index>":                     {"GET": 6},
    "runs/<run_id>/steps/<index>/attempts/<number>":   {"GET": 4},
    "runs/<run_id>/usage":                             {"GET": 4},
    "runs/bulk":                                       {"GET": 5, "POST": 11},
    "runs/export":                                     {"GET": 5},
    "saved-views":                                     {"GET": 3, "POST": 7},
    "saved-views/<view_id>":                           {"GET": 3, "DELETE": 3},
    "schema":                                          {"GET": 1},
    "statistics/overview":                             {"GET": 9},
    "statistics/usage":                                {"GET": 3},
    "trail":                                           {"GET": 3},
    "webhook-endpoints":                               {"GET": 3, "POST": 7},
    "webhook-endpoints/<endpoint_id>":                 {"GET": 3, "PATCH": 9, "DELETE": 6},
    "webhook-endpoints/<endpoint_id>/rotate-secret":   {"POST": 8},
    "webhook-endpoints/<endpoint_id>/test":            {"POST": 10},
    "webhook-deliveries":                              {"GET": 3},
    "webhook-deliveries/<delivery_id>":                {"GET": 5},
    "webhook-deliveries/<delivery_id>/send-again":     {"POST": 10},
    "workers":                                         {"GET": 6},
}  # fmt: skip

# Each run that is cancelled costs some more, up to a batch of runs in a request.
MORE_FOR_MANY = {("bulk-actions", "POST"): 5 * (MANY - 1)}


def list_operations() -> set[tuple[str, str]]:
    """All operations of the document, as the table writes them."""
    return {
        (re.sub(r"\{(\w+)\}", r"<\1>", path.removeprefix("/")), method.upper())
        for path, methods in build_schema()["paths"].items()
        for method in methods
    }


class Measured:
    """An installation with a little or with much of everything, and the script of an administrator."""

    def __init__(self) -> None:
        self._world = World()
        owner = make_user("administrator", "Administrator", "Editor")
        self._script = Script(make_token(owner))
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

    def count(self, address: str, method: str) -> int:
        """The queries of one request; whatever it changes is undone."""
        ask = TABLE[address][method]
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
    """The latest version of a flow, which nobody uses: the first one is live."""
    spare = make_version(make_page_flow(description="Spare"))
    flow.make_live(flow.versions.get(number=1))
    return spare


def make_missing(name: str) -> None:
    """A flow that names a function which nobody registers."""
    make_version(make_page_flow(make_step(1, compute="python:nowhere"), name=name, title=name))


def find_differences(measured: Measured, *, is_much: bool) -> Iterator[str]:
    for address, counts in COUNTS.items():
        for method, count in counts.items():
            expected = count + (MORE_FOR_MANY.get((address, method), 0) if is_much else 0)
            found = measured.count(address, method)
            if found != expected:
                how_many = "much" if is_much else "a little"
                yield f"{method} {address} costs {found} queries with {how_many} of everything, not {expected}."


def test_every_operation_stands_in_the_table() -> None:
    listed = {(address, method) for address, counts in COUNTS.items() for method in counts}
    missing = [f"Say in the table above what {method} {path} costs." for path, method in list_operations() - listed]
    gone = [f"{method} {path} is in the table above, and there is none." for path, method in listed - list_operations()]
    assert not missing + gone, "\n".join(sorted(missing + gone))


def test_every_operation_costs_the_same_queries_however_much_there_is(
    groups: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # All of a bulk action is done at once, however slow this machine is.
    monkeypatch.setattr(work_on, "__defaults__", (600.0,))
    measured = Measured()
    differences = list(find_differences(measured, is_much=False))
    measured.add_many()
    differences += find_differences(measured, is_much=True)
    assert Run.objects.count() > 2 * MANY
    assert not differences, "\n".join(differences)
