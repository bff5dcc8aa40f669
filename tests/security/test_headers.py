"""The headers that protect people are on every error and file; of pages and the API: see who may open them."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path

from tests.security.protective_headers import find_missing
from tests.site.test_permissions import ANYONE, World, world
from toolflow_site.urls import urlpatterns as real_urlpatterns

__all__ = ["world"]

pytestmark = pytest.mark.django_db

HEX_FORM = "multipart/form-data; boundary=x; charset=hex"


def crash(request: HttpRequest) -> HttpResponse:
    raise RuntimeError("A view that fails.")


def take_too_much(request: HttpRequest) -> HttpResponse:
    raise RequestDataTooBig


handler400 = "toolflow_site.errors.show_bad_request"
urlpatterns = [path("crash/", crash), path("large/", take_too_much), *real_urlpatterns]


@pytest.mark.urls(__name__)
@pytest.mark.parametrize("is_signed_in", [True, False])
@pytest.mark.parametrize(
    ("status", "ask"),
    [
        (400, lambda client: client.get("/runs/", HTTP_HOST="evil.example")),
        (403, lambda client: client.post("/accounts/login/", {"username": "ada"})),
        (404, lambda client: client.get("/nowhere/")),
        (404, lambda client: client.get("/static/nothing.css")),
        (405, lambda client: client.post("/healthz")),
        (400, lambda client: client.generic("POST", "/accounts/login/", b"--x", HEX_FORM)),
        (413, lambda client: client.post("/large/")),
        (500, lambda client: client.get("/crash/")),
        (301, lambda client: client.get("/runs")),
        (200, lambda client: client.get("/static/admin/css/base.css")),
        (200, lambda client: client.get("/healthz")),
    ],
)
def test_errors_and_files_carry_them_too_and_stay_with_tls(
    settings: Any, status: int, ask: Any, is_signed_in: bool
) -> None:
    settings.SECURE_HSTS_SECONDS, settings.SECURE_HSTS_INCLUDE_SUBDOMAINS = 86_400, True
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_TLS", "on")
    client = Client(
        raise_request_exception=False, enforce_csrf_checks=status == 403, headers={"X-TLS": "on", "Referer": "/"}
    )
    if is_signed_in:
        client.force_login(User.objects.create_superuser("ada"))
    with closing(ask(client)) as answer:
        assert answer.status_code == status
        assert list(find_missing(answer)) == []
        assert answer["Strict-Transport-Security"] == "max-age=86400; includeSubDomains"


def test_private_pages_stay_in_no_cache_and_files_do(world: World) -> None:
    api = ("api/v1/runs", "api/v1/runs/<run_id>", "api/v1/nowhere", "api/v1/schema")
    for address in ("runs/", "runs/<run_id>/", "runs/<run_id>.json", "tokens/", "admin/", "admin/flows/flow/", *api):
        answer = world.ask("Administrator", "GET", world.fill(address))
        assert "no-store" in answer["Cache-Control"], address
    answer = world.ask(ANYONE, "GET", "/nowhere/")
    assert "no-store" in answer["Cache-Control"]
    with closing(Client().get("/static/admin/css/base.css")) as file:
        assert "no-store" not in file["Cache-Control"]
