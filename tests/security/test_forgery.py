"""What other sites and other users might try: forged forms, others' rows, addresses of files, strange hosts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from urllib.parse import urljoin, urlsplit

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from runs.models import ApiToken, BrowserSession, SavedView, TrailEntry
from runs.tokens import make_token
from tests.runs.builders import make_run
from tests.runs.pages.reading import read_words
from tests.site.test_permissions import NO_METHOD, World, list_rules, world

__all__ = ["world"]

pytestmark = pytest.mark.django_db


@pytest.fixture
def olga(client: Client) -> User:
    user = User.objects.create_superuser("olga", password="correct horse")
    client.force_login(user)
    return user


@pytest.fixture
def mallory() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("mallory"))
    return client


def test_every_form_refuses_what_other_sites_send(world: World) -> None:
    taken = []
    client = Client(enforce_csrf_checks=True, raise_request_exception=False)
    client.force_login(User.objects.create_superuser("root"))
    for address, (_, post) in list_rules().items():
        if post == NO_METHOD:
            continue
        answer = client.post(world.fill(address), {"confirm": "yes"})
        if answer.status_code != 403 or "This form has expired" not in answer.content.decode():
            taken.append(f"{address}: {answer.status_code}")
    # Addresses that only lead somewhere, and a script, change nothing.
    assert set(taken) <= {"admin/jsi18n/: 405", "_nested_admin/server-data.js: 200"}, taken


def test_the_api_refuses_what_other_sites_send_with_somebodys_cookies(olga: User) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(olga)
    run = make_run()
    for path, body in ((f"runs/{run.pk}/cancel", {}), ("runs", {"flow": run.flow.name, "input": {}})):
        answer = client.post(f"/api/v1/{path}", body, content_type="application/json")
        assert (answer.status_code, answer.json()["detail"][:11]) == (403, "CSRF Failed")
    # Other sites can send forms, but no JSON.
    answer = Client().post("/api/v1/runs", {"flow": "x"})
    assert answer.status_code in {401, 415}


def test_a_token_of_somebody_else_is_not_to_be_seen_or_revoked(olga: User, mallory: Client) -> None:
    row, _ = make_token(user=olga, name="payroll", scope="run", lifetime=timedelta(days=1))
    assert "payroll" not in mallory.get("/tokens/").content.decode()
    for method in (mallory.get, mallory.post):
        assert method(f"/tokens/{row.token_key}/revoke/").status_code == 404
    assert ApiToken.objects.active(timezone.now()).filter(pk=row.pk).exists()


def test_a_saved_view_of_somebody_else_is_not_to_be_deleted(olga: User, mallory: Client) -> None:
    view = SavedView.objects.create(owner=olga, name="Mine", query="status=failed")
    assert "Mine" not in mallory.get("/runs/").content.decode()
    assert mallory.post(f"/runs/views/{view.pk}/delete/").status_code == 404
    assert SavedView.objects.filter(pk=view.pk).exists()


def test_a_session_of_somebody_else_is_not_to_be_ended(olga: User, client: Client, mallory: Client) -> None:
    other = Client()
    other.force_login(olga)
    reference = next(row for row in client.get("/account/").context["sessions"] if not row.is_this).reference
    mallory.post("/account/sessions/end/", {"session": reference})
    mallory.post("/account/sessions/end/")
    assert BrowserSession.objects.filter(user=olga).count() == 2


@pytest.mark.parametrize(
    "address",
    [
        "/runs/export/../../toolflow_site/settings.py", "/runs/export/..%2f..%2fetc%2fpasswd", "/runs/export/csv%00",
        "/static/../manage.py", "/static/..%2fmanage.py", "/static/%2e%2e/%2e%2e/etc/passwd", "/static//etc/passwd",
        "/static/toolflow/../../../manage.py", "/runs/1/steps/1/attempts/1/..%2f..%2frequest/",
        "/trail/export.csv/../../x",
    ],
)  # fmt: skip
def test_addresses_lead_to_no_files_of_the_machine(olga: User, client: Client, address: str) -> None:
    answer: Any = client.get(address)
    assert answer.status_code in {400, 404}
    content = answer.getvalue() if answer.streaming else answer.content
    assert b"root:" not in content and b"DJANGO_SETTINGS_MODULE" not in content


@pytest.mark.parametrize(
    "path", ["//evil.example/runs", "///evil.example/admin", "/\\evil.example/runs", "//evil.example/.."]
)
def test_an_address_that_looks_like_another_host_leads_to_none(olga: User, client: Client, path: str) -> None:
    for browser in (client, Client()):
        answer = browser.get("/", PATH_INFO=path)
        read = answer.get("Location", "/").replace("\\", "/")
        assert urlsplit(urljoin("http://testserver/", read))[:2] == ("http", "testserver")


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "localhost@evil.example", "localhost:x"])
def test_a_host_that_is_not_ours_is_refused(olga: User, client: Client, host: str) -> None:
    for address in ("/runs/", "/tokens/", "/accounts/login/", "/admin/", "/api/v1/runs"):
        answer = client.get(address, HTTP_HOST=host)
        assert answer.status_code == 400
        assert "evil" not in answer.content.decode()


def test_what_a_proxy_is_said_to_have_said_is_believed_of_nobody(olga: User, client: Client) -> None:
    page = client.get("/account/", headers={"X-Forwarded-Host": "evil.example", "X-Original-URL": "/admin/"})
    assert page.status_code == 200 and "evil" not in page.content.decode()
    client.logout()
    client.post(
        "/accounts/login/",
        {"username": "olga", "password": "correct horse"},
        headers={"X-Forwarded-For": "203.0.113.9"},
    )
    assert TrailEntry.objects.filter(action="signed_in").latest("pk").address == "127.0.0.1"


def test_a_new_password_signs_out_everywhere_else_and_leaves_tokens_unless_asked(olga: User, client: Client) -> None:
    other = Client()
    other.force_login(olga)
    _, token = make_token(user=olga, name="nightly", scope="read", lifetime=None)
    form = {
        "old_password": "correct horse",
        "new_password1": "battery staple hook",
        "new_password2": "battery staple hook",
    }
    wrong = client.post("/account/", {**form, "old_password": "x"})
    assert wrong.status_code == 422 and "Your old password was entered incorrectly" in read_words(
        wrong.content.decode()
    )
    weak = client.post("/account/", {**form, "new_password1": "12345678", "new_password2": "12345678"})
    assert "too common" in read_words(weak.content.decode())
    assert other.get("/account/").status_code == 200
    before = client.session.session_key
    page = client.post("/account/", form, follow=True)
    assert "Your password is changed. 1 other session ended." in read_words(page.content.decode())
    assert other.get("/account/").status_code == 302
    assert client.session.session_key != before
    script = Client(headers={"Authorization": f"Bearer {token}"})
    assert script.get("/api/v1/runs").status_code == 200
    again = {
        "old_password": "battery staple hook", "new_password1": "hook staple battery",
        "new_password2": "hook staple battery", "tokens": "on",
    }  # fmt: skip
    page = client.post("/account/", again, follow=True)
    assert "1 API token revoked" in read_words(page.content.decode())
    assert script.get("/api/v1/runs").status_code == 401
    told = [entry.action for entry in TrailEntry.objects.order_by("-pk")[:3]]
    assert told == ["token_revoked", "password_changed", "password_changed"]


def test_sessions_are_listed_and_ended_one_by_one_and_all_at_once(olga: User, client: Client) -> None:
    others = [Client(headers={"User-Agent": f"Browser {number}"}) for number in range(3)]
    for other in others:
        other.post("/accounts/login/", {"username": "olga", "password": "correct horse"})
    page = client.get("/account/")
    assert "Browser 1 127.0.0.1" in read_words(page.content.decode())
    chosen = next(row for row in page.context["sessions"] if row.browser == "Browser 1")
    # What stands on the page signs nobody in.
    assert not BrowserSession.objects.filter(session_key=chosen.reference).exists()
    client.post("/account/sessions/end/", {"session": chosen.reference})
    assert [other.get("/account/").status_code for other in others] == [200, 302, 200]
    client.post("/account/sessions/end/")
    assert [other.get("/account/").status_code for other in others] == [302, 302, 302]
    assert client.get("/account/").status_code == 200
    assert TrailEntry.objects.filter(action="sessions_ended").count() == 2


def test_a_closed_account_is_out_at_once_with_its_sessions_and_tokens(olga: User, client: Client) -> None:
    _, token = make_token(user=olga, name="nightly", scope="read", lifetime=None)
    User.objects.filter(pk=olga.pk).update(is_active=False)
    assert client.get("/account/").status_code == 302
    answer = Client(headers={"Authorization": f"Bearer {token}"}).get("/api/v1/runs")
    assert (answer.status_code, answer.json()["detail"]) == (401, "The account of this token is closed.")
