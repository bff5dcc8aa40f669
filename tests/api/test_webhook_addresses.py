"""The address that a run tells its end to: what it may be, and who is shown it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from flows.models import Flow
from runs.api.documentation import build_schema
from runs.models import Run, TokenScope
from tests.api.asking import Script, make_token, make_user, read_problem
from tests.engine.builders import make_flow
from tests.runs.builders import make_run, make_version
from tests.runs.webhooks.deliveries import make_ended_run

pytestmark = pytest.mark.django_db

SECRET = "https://hooks.example.com/T0/B0/secret?key=1"
SHOWN = "https://hooks.example.com/…"


def read_addresses(script: Script, run_id: int) -> set[str]:
    """What each answer about a run says of its webhook."""
    whole, short, listed = (
        json.loads(script.get(path).content) for path in (f"runs/{run_id}", f"runs/{run_id}?attempts=none", "runs")
    )
    return {whole["webhook_url"], short["webhook_url"], listed["items"][0]["webhook_url"]}


@pytest.mark.parametrize(
    ("group", "scope", "address"),
    [
        ("Viewer", TokenScope.EDIT, SHOWN),
        ("Operator", TokenScope.READ, SHOWN),
        ("Operator", TokenScope.RUN, SECRET),
        ("Editor", TokenScope.EDIT, SECRET),
    ],
)
def test_whoever_may_not_start_runs_is_shown_the_host_only(
    groups: None, group: str, scope: TokenScope, address: str
) -> None:
    run = make_run(webhook_url=SECRET)
    assert read_addresses(Script(make_token(make_user("ada", group), scope)), run.pk) == {address}


def test_a_run_without_one_has_none(viewer: Script) -> None:
    assert read_addresses(viewer, make_run().pk) == {None}


def start(script: Script, address: str) -> str | None:
    """What is wrong with an address; None if a run was started with it."""
    answer = script.post("runs", {"flow": "example", "input": {"topic": "tea"}, "webhook_url": address})
    if answer.status_code == 202:
        return None
    (error,) = read_problem(answer)["errors"]
    assert error["pointer"] == "/webhook_url"
    return str(error["detail"])


def matches_document(address: str) -> bool:
    """Whether an address is one by the OpenAPI document."""
    field = build_schema()["components"]["schemas"]["NewRun"]["properties"]["webhook_url"]
    (pattern,) = (one["pattern"] for one in field.get("oneOf", field.get("anyOf", [field])) if "pattern" in one)
    return re.search(pattern, address) is not None


@pytest.mark.parametrize(
    "address",
    [
        "https://example.com",
        "http://127.0.0.1:41234/hook",
        "https://[2001:db8::1]:8443/hook",
        "http://my_receiver:8080/a/b?c=d&e=%C3%BC#f",
        "https://xn--mnchen-3ya.de/",
    ],
)
def test_what_is_an_address_is_one_by_the_document_too(operator: Script, settings: Any, address: str) -> None:
    settings.TOOLFLOW_WEBHOOK_ALLOW = ["127.0.0.1:41234", "[2001:db8::1]:8443", "my_receiver:8080"]
    make_version(make_flow())
    assert start(operator, address) is None
    assert matches_document(address)


@pytest.mark.parametrize("address", ["http://[E:]/", "https://[1.2.3.4]", "https://[::1::]:8080/hook"])
def test_what_stands_in_brackets_is_an_address_of_ipv6(operator: Script, address: str) -> None:
    make_version(make_flow())
    assert "his is no address" in str(start(operator, address))


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("http://example.com", "Plain http:// is only for hosts and networks that TOOLFLOW_WEBHOOK_ALLOW names; use "),
        ("https://127.0.0.1", "“127.0.0.1” leads to an address that is not one of the internet; TOOLFLOW_WEBHOOK_ALL"),
        ("https://169.254.169.254/latest/", "“169.254.169.254” leads to an address that is not one of the internet"),
        ("https://localhost:8443/", "“localhost” leads to an address that is not one of the internet"),
        ("https://0x7f.1/", "“0x7f.1” is not a valid host; an IPv4 address has four decimal numbers"),
        ("http://receiver:8080/", "TOOLFLOW_WEBHOOK_ALLOW names “receiver”, but not its port 8080."),
    ],
)
def test_where_webhooks_can_never_go_is_refused_at_once(
    operator: Script, settings: Any, address: str, sentence: str
) -> None:
    settings.TOOLFLOW_WEBHOOK_ALLOW = ["receiver:9000"]
    make_version(make_flow())
    assert sentence in str(start(operator, address))
    assert not Run.objects.exists()


def test_a_flow_is_given_no_such_address_and_keeps_the_one_it_has(editor: Script, settings: Any) -> None:
    make_version(make_flow())
    settings.TOOLFLOW_WEBHOOK_ALLOW = ["receiver:9000"]
    stored = "http://receiver:9000/"
    assert editor.ask("PATCH", "flows/example/settings", {"webhook_url": stored}).status_code == 200
    settings.TOOLFLOW_WEBHOOK_ALLOW = []
    (error,) = read_problem(editor.ask("PATCH", "flows/example/settings", {"webhook_url": "https://10.0.0.1/"}))[
        "errors"
    ]
    assert error["pointer"] == "/webhook_url" and "not one of the internet" in error["detail"]
    # Whoever changes something else is not asked to mend what the settings rule out by now.
    assert editor.ask("PATCH", "flows/example/settings", {"keep_days": 30}).status_code == 200
    assert Flow.objects.get().webhook_url == stored


def test_a_run_is_not_repeated_with_an_address_that_is_ruled_out_by_now(operator: Script) -> None:
    run = make_ended_run(webhook_url="http://receiver:9000/")
    (error,) = read_problem(operator.post(f"runs/{run.pk}/run-again"))["errors"]
    assert error["pointer"] == "/webhook_url" and "Plain http://" in error["detail"]
    assert operator.post(f"runs/{run.pk}/run-again", {"webhook_url": None}).status_code == 202


@pytest.mark.parametrize(
    "address",
    ["https://example.com/?)dl:QH{xP0", "https://example.com/50%", "https://münchen.de/", "https://example.com/[a]"],
)
def test_what_is_none_is_told_and_is_none_by_the_document(operator: Script, address: str) -> None:
    make_version(make_flow())
    assert start(operator, address) is not None
    assert not matches_document(address)
