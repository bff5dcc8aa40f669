"""The content security policy is on every answer, and the admin's own pages can live with it."""

from __future__ import annotations

from contextlib import closing
from html.parser import HTMLParser

import pytest
from django.conf import settings
from django.contrib.admin import site
from django.contrib.auth.models import User
from django.db.models import Model
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path, reverse

from toolflow_site.urls import urlpatterns as real_urlpatterns

POLICY = {
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data:",
    "font-src 'self'",
    "connect-src 'self'",
    "form-action 'self'",
    "base-uri 'none'",
    "frame-ancestors 'none'",
}


def crash(request: HttpRequest) -> HttpResponse:
    raise RuntimeError("A view that fails.")


urlpatterns = [path("crash/", crash), *real_urlpatterns]


class InlineFinder(HTMLParser):
    """Collects what the policy forbids: scripts and styles in the page itself, and handlers in attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        is_data = (values.get("type") or "").endswith("json")
        if tag == "style" or (tag == "script" and "src" not in values and not is_data):
            self.found.append(self.get_starttag_text() or tag)
        forbidden = [name for name in values if name == "style" or name.startswith("on")]
        self.found += [f"{tag} {name}" for name in forbidden]


@pytest.fixture
def admin(client: Client, db: None) -> Client:
    client.force_login(User.objects.create_superuser("ada", password="secret"))
    return client


@pytest.mark.urls(__name__)
@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("/accounts/login/", 200),
        ("/admin/", 200),
        ("/nowhere/", 404),
        ("/crash/", 500),
        ("/static/admin/css/base.css", 200),
        ("/_nested_admin/server-data.js", 200),
    ],
)
def test_every_answer_carries_the_policy(admin: Client, address: str, status: int) -> None:
    admin.raise_request_exception = False
    if address == "/accounts/login/":
        admin.logout()
    with closing(admin.get(address)) as answer:
        assert answer.status_code == status
        assert set(answer["Content-Security-Policy"].split("; ")) == POLICY
        assert answer["X-Content-Type-Options"] == "nosniff"


def test_an_unknown_host_gets_the_policy_too(client: Client) -> None:
    answer = client.get("/", headers={"host": "evil.example.com"})
    assert answer.status_code == 400
    assert "Content-Security-Policy" in answer


@pytest.mark.parametrize(
    "address",
    [
        "/admin/",
        "/admin/auth/user/{user}/change/",
        "/admin/auth/user/{user}/password/",
        "/admin/auth/user/{user}/delete/",
        "/admin/auth/user/{user}/history/",
        "/admin/password_change/",
    ],
)
def test_pages_of_the_admin_need_nothing_that_the_policy_forbids(admin: Client, address: str) -> None:
    answer = admin.get(address.format(user=User.objects.get().pk))
    assert answer.status_code == 200
    assert InlineFinder(answer.content.decode()).found == []


@pytest.mark.parametrize("model", site._registry, ids=lambda model: model._meta.label)
def test_lists_and_forms_of_the_admin_need_nothing_that_the_policy_forbids(admin: Client, model: type[Model]) -> None:
    for page in ("changelist", "add"):
        answer = admin.get(reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{page}"))
        # Some models take no additions by hand.
        assert answer.status_code == 200 or (page, answer.status_code) == ("add", 403)
        assert InlineFinder(answer.content.decode()).found == []


def test_static_files_are_served_without_collecting_them_first(admin: Client) -> None:
    assert settings.DEBUG is False
    for address in ("admin/js/theme.js", "django_htmx/htmx-2.min.js", "nested_admin/dist/nested_admin.min.js"):
        with closing(admin.get(f"/static/{address}")) as answer:
            assert answer.status_code == 200, address
            assert len(b"".join(answer)) > 500
