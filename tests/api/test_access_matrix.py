"""Who may ask what of the API: every address with every method, as every kind of caller.

A new endpoint gets a line in ``TABLE``; a test names those that are missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.cache import caches
from django.db import transaction
from django.http import HttpResponse
from django.test import Client
from django.urls import URLPattern, get_resolver

from flows.engine.json_values import dump_json
from flows.models import FlowVersion
from runs.backtests.requests import request_backtest
from runs.models import TokenScope
from tests.api.asking import V1, create_token, make_user, read_problem
from tests.api.long_work import make_bulk_action, make_delivery, make_view
from tests.conftest import IS_LONG
from tests.runs.builders import make_run, make_version
from tests.runs.pages.history_builders import make_page_flow, make_retried_run
from tests.runs.webhooks.deliveries import make_endpoint
from tests.security.protective_headers import POLICY, find_missing

pytestmark = pytest.mark.django_db

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")

ACTORS = (
    "anonymous", "user", "Viewer", "Operator", "Editor", "Administrator", "read token", "run token", "edit token",
    "only add_run", "only change_run", "only change_flow",
)  # fmt: skip
"""“user” is in no group. Those before the tokens are signed in on the pages; the tokens are an Editor's. The last ones
have one permission and may read nothing: what they do must not be answered with what they may not read.
"""
BLIND = frozenset({"anonymous", "user", "only add_run", "only change_run", "only change_flow"})

ASKING_FOR_ANYTHING = ("anonymous", "edit token")
"""Who tries methods that an address doesn’t have: which those are is the same for all."""

SIGNED_IN, SEE, RUN, EDIT = "whoever is signed in", "see", "start and cancel runs", "change flows"
SEE_ENDPOINTS = "see webhook endpoints"
START = "start runs with inputs of one’s own"
KEEP, ADMINISTER = "keep views", "administer"
LET_IN: Mapping[str, frozenset[str]] = {
    SIGNED_IN: frozenset(ACTORS) - {"anonymous"},
    SEE: frozenset(ACTORS) - BLIND,
    START: frozenset({"Operator", "Editor", "Administrator", "run token", "edit token", "only add_run"}),
    RUN: frozenset({"Operator", "Editor", "Administrator", "run token", "edit token"}),
    EDIT: frozenset({"Editor", "Administrator", "edit token"}),
    SEE_ENDPOINTS: frozenset({"Editor", "Administrator", "read token", "run token", "edit token"}),
    KEEP: frozenset(ACTORS) - BLIND - {"read token"},
    ADMINISTER: frozenset({"Administrator"}),
}


@dataclass(frozen=True)
class Ask:
    """One method of an address: what it requires, the status for users who have that, and what is sent."""

    least: str
    status: int
    body: Any = None
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


def get(status: int = 200, *, least: str = SEE, query: str = "") -> dict[str, Ask]:
    """An address to read."""
    return {"GET": Ask(least, status, query=query), "HEAD": Ask(least, status, query=query)}


def _send(method: str, least: str, status: int, body: Any = None) -> dict[str, Ask]:
    return {method: Ask(least, status, body)}


post, put, patch, delete = (partial(_send, method) for method in ("POST", "PUT", "PATCH", "DELETE"))

FLOW = make_page_flow().to_document()
ORDER = {"flow": "colour-theme", "input": {"topic": "tea"}}
ONE_RUN = "?first=<run_id>&last=<run_id>"
MANY = {"flow": "colour-theme", "runs": [{"input": {}}]}
VIEW = {"name": "Failed", "filters": {"status": ["failed"]}}
CANCEL_ALL = {"kind": "cancel", "filters": {"flow": "colour-theme"}}
ENDPOINT = {"webhook_url": "https://hooks.example.com/new"}
TRIAL = {"document": FLOW, "step": 1, "input": {"topic": "tea"}}

# By address, as `list_addresses` writes it. Methods that are not named have none: 405.
TABLE: dict[str, dict[str, Ask]] = {
    "":                                              {method: Ask(SIGNED_IN, 404) for method in METHODS},
    "schema":                                        get(least=SIGNED_IN),

    "runs":                                          get() | post(START, 202, ORDER),
    "runs/export":                                   get(),
    "runs/bulk":                                     get(query=ONE_RUN) | post(START, 202, MANY),
    "runs/<run_id>":                                 get() | patch(RUN, 200, {"labels": ["checked"]}),
    "runs/<run_id>/cancel":                          post(RUN, 202, {}),
    "runs/<run_id>/run-again":                       post(RUN, 202, {}),
    "runs/<run_id>/steps":                           get(),
    "runs/<run_id>/steps/<index>":                   get(),
    "runs/<run_id>/steps/<index>/attempts/<number>": get(),
    "runs/<run_id>/attempts":                        get(),
    "runs/<run_id>/issues":                          get(),
    "runs/<run_id>/usage":                           get(),
    "runs/<run_id>/events":                          get(501),  # of this server, which can't stream

    "bulk-actions":                                  get() | post(RUN, 202, CANCEL_ALL),
    "bulk-actions/<action_id>":                      get(),
    "bulk-actions/<action_id>/stop":                 post(RUN, 200, {}),
    "backtests":                                     post(RUN, 202, {"flow": "colour-theme", "version": 1}),
    "backtests/<backtest_id>":                       get(),
    "backtests/<backtest_id>/runs":                  get(),
    "backtests/<backtest_id>/stop":                  post(RUN, 200, {}),
    "saved-views":                                   get() | post(KEEP, 201, VIEW),
    "saved-views/<view_id>":                         get() | delete(KEEP, 404),  # it is another user’s
    "webhook-endpoints":                             get(least=SEE_ENDPOINTS) | post(EDIT, 201, ENDPOINT),
    "webhook-endpoints/<endpoint_id>":               get(least=SEE_ENDPOINTS)
                                                     | patch(EDIT, 200, {"is_enabled": False}) | delete(EDIT, 204),
    "webhook-endpoints/<endpoint_id>/test":          post(EDIT, 202, {}),
    "webhook-endpoints/<endpoint_id>/rotate-secret": post(EDIT, 200, {"again": True}),
    "webhook-deliveries":                            get(),
    "webhook-deliveries/<delivery_id>":              get(),
    "webhook-deliveries/<delivery_id>/send-again":   post(RUN, 202, {}),

    "flows":                                         get() | post(EDIT, 201, {**FLOW, "name": "another"}),
    "flows/<name>":                                  get() | put(EDIT, 200, FLOW) | delete(EDIT, 409),  # it has runs
    "flows/validate":                                post(SEE, 200, FLOW),
    "flows/preview":                                 post(EDIT, 200, TRIAL),
    "flows/try-audits":                              post(EDIT, 200, {**TRIAL, "output": {"text": "Tea."}}),
    "flows/<name>/settings":                         get() | patch(EDIT, 200, {"keep_days": 30}),
    "flows/<name>/archive":                          post(EDIT, 200),
    "flows/<name>/take-out":                         post(EDIT, 200),
    "flows/<name>/versions":                         get(),
    "flows/<name>/versions/<number>":                get() | delete(EDIT, 409),
    "flows/<name>/versions/<number>/diff":           get(),
    "flows/<name>/versions/<number>/make-live":      post(EDIT, 200),
    "flows/<name>/statistics":                       get(),
    "flows/<name>/statistics/audits":                get(),
    "statistics/usage":                              get(),
    "statistics/overview":                           get(),
    "trail":                                         get(least=ADMINISTER),
    "workers":                                       get(),
    "me":                                            get(least=SIGNED_IN),
    "plugins":                                       get(),
}  # fmt: skip


def list_addresses(patterns: Any, prefix: str = "") -> Iterator[str]:
    """All addresses of the API, as the table writes them."""
    for pattern in patterns:
        address = f"{prefix}{pattern.pattern}"
        if isinstance(pattern, URLPattern):
            yield re.sub(r"<\w+:", "<", address)
        else:
            yield from list_addresses(pattern.url_patterns, address)


def find_addresses() -> set[str]:
    """All that the site serves below the API's own."""
    api: Any = next(part for part in get_resolver().url_patterns if str(part.pattern) == V1.lstrip("/"))
    return set(list_addresses(api.url_patterns))


class World:
    """A row of everything, and a user of every kind."""

    def __init__(self) -> None:
        # Here each user asks more often than people do, and what others asked before doesn't count.
        for cache in caches.all():
            cache.clear()
        run = make_retried_run()
        version: FlowVersion = run.version
        self._values = {
            "<delivery_id>": make_delivery(run).pk,
            "<endpoint_id>": make_endpoint("https://hooks.example.com/").pk,
            "<view_id>": make_view(make_user("vera"), is_shared=True).pk,
            "<action_id>": make_bulk_action().pk,
            "<backtest_id>": request_backtest(flow=version.flow, candidate=version).pk,
            "<run_id>/cancel": f"{make_run(version).pk}/cancel",
            "<run_id>": run.pk,
            "<index>": 1,
            "attempts/<number>": "attempts/1",
            "<name>": version.flow.name,
            "versions/<number>": f"versions/{make_version(make_page_flow()).number}",
        }
        editor = make_user("editor", "Editor")
        self._users: dict[str, User | None] = {"anonymous": None, "user": make_user("user")}
        for name in ("Viewer", "Operator", "Editor", "Administrator"):
            self._users[name] = make_user(name.lower(), name)
        for codename in ("add_run", "change_run", "change_flow"):
            self._users[f"only {codename}"] = user = make_user(codename)
            user.user_permissions.add(Permission.objects.get(codename=codename))
        self._tokens = {f"{scope} token": create_token(editor, scope) for scope in TokenScope}
        self._clients = {actor: self._open(actor) for actor in ACTORS}

    def _open(self, actor: str) -> Client:
        client = Client(enforce_csrf_checks=True, raise_request_exception=False)
        if user := self._users.get(actor):
            client.force_login(user)
        client.cookies["csrftoken"] = "c" * 32
        return client

    def fill(self, address: str) -> str:
        """The address with the keys of rows that there are."""
        for part, value in self._values.items():
            address = address.replace(part, str(value))
        assert "<" not in address, f"Give World a value for “{address}”."
        return f"{V1}{address}"

    def ask(self, actor: str, method: str, address: str, ask: Ask) -> HttpResponse:
        """The answer to that one; whatever it changed is undone."""
        headers = {"X-CSRFToken": "c" * 32, **ask.headers}
        if token := self._tokens.get(actor):
            headers = {"Authorization": f"Bearer {token}", **ask.headers}
        body = b"" if ask.body is None else dump_json(ask.body).encode()
        content_type = "application/json" if body else ""
        with transaction.atomic():
            answer: Any = self._clients[actor].generic(
                method, self.fill(address + ask.query), body, content_type=content_type, headers=headers
            )
            transaction.set_rollback(True)
        found: HttpResponse = answer
        return found


def is_telling(actor: str, method: str, ask: Ask) -> bool:
    """Whether an actor asks every day: all for what changes something, few for what can be read."""
    if IS_LONG or actor in ASKING_FOR_ANYTHING:
        return True
    return method != "HEAD" and (ask.least != SEE or method != "GET" or actor in ("user", "Viewer", "read token"))


@pytest.fixture
def world(groups: None) -> World:
    return World()


def expect(actor: str, ask: Ask | None) -> int:
    """The status that a user gets; ``ask`` is None for a method that the address doesn't have."""
    if actor == "anonymous":
        return 401
    if ask is None:
        return 405
    return ask.status if actor in LET_IN[ask.least] else 403


def test_every_address_stands_in_the_table() -> None:
    found = find_addresses() - {"docs"}  # a page for people
    unlisted = [f"Say in the table above who may ask what of “{address}”." for address in sorted(found - TABLE.keys())]
    gone = [f"“{address}” is in the table above, but leads nowhere." for address in sorted(TABLE.keys() - found)]
    assert not unlisted + gone, "\n".join(unlisted + gone)


def test_every_address_answers_every_user_with_the_status_it_should_and_all_headers(world: World) -> None:
    """All of them in one test: to make the rows takes as long as to ask for many of them."""
    differences = []
    for actor, (address, methods) in product(ACTORS, TABLE.items()):
        for method in METHODS if actor in ASKING_FOR_ANYTHING else methods:
            ask = methods.get(method)
            if ask is not None and not is_telling(actor, method, ask):
                continue
            answer = world.ask(actor, method, address, ask or Ask(SIGNED_IN, 405))
            expected = expect(actor, ask)
            differences += [f"{actor}, {method} {address}: {missing}" for missing in find_missing(answer)]
            is_problem = answer.get("Content-Type") == "application/problem+json"
            if answer.status_code != expected or is_problem != (expected >= 400):
                said = b"" if answer.streaming else answer.content[:200]
                differences.append(f"{actor}, {method} {address}: {answer.status_code} instead of {expected}: {said!r}")
    assert not differences, "\n".join(differences)


def test_a_refusal_names_what_is_lacking_and_a_token_allows_no_more_than_its_owner_may(world: World) -> None:
    start = TABLE["flows"]["POST"]
    assert "“flows.view_flow”" in read_problem(world.ask("user", "GET", "flows", Ask(SEE, 200)))["detail"]
    assert "scope “edit”" in read_problem(world.ask("run token", "POST", "flows", start))["detail"]
    world._tokens["edit token"] = create_token(make_user("vera", "Viewer"), TokenScope.EDIT)
    assert "“flows.add_flow”" in read_problem(world.ask("edit token", "POST", "flows", start))["detail"]


def test_whoever_is_signed_in_on_the_pages_needs_their_csrf_token_to_change_anything(world: World) -> None:
    """Else another site could send them here with a form."""
    ask = TABLE["flows/<name>/archive"]["POST"]
    del world._clients["Editor"].cookies["csrftoken"]
    refused = world.ask("Editor", "POST", "flows/<name>/archive", ask)
    assert refused.status_code == 403
    assert "CSRF" in read_problem(refused)["detail"]
    let_through = [
        f"{method} {address}"
        for address, methods in TABLE.items()
        for method, one in methods.items()
        if address
        and method not in ("GET", "HEAD")
        and "CSRF" not in world.ask("Editor", method, address, one).content.decode()
    ]
    assert let_through == []
    assert world.ask("Editor", "GET", "flows/<name>", Ask(SEE, 200)).status_code == 200
    # A token is sent by scripts only, whatever cookies there are.
    del world._clients["edit token"].cookies["csrftoken"]
    assert world.ask("edit token", "POST", "flows/<name>/archive", ask).status_code == 200


def test_the_reference_page_asks_anonymous_users_to_sign_in(world: World) -> None:
    answer = world.ask("anonymous", "GET", "docs", Ask(SIGNED_IN, 200))
    assert (answer.status_code, answer["Location"].partition("=")[0]) == (302, "/accounts/login/?next")
    # It may have styles in line, too: Swagger UI is not ours.
    policy = POLICY.replace("style-src 'self'", "style-src 'self' 'unsafe-inline'")
    for actor in ("user", "Viewer", "Administrator"):
        answer = world.ask(actor, "GET", "docs", Ask(SIGNED_IN, 200))
        assert (answer.status_code, list(find_missing(answer, policy))) == (200, [])
