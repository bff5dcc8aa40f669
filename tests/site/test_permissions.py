"""Who may open which address: every one that there is, as every kind of user."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import Group, User
from django.db import transaction
from django.http import HttpResponse
from django.test import Client
from django.urls import URLPattern, get_resolver
from django.utils import timezone

from runs.access_groups import ACCESS_GROUPS, create_groups
from runs.backtests.requests import request_backtest
from runs.models import ApiToken, Attempt, BulkAction, Issue, RateLimit, Run, WebhookDelivery, WebhookEndpoint
from tests.conftest import IS_LONG
from tests.runs.builders import make_run, make_version
from tests.runs.pages.history_builders import make_page_flow, make_retried_run
from tests.runs.pages.reading import read_words
from tests.security.protective_headers import find_missing

pytestmark = pytest.mark.django_db

ANYONE, USER, STAFF, VIEWER, OPERATOR, EDITOR, ADMINISTRATOR, NOBODY = ROLES = (
    "anybody", "a user", "staff", "Viewer", "Operator", "Editor", "Administrator", "nobody",
)  # fmt: skip
"""Each may do what those before may. “staff” are users who may open the admin and are in no group."""
NO_METHOD = "no such method"

# Models in the admin: who may see, add, change and delete their rows there.
MODELS = {
    "flows/flow":        (VIEWER, EDITOR, EDITOR, EDITOR),
    "flows/flowversion": (VIEWER, NOBODY, NOBODY, EDITOR),
    "runs/run":          (VIEWER, NOBODY, NOBODY, NOBODY),
    "runs/attempt":      (VIEWER, NOBODY, NOBODY, NOBODY),
    "runs/issue":        (VIEWER, NOBODY, NOBODY, NOBODY),
    "runs/webhookendpoint": (EDITOR, EDITOR, EDITOR, EDITOR),
    "runs/ratelimit":    (ADMINISTRATOR, ADMINISTRATOR, ADMINISTRATOR, ADMINISTRATOR),
    "runs/apitoken":     (ADMINISTRATOR, NOBODY, ADMINISTRATOR, ADMINISTRATOR),  # as users
    "auth/user":         (ADMINISTRATOR, ADMINISTRATOR, ADMINISTRATOR, ADMINISTRATOR),
    "auth/group":        (ADMINISTRATOR, ADMINISTRATOR, ADMINISTRATOR, ADMINISTRATOR),
}  # fmt: skip

# All other addresses: who may GET them, and who may POST to them.
ADDRESSES = {
    "":                                                 (VIEWER, NO_METHOD),
    "accounts/login/":                                  (ANYONE, ANYONE),
    "accounts/logout/":                                 (NO_METHOD, ANYONE),
    "healthz":                                          (ANYONE, NO_METHOD),
    "readyz":                                           (ANYONE, NO_METHOD),
    "metrics":                                          (NOBODY, NO_METHOD),  # there is none without a token of its own

    "runs/":                                            (VIEWER, NO_METHOD),
    "runs/compare/":                                    (VIEWER, NO_METHOD),
    "runs/<run_id>/":                                   (VIEWER, NO_METHOD),
    "runs/<run_id>.json":                               (VIEWER, NO_METHOD),
    "runs/<run_id>/live":                               (VIEWER, NO_METHOD),
    "runs/<run_id>/attempts/":                          (VIEWER, NO_METHOD),
    "runs/<run_id>/steps/<step>/attempts/<number>.json": (VIEWER, NO_METHOD),
    "runs/<run_id>/steps/<step>/attempts/<number>/":     (VIEWER, NO_METHOD),
    "runs/<run_id>/steps/<step>/attempts/<number>/<part>/": (VIEWER, NO_METHOD),
    "runs/new/":                                        (OPERATOR, NO_METHOD),
    "runs/new/<flow_name>/":                            (OPERATOR, OPERATOR),
    "runs/<run_id>/cancel/":                            (OPERATOR, OPERATOR),
    "runs/export/<format>":                             (VIEWER, NO_METHOD),
    "runs/bulk/":                                       (VIEWER, NO_METHOD),
    "runs/bulk/cancel/":                                (OPERATOR, OPERATOR),
    "runs/bulk/run-again/":                             (OPERATOR, OPERATOR),
    "runs/bulk/<action_id>/":                           (VIEWER, NO_METHOD),
    "runs/bulk/<action_id>/live":                       (VIEWER, NO_METHOD),
    "runs/bulk/<action_id>/stop/":                      (NO_METHOD, OPERATOR),
    "runs/views/add/":                                  (NO_METHOD, VIEWER),
    "runs/views/<view_id>/delete/":                     (NO_METHOD, NOBODY),  # there is none of one's own
    "runs/views/values/":                               (VIEWER, NO_METHOD),
    "overview/live":                                    (VIEWER, NO_METHOD),
    "overview/samples/":                                (NO_METHOD, EDITOR),
    "overview/samples/remove/":                         (EDITOR, EDITOR),
    "search/":                                          (USER, NO_METHOD),  # finds what one may see
    "guides/":                                          (USER, NO_METHOD),
    "guides/<name>/":                                   (USER, NO_METHOD),
    "guides/images/<name>":                             (USER, NO_METHOD),
    "issues/":                                          (VIEWER, NO_METHOD),
    "flows/":                                           (VIEWER, NO_METHOD),
    "flows/<flow_name>/":                               (VIEWER, NO_METHOD),
    "flows/<flow_name>/versions/<number>/":             (VIEWER, NO_METHOD),
    "flows/<flow_name>/versions/<number>.json":         (VIEWER, NO_METHOD),
    "flows/<flow_name>/versions/<number>/without-each/": (NO_METHOD, OPERATOR),
    "flows/<flow_name>/backtests/":                     (VIEWER, OPERATOR),
    "backtests/<backtest_id>/":                         (VIEWER, NO_METHOD),
    "backtests/<backtest_id>/live":                     (VIEWER, NO_METHOD),
    "backtests/<backtest_id>/stop/":                    (NO_METHOD, OPERATOR),
    "workers/":                                         (VIEWER, NO_METHOD),
    "workers/live":                                     (VIEWER, NO_METHOD),
    "webhooks/":                                        (VIEWER, NO_METHOD),
    "webhooks/<delivery_id>/":                          (VIEWER, NO_METHOD),
    "webhooks/<delivery_id>/send/":                     (NO_METHOD, OPERATOR),
    "webhooks/endpoints/<endpoint_id>/test/":           (NO_METHOD, EDITOR),
    "tokens/":                                          (USER, USER),  # one's own
    "tokens/<key>/revoke/":                             (NOBODY, NOBODY),  # there is none of one's own

    "trail/":                                           (ADMINISTRATOR, NO_METHOD),
    "trail/export.csv":                                 (ADMINISTRATOR, NO_METHOD),
    "account/":                                         (USER, USER),  # one's own
    "account/sessions/end/":                            (NO_METHOD, USER),

    "admin/":                                           (STAFF, STAFF),  # shows what one may see
    "admin/login/":                                     (ANYONE, ANYONE),
    "admin/logout/":                                    (ANYONE, ANYONE),  # leads out of it
    "admin/password_change/":                           (STAFF, STAFF),  # of one's own
    "admin/password_change/done/":                      (STAFF, STAFF),
    "admin/jsi18n/":                                    (STAFF, STAFF),
    "admin/autocomplete/":                              (NOBODY, NO_METHOD),
    "admin/r/<content_type_id>/<object_id>/":           (NOBODY, NOBODY),
    "admin/<app_label>/":                               (VIEWER, VIEWER),
    "admin/<url>":                                      (NOBODY, NOBODY),  # whatever there isn't
    "admin/auth/user/<id>/password/":                   (ADMINISTRATOR, ADMINISTRATOR),

    "admin/flows/flow/check/":                          (EDITOR, EDITOR),
    "admin/flows/flow/language/":                       (VIEWER, VIEWER),
    "admin/flows/flow/schema/":                         (EDITOR, EDITOR),
    "admin/flows/flow/values/":                         (VIEWER, VIEWER),
    "admin/flows/flow/judge/":                          (EDITOR, EDITOR),
    "admin/flows/flow/savings/":                        (EDITOR, EDITOR),
    "admin/flows/flow/try/":                            (EDITOR, EDITOR),
    "admin/flows/flow/plugins/":                        (VIEWER, VIEWER),
    "admin/flows/flow/<flow_id>/versions/":             (VIEWER, VIEWER),
    "admin/flows/flow/<flow_id>/versions/compare/":     (VIEWER, VIEWER),
    "admin/flows/flow/<flow_id>/versions/<number>/restore/": (EDITOR, EDITOR),
    "admin/flows/flow/<flow_id>/versions/<number>/make-live/": (EDITOR, EDITOR),
    "admin/flows/flow/<flow_id>/download/":             (VIEWER, VIEWER),
    "admin/flows/flow/download/":                       (VIEWER, VIEWER),
    "admin/flows/flow/flow.schema.json":                (VIEWER, VIEWER),
    "admin/flows/flow/upload/":                         (EDITOR, EDITOR),
    "admin/flows/flow/<flow_id>/settings/":             (EDITOR, EDITOR),
    "admin/flows/flow/<flow_id>/archive/":              (EDITOR, EDITOR),
    "admin/flows/flow/<flow_id>/take-out/":             (EDITOR, EDITOR),
}  # fmt: skip


def list_rules() -> dict[str, tuple[str, str]]:
    """Who may GET and who may POST, by address."""
    rules = dict(ADDRESSES)
    for model, (see, add, change, delete) in MODELS.items():
        rows = f"admin/{model}/"
        rules |= {
            rows: (see, see),
            f"{rows}add/": (add, add),
            f"{rows}<object_id>/": (STAFF, STAFF),  # leads to the next one
            f"{rows}<object_id>/change/": (see, change),
            f"{rows}<object_id>/history/": (see, see),
            f"{rows}<object_id>/delete/": (delete, delete),
        }
    return rules


def list_addresses(patterns: Any = None, prefix: str = "") -> Iterator[str]:
    """All addresses that lead anywhere, as the table above writes them."""
    for pattern in get_resolver().url_patterns if patterns is None else patterns:
        address = f"{prefix}{pattern.pattern}"
        if re.match(r"\^?api\b", address):
            # The API refuses in its own way: see tests/api.
            continue
        if isinstance(pattern, URLPattern):
            address = re.sub(r"\(\?P<(\w+)>.*?\)", r"<\1>", address)
            yield re.sub(r"<\w+:", "<", address).replace("^", "").replace("$", "").replace("\\", "")
        else:
            yield from list_addresses(pattern.url_patterns, address)


class World:
    """A row of everything, and a user of every role."""

    def __init__(self) -> None:
        create_groups(apps=apps, using="default")
        run = make_retried_run()
        # For longer than pages wait before they say that no worker is alive.
        waiting = make_run(run.version, available_at=timezone.now() - timedelta(hours=1))
        unused = make_version(make_page_flow(name="unused"))
        idle = make_version(make_page_flow(name="idle"))
        make_version(make_page_flow(name="idle"))
        limit = RateLimit.objects.create(calls_in_flight=1)
        endpoint = WebhookEndpoint.objects.create(url="https://hooks.example.com/")
        attempt = Attempt.objects.filter(issues__isnull=False).earliest("pk")
        self.users: dict[str, User | None] = {ANYONE: None, USER: User.objects.create_user("user")}
        self.users[STAFF] = User.objects.create_user("staff", is_staff=True)
        for name in ACCESS_GROUPS:
            self.users[name] = user = User.objects.create_user(name.lower(), is_staff=True)
            user.groups.add(Group.objects.get(name=name))
        self._clients: dict[str, Client] = {}
        self._values = {
            "<run_id>.json": f"{run.pk}.json",
            "runs/<run_id>/cancel/": f"runs/{waiting.pk}/cancel/",
            "<run_id>": run.pk,
            "<step>": 1,
            "<part>": "request",
            "<flow_name>": "colour-theme",
            "attempts/<number>": "attempts/1",
            "colour-theme/versions/<number>": "colour-theme/versions/1",
            "<flow_id>/versions/<number>": f"{idle.flow_id}/versions/{idle.number}",
            "<flow_id>": idle.flow_id,
            "<format>": "csv",
            "guides/images/<name>": "guides/images/runs.png",
            "guides/<name>": "guides/running",
            "<token>": "5eed" * 8,
            "<action_id>": BulkAction.objects.create(kind="cancel", token="5eed" * 8).pk,
            "<backtest_id>": request_backtest(flow=run.flow, candidate=run.version).pk,
            "<delivery_id>": WebhookDelivery.objects.create(
                run=run, event="run.failed", url="https://hooks.example.com/", host="hooks.example.com"
            ).pk,
            "<endpoint_id>": endpoint.pk,
            "<view_id>": 1,
            "<key>": "tf_000000000000",
            "<content_type_id>": 1,
            "<app_label>": "runs",
            "<url>": "nowhere/",
            "<id>": self.users[USER].pk,  # type: ignore[union-attr]  # this one is there
        }
        # Flows and versions that could be deleted: what stands in the way of others is no question of permissions.
        self._rows = {
            "flows/flow": unused.flow_id,
            "flows/flowversion": idle.pk,
            "runs/run": run.pk,
            "runs/attempt": attempt.pk,
            "runs/issue": Issue.objects.earliest("pk").pk,
            "runs/ratelimit": limit.pk,
            "runs/webhookendpoint": endpoint.pk,
            "runs/apitoken": ApiToken.objects.create(user=self.users[EDITOR], name="CI", expiry=None)[0].pk,
            "auth/user": self.users[USER].pk,  # type: ignore[union-attr]
            "auth/group": Group.objects.get(name="Viewer").pk,
        }

    def fill(self, address: str) -> str:
        """The address with the keys of rows that there are."""
        for model, key in self._rows.items():
            address = address.replace(f"admin/{model}/<object_id>", f"admin/{model}/{key}")
        for part, value in {**self._values, "<object_id>": 1}.items():
            address = address.replace(part, str(value))
        return f"/{address}"

    def sign_in(self, role: str) -> Client:
        """The client of a user of that role."""
        if role not in self._clients:
            self._clients[role] = Client(raise_request_exception=False)
            if user := self.users[role]:
                self._clients[role].force_login(user)
        return self._clients[role]

    def ask(self, role: str, method: str, address: str) -> HttpResponse:
        """The answer to a user of that role; whatever it changed is undone."""
        client = self.sign_in(role)
        cookies = client.cookies.copy()
        with transaction.atomic():
            answer: Any = client.generic(method, address, content_type="application/x-www-form-urlencoded")
            if answer.streaming:
                answer.getvalue()
            transaction.set_rollback(True)
        # The user who signed out is in again.
        client.cookies = cookies
        return answer


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    # Whether the installation is ready does not depend on permissions.
    monkeypatch.setattr("runs.health.load_problem", lambda: "")
    return World()


def judge(answer: HttpResponse) -> str:
    """What an answer means to the user who asked."""
    if answer.status_code >= 500:
        return "an error"
    if answer.status_code == 405:
        return NO_METHOD
    if answer.status_code == 302 and re.match(r"/(accounts|admin)/login/\?next=", answer["Location"]):
        return "sign in"
    # What one may not see may as well not exist.
    return "refused" if answer.status_code in {403, 404} else "allowed"


def expect(role: str, least: str, address: str) -> str:
    """What a user of that role should get where ``least`` is the least that lets in."""
    if least == NO_METHOD and address.startswith("admin/") and ROLES.index(role) < ROLES.index(STAFF):
        return "sign in"
    if least == NO_METHOD:
        return NO_METHOD
    if address == "metrics":
        # For machines: to sign in would not help.
        return "refused"
    if ROLES.index(role) >= ROLES.index(least):
        return "allowed"
    is_outside = role == ANYONE or (role == USER and address.startswith("admin/"))
    return "sign in" if is_outside and not address.startswith("_") else "refused"


def is_telling(role: str, least: str) -> bool:
    """Whether a user of that role asks every day: those without rights, and those on either side of the border."""
    if IS_LONG or role in (ANYONE, USER):
        return True
    border = ROLES.index(ADMINISTRATOR if least == NO_METHOD else least)
    return ROLES.index(role) in (border - 1, border)


def test_every_address_stands_in_the_table() -> None:
    found, rules = set(list_addresses()), list_rules()
    unlisted = [f"Say in the table above who may open “{address}”." for address in sorted(found - rules.keys())]
    gone = [f"“{address}” is in the table above, but leads nowhere." for address in sorted(rules.keys() - found)]
    assert not unlisted + gone, "\n".join(unlisted + gone)


@pytest.mark.parametrize("role", ROLES[:-1])
def test_every_address_lets_in_whom_it_should_with_all_headers(world: World, role: str) -> None:
    differences = []
    for address, rule in list_rules().items():
        for method, least in zip(("GET", "POST"), rule, strict=True):
            if not is_telling(role, least):
                continue
            answer = world.ask(role, method, world.fill(address))
            found = judge(answer)
            expected = expect(role, least, address)
            # An address may have no use for a method, for any user.
            if found != expected and not (found == NO_METHOD and expected != "sign in"):
                differences.append(f"{role}, {method} {address}: {found} instead of {expected}")
            differences += [f"{role}, {method} {address}: {missing}" for missing in find_missing(answer)]
            if answer.status_code == 403 and method == "GET" and not address.startswith("_"):
                content = answer.content.decode()
                differences += [f"{role}, {address}: no reason"] * (role != ANYONE and "lack" not in content)
    assert not differences, "\n".join(differences)


def test_a_group_without_staff_status_opens_the_pages_of_runs_and_not_the_admin(world: World) -> None:
    editor = world.users[EDITOR]
    assert editor is not None
    User.objects.filter(pk=editor.pk).update(is_staff=False)
    editor.refresh_from_db()
    assert judge(world.ask(EDITOR, "GET", world.fill("runs/<run_id>/"))) == "allowed"
    assert judge(world.ask(EDITOR, "GET", world.fill("runs/new/<flow_name>/"))) == "allowed"
    assert judge(world.ask(EDITOR, "GET", "/admin/flows/flow/")) == "sign in"
    client = Client()
    client.force_login(editor)
    page = read_words(client.get("/admin/flows/flow/", follow=True).content.decode())
    assert "You are signed in as editor, but this account can’t open the admin" in page


@pytest.mark.parametrize(("role", "may_run"), [(VIEWER, False), (OPERATOR, True), (ADMINISTRATOR, True)])
def test_pages_of_runs_offer_what_one_may_do(world: World, role: str, may_run: bool) -> None:
    ended = read_words(world.ask(role, "GET", world.fill("runs/<run_id>/")).content.decode())
    waiting = Run.objects.latest("pk")
    queued = read_words(world.ask(role, "GET", f"/runs/{waiting.pk}/").content.decode())
    listed = read_words(world.ask(role, "GET", "/runs/").content.decode())
    assert ("Re-run" in ended, "Cancel" in queued, "Run a flow" in listed) == (may_run,) * 3
