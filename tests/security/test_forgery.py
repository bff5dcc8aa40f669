"""What other sites and users might try: forged forms, others' rows, addresses of files, unexpected hosts and bodies."""

from __future__ import annotations

import io
import json
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils import timezone

from flows.models import Flow
from runs.models import ApiToken, AuditEntry, SavedView
from runs.tokens import create_token
from tests.engine.builders import make_flow
from tests.site.test_permissions import NO_METHOD, World, list_rules, world

__all__ = ["world"]

pytestmark = pytest.mark.django_db


@pytest.fixture
def olga(client: Client) -> User:
    user = User.objects.create_superuser("olga", password="correct horse")
    client.force_login(user)
    return user


# Other sites


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
    # Addresses that only lead somewhere change nothing.
    assert set(taken) <= {"admin/jsi18n/: 405"}, taken


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


def test_what_a_proxy_is_said_to_have_said_is_believed_of_no_client(olga: User, client: Client) -> None:
    page = client.get("/account/", headers={"X-Forwarded-Host": "evil.example", "X-Original-URL": "/admin/"})
    assert page.status_code == 200 and "evil" not in page.content.decode()
    client.logout()
    form = {"username": "olga", "password": "correct horse"}
    client.post("/accounts/login/", form, headers={"X-Forwarded-For": "203.0.113.9"})
    assert AuditEntry.objects.filter(action="signed_in").latest("pk").address == "127.0.0.1"


# Other users


def test_tokens_and_saved_views_of_another_user_are_not_to_be_seen_or_taken_away(olga: User) -> None:
    mallory = Client()
    mallory.force_login(User.objects.create_superuser("mallory"))
    row, _ = create_token(user=olga, name="payroll", scope="run", lifetime=timedelta(days=1))
    view = SavedView.objects.create(owner=olga, name="Mine", query="status=failed")
    for address, name in (("/tokens/", "payroll"), ("/runs/", "Mine")):
        assert name not in mallory.get(address).content.decode()
    for address in (f"/tokens/{row.token_key}/revoke/", f"/runs/views/{view.pk}/delete/"):
        assert mallory.post(address).status_code == 404
    assert mallory.get(f"/tokens/{row.token_key}/revoke/").status_code == 404
    assert ApiToken.objects.active(timezone.now()).filter(pk=row.pk).exists()
    assert SavedView.objects.filter(pk=view.pk).exists()


# Files

HOSTILE = ("../evil", "/tmp/evil", "..", "a/../../evil", "evil\0.gz", "evil\n", "C:\\evil", '"; filename="evil.exe')  # noqa: S108  # nothing is written


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


def test_no_flow_has_such_a_name_and_that_of_an_uploaded_file_is_only_shown(
    olga: User, client: Client, tmp_path: Path
) -> None:
    for name in HOSTILE:
        document = {**make_flow().to_document(), "name": name}
        uploaded = SimpleUploadedFile("flow.yaml", json.dumps(document).encode())
        client.post("/admin/flows/flow/upload/", {"file": uploaded})
        assert not Flow.objects.exists(), name
        file = io.BytesIO(b"name: [")
        file.name = name
        assert client.post("/admin/flows/flow/upload/", {"file": file}).status_code in {200, 400, 422}, name
    assert not list(tmp_path.iterdir())


# Bodies


@pytest.mark.parametrize(
    ("charset", "status"), [("hex", 400), ("idna", 400), ("utf-16", 400), ("zip", 400), ("UTF-8", 200)]
)
@pytest.mark.parametrize("address", ["/accounts/login/", "/admin/login/"])
def test_a_form_in_an_unexpected_encoding_is_refused(client: Client, address: str, charset: str, status: int) -> None:
    body = b'--x\r\nContent-Disposition: form-data; name="username"\r\n\r\nada\r\n--x--\r\n'
    answer = client.generic("POST", address, body, f"multipart/form-data; boundary=x; charset={charset}")
    assert answer.status_code == status


@pytest.mark.parametrize(
    ("address", "form"),
    [
        ("/accounts/login/", {"text": "x" * (settings.DATA_UPLOAD_MAX_MEMORY_SIZE + 1)}),
        ("/admin/flows/flow/upload/", {f"field{number}": "x" for number in range(10_001)}),
    ],
    ids=["large", "many fields"],
)
def test_a_form_that_is_too_large_is_refused_with_its_limits(olga: User, address: str, form: dict[str, str]) -> None:
    # The check against forged forms reads the form first.
    client = Client(enforce_csrf_checks=True)
    client.force_login(olga)
    client.get("/tokens/")
    answer = client.post(address, form)
    assert answer.status_code == 413
    assert "10,000 fields" in answer.content.decode()
