"""Secrets are nowhere but where they are set: not in rows, logs, pages, answers, files or what commands print."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path

from runs.access_groups import create_groups
from runs.models import Run, WebhookDelivery
from runs.webhooks.making import make_deliveries
from tests.api.test_access_matrix import find_addresses
from tests.engine.builders import make_flow, make_step
from tests.engine.model_server import ModelServer
from tests.runs.builders import make_run, make_version
from tests.runs.executing import drain
from tests.site.test_permissions import list_addresses
from toolflow_site.urls import urlpatterns as real_urlpatterns

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.any_database, pytest.mark.urls(__name__)]

SECRETS: Mapping[str, str] = {
    "the provider's key": "sk-planted-7Qm3xVnE4rT9yUiO2pLk",
    "a key that doesn't look like one": "planted+Zx8/Wq==N5tB2hGf",
    "the webhook secret": "cGxhbnRlZC13ZWJob29rLXNlY3JldC1rZXk=",
    "the secret key": "planted-secret-key-of-django-0123456789-abcdefghijklmnop",
    "the database's password": "planted-database-password",
}


def crash(request: HttpRequest) -> HttpResponse:
    raise RuntimeError("A view that fails.")


handler400 = "toolflow_site.errors.show_bad_request"
handler403 = "toolflow_site.errors.show_refusal"
urlpatterns = [path("crash/", crash), *real_urlpatterns]


class EchoingProvider:
    """Repeats the key that it was sent, each time in another way."""

    def __init__(self) -> None:
        self.way = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        key = dict(scope["headers"]).get(b"authorization", b"").decode().removeprefix("Bearer ")
        error = json.dumps({"error": {"message": f"Incorrect API key provided: {key}.", "code": key}})
        ways = [
            (401, "application/json", error),
            (500, "text/html", f"<title>Proxy: Authorization: Bearer {key}</title>"),
            (400, "text/plain", f"Headers were {{'Authorization': 'Bearer {key}'}}"),
            (200, "application/json", f"{{not json, but {key}"),
            (200, "application/json", json.dumps({"id": key, "choices": [], "error": {"message": key}})),
            (307, "text/plain", key),
            (429, "application/json", json.dumps({"detail": key})),
        ]
        status, kind, body = ways[self.way % len(ways)]
        headers = [(b"content-type", kind.encode()), (b"x-request-id", f"req_{self.way}".encode())]
        if status == 307:
            headers.append((b"location", f"https://elsewhere.example/?key={key}".encode()))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body.encode()})


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """What goes to the log, as operators get it, from now on."""
    import logging

    lines = io.StringIO()
    (handler,) = [handler for handler in logging.getLogger().handlers if type(handler) is logging.StreamHandler]
    stream = handler.setStream(lines)
    yield lines
    handler.setStream(stream)


@pytest.fixture
def planted(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.SECRET_KEY = SECRETS["the secret key"]
    settings.TOOLFLOW_WEBHOOK_SECRET = [f"whsec_{SECRETS['the webhook secret']}"]
    monkeypatch.setitem(connection.settings_dict, "PASSWORD", SECRETS["the database's password"])
    settings.TOOLFLOW_PROVIDER = "openai"


def find_secrets(place: str, text: str) -> list[str]:
    return [f"{name} in {place}" for name, secret in SECRETS.items() if secret in text]


def read_rows() -> Iterator[tuple[str, str]]:
    """Everything that is stored, by table."""
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f'SELECT * FROM "{table}"')  # noqa: S608  # a name of a table
            yield table, repr(cursor.fetchall())


def read_pages(client: Client, run: Run) -> Iterator[tuple[str, str]]:
    """Everything that is shown or handed out, by address."""
    delivery = WebhookDelivery.objects.latest("pk").pk
    values = {
        "<run_id>": run.pk, "<step>": 1, "<number>": 1, "<flow_name>": run.flow.name, "<name>": run.flow.name,
        "<format>": "jsonl", "<part>": "request", "<delivery_id>": delivery, "<flow_id>": run.flow_id, "<index>": 1,
        "<app_label>": "runs", "<object_id>": 1, "<id>": 1, "<content_type_id>": 1, "<url>": "x/",
    }  # fmt: skip
    addresses = {f"/{address}" for address in list_addresses() if "logout" not in address}
    addresses |= {f"/api/v1/{address}" for address in find_addresses()}
    addresses |= {"/crash/", "/nowhere/", "/runs/export/jsonl?with=attempts", "/runs/export/csv"}
    for address in sorted(addresses):
        for part, value in values.items():
            address = address.replace(part, str(value))
        answer: Any = client.get(address)
        content = b"".join(answer.streaming_content) if answer.streaming else answer.content
        yield address, content.decode(errors="replace") + repr(answer.headers)
    yield "a bad host", client.get("/runs/", HTTP_HOST="evil.example").content.decode()


def read_commands(capsys: pytest.CaptureFixture[str]) -> Iterator[tuple[str, str]]:
    """What commands print."""
    capsys.readouterr()
    commands: list[tuple[str, Callable[[], Any]]] = [
        ("check", lambda: call_command("check", deploy=True)),
        ("workers", lambda: call_command("workers")),
        ("export_flow", lambda: call_command("export_flow", Run.objects.latest("pk").flow.name)),
        ("dumpdata", lambda: call_command("dumpdata", exclude=["contenttypes"])),
    ]
    for name, command in commands:
        command()
        yield f"what “{name}” prints", "".join(capsys.readouterr())


@pytest.mark.parametrize("key", ["the provider's key", "a key that doesn't look like one"])
def test_a_planted_secret_is_nowhere(
    planted: None,
    model_server: ModelServer,
    settings: Any,
    log: io.StringIO,
    capsys: pytest.CaptureFixture[str],
    key: str,
) -> None:
    create_groups(apps=apps, using="default")
    settings.TOOLFLOW_OPENAI_API_KEY = SECRETS[key]
    settings.TOOLFLOW_OPENAI_BASE_URL = model_server.base_url
    model_server.app = provider = EchoingProvider()
    version = make_version(make_flow(make_step(max_retries=0)))
    for way in range(7):
        provider.way = way
        make_run(version, webhook_url="https://hooks.example.com/")
        drain()
    assert {run.status for run in Run.objects.all()} <= {"errored", "failed"}
    assert make_deliveries(Run.objects.values_list("pk", flat=True)) >= 0
    client = Client(raise_request_exception=False)
    client.force_login(User.objects.create_superuser("root"))
    found: list[str] = []
    seen = 0
    for run in Run.objects.order_by("pk"):
        for place, text in read_pages(client, run) if run == Run.objects.latest("pk") else ():
            found += find_secrets(place, text)
            seen += 1
        for page in (f"/runs/{run.pk}/", f"/runs/{run.pk}.json", f"/api/v1/runs/{run.pk}/attempts"):
            found += find_secrets(page, client.get(page).content.decode())
    for place, text in (*read_rows(), *read_commands(capsys)):
        found += find_secrets(place, text)
    found += find_secrets("the log", log.getvalue())
    assert not found, "\n".join(sorted(set(found)))
    # The places were really looked at.
    assert seen > 80 and re.search(r"A view that fails", log.getvalue())
