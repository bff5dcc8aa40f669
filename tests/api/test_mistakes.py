"""What is not valid about an address or a body is named, each mistake at its place, and nothing is done.

All cases of an address are in one test: to make the rows takes as long as to ask for many of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.db.models import Model

from flows.models import Flow, FlowVersion
from runs.models import AuditEntry, BulkAction, Run, SavedView, WebhookEndpoint
from tests.api.asking import Script, create_token, list_wrong, make_user
from tests.engine.builders import NOON, closed, make_flow, make_step
from tests.runs.builders import make_run, make_version

pytestmark = pytest.mark.django_db

INPUT = {"topic": "tea"}
ORDER = {"flow": "example", "input": INPUT}
LONG = "9" * 30

# By address: in each line a query, and the names of its parameters that are not valid.
QUERIES = {
    "runs": f"""
        flow=tea&version=1                          flow
        version=1                                   version
        status=failed,done                          status
        from=yesterday                              from
        from=2026-11-22&to=2026-11-21T08:00Z        to
        status=                                     status
        limit=1&limit=2                             limit
        limit=1_0                                   limit
        limit={"1" * 5_000}                         limit
        stauts=failed                               stauts
        before={LONG}&after=1                       after
        flow=tea&by=nobody&cost=x&limit=0&before=x&severity=    severity flow cost by limit before
    """,
    "runs/{run}": """
        attempts=last&usage=1&min_severity=High     attempts usage min_severity
    """,
    "runs/{run}/steps/1/attempts/1": """
        attempts=final                              attempts
    """,
    "runs/{run}/attempts": """
        step=x&outcome=done&after=5&limit=x&min_severity=x&usage=x  step outcome after limit min_severity usage
        step=0&outcome=&before=2.1.0                step outcome before
        before=2.1&after=1.1                        after
    """,
    "runs/{run}/issues": """
        min_severity=bad&code=&audit=%00            min_severity code audit
    """,
    "runs/{run}/usage": """
        usage=true                                  usage
    """,
    "runs/bulk": """
        limit=1                                     first last
        first=a&last=0&status=no&before=x&limit=0   first last status before limit
        first=1&last=1&from=2026-11-21              from
    """,
    "runs/export": """
        flow=nowhere                                flow
        format=xlsx                                 format
        attempts=final                              attempts
        format=csv&attempts=all                     attempts
    """,
    "flows": """
        archived=yes                                archived
        input_schema=1                              input_schema
        after=%00                                   after
    """,
    "flows/example/versions/1": """
        format=xml                                  format
    """,
    "flows/example/versions/1/diff": f"""
        against=one                                 against
        against={LONG}                              against
    """,
    "flows/example/statistics": f"""
        from=yesterday                              from
        to=0001-01-01                               to
        to=9999-12-31                               to
        from=2026-05-02&to=2026-05-01               from
        from=2020-01-01&to=2022-09-27               from
        version=9                                   version
        version={LONG}                              version
        model=a%00b                                 model
        model={"x" * 201}                           model
        group_by=month                              group_by
    """,
    "flows/example/statistics/audits": """
        sort=name                                   sort
    """,
    "statistics/usage": """
        flow=nothing                                flow
        version=1                                   version
    """,
    "statistics/overview": """
        simulated=1                                 simulated
    """,
    "webhook-deliveries": """
        status=lost                                 status
        run=tea&limit=0                             limit run
        flow=nowhere                                flow
    """,
    "trail": """
        action=danced                               action
        kind=teapot                                 kind
        id=7                                        id
        actor=%00                                   actor
        actor=a&actor=b                             actor
        to=0001-01-01                               to
        from=2026-03-02&to=2026-03-01               to
        before=1&after=2&colour=red                 colour
    """,
}


def order(**values: Any) -> dict[str, Any]:
    return {**ORDER, **values}


def many(*runs: Any, **values: Any) -> dict[str, Any]:
    return {"flow": "example", "runs": list(runs), **values}


def cancel(**values: Any) -> dict[str, Any]:
    return {"kind": "cancel", **values}


def filtered(**filters: Any) -> dict[str, Any]:
    return {"kind": "cancel", "filters": filters}


def view(**values: Any) -> dict[str, Any]:
    return {"name": "Failed", "filters": {"status": ["failed", "errored"]}, **values}


def try_step(**values: Any) -> dict[str, Any]:
    return {"document": make_flow(make_step(1), make_step(2)).to_document(), "step": 2, "input": INPUT, **values}


ADDRESS = "https://hooks.example.com/T0/secret"
TAKE_NOTHING = ("archive", "take-out", "versions/1/make-live")
# By method and address: bodies, and pointers to what is not valid in them.
BODIES: dict[str, list[tuple[Any, set[str]]]] = {
    "POST runs": [
        ({}, {"/flow", "/input"}),
        (order(input={"topic": 7}), {"/input/topic"}),
        (order(input={"topic": "tea", "a/b": 1}), {"/input/a~1b"}),
        (order(input=[1]), {"/input"}),
        (order(flow="nowhere"), {"/flow"}),
        (order(flow="a\0b"), {"/flow"}),
        *((order(version=version), {"/version"}) for version in (2, 10**30, 0, "1", True)),
        (order(verison=1, priority="urgent"), {"/verison", "/priority"}),
        (order(labels=["a", "a", "x,y"]), {"/labels/2"}),
        (order(labels=list("0123456789a")), {"/labels"}),
        (order(labels=["fine", " bulk-2"]), {"/labels/1"}),
        # What is too large is not searched for others.
        (order(metadata={"a": "\0", "b": "y" * 16_400}), {"/metadata"}),
        *((order(token_budget=budget), {"/token_budget"}) for budget in (0, "20000")),
        *((order(cost_budget=budget), {"/cost_budget"}) for budget in ("0", "1e3", True)),
        *((order(time_limit=limit), {"/time_limit"}) for limit in (10**9, 1.5, True)),
        (order(webhook_url="https://example.com/" + "x" * 2_000), {"/webhook_url"}),
        (
            json.dumps(
                order(
                    metadata={"x": ["fine", "\0"]},
                    input={"topic": "", "parts": [{"a/b": "\ud83d"}, "fine", {"\0": 1}], "deep": {"er": "\udc00"}},
                )
            ).encode(),
            {"/input/parts/0/a~1b", "/input/parts/2", "/input/deep/er", "/metadata"},
        ),
        *((body, {""}) for body in (b"null", b"[]", b"7", b'"tea"')),
    ],
    "POST runs/bulk": [
        (
            many(
                {"input": INPUT, "labels": ["fine"]},
                {"input": {"topic": 7}},
                {"input": INPUT, "labels": ["x" * 51]},
                {"input": INPUT, "metadata": {"x": "y" * 20_000}},
                {"input": {}},
                labels=["a,b"],
            ),
            {"/labels/0", "/runs/1/input/topic", "/runs/2/labels/0", "/runs/3/metadata", "/runs/4/input"},
        ),
        (
            many("tea", {"input": INPUT}, {"inptu": {}}, {"input": 7}, {"input": {}, "labels": [1]}, None),
            {"/runs/0", "/runs/2/inptu", "/runs/2/input", "/runs/3/input", "/runs/4/labels/0", "/runs/5"},
        ),
        (many({"input": INPUT, "labels": list("abcde")}, labels=list("012345")), {"/runs/0/labels"}),
        (
            many({"input": INPUT}, {"input": INPUT, "labels": ["bulk-3"]}, labels=["bulk-2"]),
            {"/labels/0", "/runs/1/labels/0"},
        ),
        (many(), {"/runs"}),
        *((many(runs=runs), {"/runs"}) for runs in (None, "tea", [{"input": INPUT}] * 1_001)),
        (b"[]", {""}),
    ],
    "POST runs/{moved}/run-again": [
        *(({"version": version}, {"/version"}) for version in (9, 0, "latest", None, "1", True, [], 10**30)),
        ({"version": "live"}, {"/version"}),  # which the input doesn't fit
        ({"version": "live", "input": {"subject": 7}}, {"/input/subject"}),
        ({"input": None}, {"/input"}),
        ({"input": {"topic": ["\0"]}}, {"/input/topic/0"}),
    ],
    "PATCH runs/{run}": [
        ({"labels": ["fine", "a,b"]}, {"/labels/1"}),
        ({"labels": ["bulk-2", "bulk-3"]}, {"/labels/1"}),
        ({"metadata": {"x": "y" * 20_000}}, {"/metadata"}),
        ({"priority": "high"}, {"/priority"}),
    ],
    "POST runs/{run}/cancel": [({"why": 1}, {"/why"})],
    "POST bulk-actions": [
        ({}, {"/kind"}),
        (cancel(), {""}),
        (cancel(runs=[1], filters={}), {""}),
        ({"kind": "delete", "filters": {}}, {"/kind"}),
        (cancel(runs=[]), {"/runs"}),
        (cancel(runs=[1, "2", True, 0, 2.5]), {"/runs/1", "/runs/2", "/runs/3", "/runs/4"}),
        (cancel(runs=list(range(1, 1_002))), {"/runs"}),
        (cancel(runs=[1], newest=5), {"/newest"}),
        (cancel(filters={}, most=5, version="live"), {"/most", "/version"}),
        ({"kind": "run_again", "filters": {}, "most": 10_001}, {"/most"}),
        ({"kind": "run_again", "runs": [1], "most": 1}, {"/most"}),
        ({"kind": "run_again", "filters": {}, "version": "oldest"}, {"/version"}),
        (cancel(filters=[]), {"/filters"}),
        (filtered(flwo="a"), {"/filters/flwo"}),
        (filtered(flow="nowhere"), {"/filters/flow"}),
        (filtered(status=["lost"]), {"/filters/status"}),
        *((filtered(label=label), {"/filters/label"}) for label in ("", "\0")),
        (filtered(version="1", tokens=1.5), {"/filters/version", "/filters/tokens"}),
    ],
    "POST saved-views": [
        *((view(name=name), {"/name"}) for name in ("", " ", "x" * 61, "a\u202eb")),
        (view(name=7, is_shared="yes"), {"/name", "/is_shared"}),
        *((view(filters=filters), {"/filters"}) for filters in (None, {})),
        (view(filters={"tokens": "5", "nonsense": 1}), {"/filters/tokens", "/filters/nonsense"}),
        (view(filters={"flow": "nowhere"}), {"/filters/flow"}),
        (view(colour="red"), {"/colour"}),
    ],
    "POST webhook-endpoints": [
        ({}, {"/webhook_url"}),
        *(({"webhook_url": url}, {"/webhook_url"}) for url in ("https://127.0.0.1/", "http://hooks.example.com/")),
        ({"webhook_url": ADDRESS, "flow": "nowhere"}, {"/flow"}),
        ({"webhook_url": ADDRESS, "event_types": ["run.begun"], "secret": "x"}, {"/event_types/0", "/secret"}),
    ],
    "POST flows": [
        (
            {"name": "Tea Time", "colour": "green", "steps": [{"name": "Brew", "compute": "input", "max_retries": -1}]},
            {"/colour", "/name", "/steps/0/max_retries"},
        ),
        (b"", {""}),
        (b"[]", {""}),
    ],
    "PUT flows/example": [(make_flow().to_document() | {"name": "other"}, {"/name"})],
    **{f"POST flows/example/{what}": [({"force": True}, {"/force"})] for what in TAKE_NOTHING},
    "PATCH flows/example/settings": [
        *(({"max_runs_in_flight": value}, {"/max_runs_in_flight"}) for value in (0, 2**31, "3")),
        ({"total_token_budget": 1.5}, {"/total_token_budget"}),
        ({"total_cost_budget": "0"}, {"/total_cost_budget"}),
        *(({"budget_period": value}, {"/budget_period"}) for value in ("week", None)),
        ({"keep_days": 36_501}, {"/keep_days"}),
        ({"keep_days": 30, "keep_outputs_days": 31}, {"/keep_outputs_days"}),
        ({"priority": "high"}, {"/priority"}),
    ],
    "POST flows/preview": [
        *((try_step(step=step), {"/step"}) for step in (3, True)),
        (try_step(document={}), {"/document/name", "/document/steps"}),
        (try_step(run=1), {""}),
        (try_step(after_attempt=1), {""}),
        (try_step(input=None), {""}),
        (try_step(outputs={"1": {}, "2": {}, "x": {}}), {"/outputs/2", "/outputs/x"}),
        (try_step(outputs={"1": [1]}), {"/outputs/1"}),
    ],
    "POST flows/try-audits": [
        (try_step(), {""}),
        (try_step(output={}, attempt=1), {""}),
        (try_step(attempt=1), {""}),
        (try_step(output="tea"), {"/output"}),
    ],
}

KINDS: tuple[type[Model], ...] = (Run, Flow, FlowVersion, AuditEntry, BulkAction, SavedView, WebhookEndpoint)


@pytest.fixture
def chief(groups: None) -> Script:
    """The script of a user who may do everything."""
    return Script(create_token(make_user("chief", "Editor", "Administrator")))


@pytest.fixture
def fill() -> Callable[[str], str]:
    """Puts numbers into an address: of a run, and of one whose flow has another input now."""
    run = make_run(
        make_version(make_flow(input_schema=closed(topic={"type": "string"}))), labels=["bulk-2"], input=INPUT
    )
    flows = [make_flow(input_schema=closed(**{name: {"type": "string"}})) for name in ("topic", "subject")]
    first, _ = (make_version(flow.model_copy(update={"name": "moved"})) for flow in flows)
    moved = make_run(first, status="failed", ended_at=NOON, input=INPUT)
    return lambda address: address.format(run=run.pk, moved=moved.pk)


@pytest.mark.parametrize("address", QUERIES)
def test_each_parameter_that_is_not_valid_is_named(chief: Script, fill: Callable[[str], str], address: str) -> None:
    wrong = {}
    for line in QUERIES[address].strip().splitlines():
        query, *names = line.split()
        found = list_wrong(chief.get(f"{fill(address)}?{query}"), 400)
        if sorted(found) != sorted(names):
            wrong[query] = found
    assert wrong == {}
    assert not AuditEntry.objects.filter(action="exported").exists()


@pytest.mark.parametrize("target", BODIES)
def test_each_mistake_in_a_body_is_reported_at_its_place_and_nothing_is_done(
    chief: Script, fill: Callable[[str], str], settings: Any, target: str
) -> None:
    settings.TOOLFLOW_WEBHOOK_ALLOW = []
    method, address = target.split()
    address = fill(address)
    rows = [list(kind._default_manager.order_by("pk").values()) for kind in KINDS]
    wrong = []
    for body, pointers in BODIES[target]:
        found = list_wrong(chief.ask(method, address, body), 422)
        if set(found) != pointers:
            wrong.append((str(body)[:200], found))
    assert wrong == []
    assert [list(kind._default_manager.order_by("pk").values()) for kind in KINDS] == rows
