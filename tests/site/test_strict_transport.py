"""Behind a proxy that does TLS, every answer tells browsers to come through nothing else, whoever gives it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.contrib.auth.models import User

from tests.databases import name_test_database
from tests.processes import run_python
from tests.site.conftest import PRODUCTION
from tests.site.test_settings import make_environment
from toolflow_site.middleware import HEADERS

pytestmark = pytest.mark.django_db(transaction=True)

PROXY, STRANGER = "10.0.0.2", "203.0.113.7"
THROUGH_TLS = {"X-Forwarded-For": STRANGER, "X-Forwarded-Proto": "https"}


def make_request(
    path: str, *, method: str = "GET", content: str = "", peer: str = PROXY, **headers: str
) -> dict[str, Any]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return {"method": method, "path": path, "headers": {**THROUGH_TLS, **named}, "content": content, "peer": peer}


def ask_production(requests: list[dict[str, Any]], data_dir: Path, static_root: Path) -> list[dict[str, Any]]:
    """What an installation in production mode answers, with the database of this test."""
    variables = {
        **PRODUCTION,
        "DATABASE_URL": name_test_database(),
        "TOOLFLOW_TRUSTED_PROXIES": PROXY,
        "TOOLFLOW_STATIC_ROOT": str(static_root),
        "TOOLFLOW_MAX_BODY": "10000",
        "TOOLFLOW_HSTS_SECONDS": "86400",
        "TOOLFLOW_HSTS_SUBDOMAINS": "true",
    }
    done = run_python(
        "-m",
        "tests.site.production_answers",
        cwd=settings.BASE_DIR,
        environment=make_environment(data_dir, variables),
        timeout=60,
        input=json.dumps(requests),
    )
    assert done.returncode == 0, done.stderr
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    return answers


def test_every_answer_through_tls_says_so_and_every_cookie_stays_there(tmp_path: Path, collected: Path) -> None:
    User.objects.create_superuser("ada")
    # Production doesn't know the fast hashes of the tests.
    User.objects.update(password=PBKDF2PasswordHasher().encode("a long secret", "salt" * 6, iterations=1000))
    (file,) = collected.glob("toolflow/css/base.*.css")
    form = "application/x-www-form-urlencoded"
    signing_in = "csrfmiddlewaretoken=CSRF_TOKEN&username=ada&password=a+long+secret"
    requests = {
        "a page": (200, make_request("/accounts/login/")),
        "a problem of the API": (401, make_request("/api/v1/runs")),
        "nothing there": (404, make_request("/nowhere/")),
        "a page that fails": (500, make_request("/crash/")),
        "a body too large": (413, make_request("/api/v1/runs", method="POST", content="x" * 10_001)),
        "a strange form": (
            400,
            make_request(
                "/accounts/login/",
                method="POST",
                content="--x",
                Content_Type="multipart/form-data; boundary=x; charset=hex",
            ),
        ),
        "a form without its token": (403, make_request("/accounts/login/", method="POST")),
        "an unknown host": (400, make_request("/", Host="evil.example.com")),
        "a static file": (200, make_request(f"/static/toolflow/css/{file.name}")),
        "a claim of a stranger": (301, make_request("/accounts/login/", peer=STRANGER)),
        "signing in": (
            302,
            make_request(
                "/accounts/login/",
                method="POST",
                content=signing_in,
                Content_Type=form,
                Referer="https://flows.example.com/accounts/login/",
            ),
        ),
    }
    answers = ask_production([request for _, request in requests.values()], tmp_path, collected)
    found = dict(zip(requests, answers, strict=True))
    assert {name: answer["status"] for name, answer in found.items()} == {
        name: status for name, (status, _) in requests.items()
    }
    # Views choose their own rules for caches.
    always = {name: value for name, value in HEADERS.items() if name != "Cache-Control"}
    expected = {**always, "Strict-Transport-Security": "max-age=86400; includeSubDomains"}
    # Whoever only claims to come through TLS is sent there; browsers would ignore the header.
    claim = found.pop("a claim of a stranger")
    assert claim["headers"]["location"] == "https://flows.example.com/accounts/login/"
    assert "strict-transport-security" not in claim["headers"] and claim["cookies"] == []
    for name, answer in found.items():
        headers = answer["headers"]
        assert {header: headers.get(header.lower()) for header in expected} == expected, name
        assert headers["content-security-policy"] and headers["cache-control"] and headers["x-request-id"], name
    cookies = [cookie for answer in found.values() for cookie in answer["cookies"]]
    assert {cookie.partition("=")[0] for cookie in cookies} >= {"csrftoken", "sessionid"}
    assert all("; Secure" in cookie for cookie in cookies)
    assert all("; HttpOnly" in cookie for cookie in cookies if cookie.startswith("sessionid="))
