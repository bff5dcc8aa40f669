"""Secrets are nowhere but where they are set: not in rows, logs, pages, answers, files or what commands print."""

from __future__ import annotations

import html
import io
import json
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.contrib.sessions.base_session import AbstractBaseSession
from django.core.management import call_command
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path

from runs import backup
from runs.access_groups import create_groups
from runs.models import Run, WebhookDelivery, WebhookEndpoint
from runs.webhooks.messages import derive_secret, fetch_installation_secret
from runs.webhooks.sending import send_all
from tests.api.test_access_matrix import find_addresses
from tests.engine.builders import make_flow, make_step
from tests.engine.model_server import ModelServer
from tests.runs.builders import make_run, make_version
from tests.runs.executing import drain
from tests.runs.tracing.test_tracing import Collector, collector, tell_of_ended_runs
from tests.runs.webhooks.deliveries import make_endpoint
from tests.runs.webhooks.receiver import Receiver, receiver
from tests.security.echoing import ANSWERS, USABLE, EchoingProvider
from tests.security.provider import CLIENT_ID, CLIENT_SECRET, run_provider
from tests.site.test_permissions import list_addresses
from toolflow_site.openid import BeginView, ReturnView
from toolflow_site.urls import urlpatterns as real_urlpatterns

__all__ = ["collector", "receiver"]

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]

SECRETS: Mapping[str, str] = {
    "the provider's key": "sk-planted-7Qm3xVnE4rT9yUiO2pLk",
    "a key that doesn't look like one": "planted+Zx8/Wq==N5tB2hGf",
    "the secret key": "planted-secret-key-of-django-0123456789-abcdefghijklmnop",
    "the database's password": "planted-database-password",
    "the token of the metrics": "planted-token-of-the-metrics",
    "the secret of the OpenID client": CLIENT_SECRET,
    "the password of Redis": "planted-redis-password",
}


def crash(request: HttpRequest) -> HttpResponse:
    raise RuntimeError("A view that fails.")


handler400 = "toolflow_site.errors.show_bad_request"
handler403 = "toolflow_site.errors.show_refusal"
urlpatterns = [
    path("crash/", crash),
    path("accounts/oidc/", BeginView.as_view(), name="oidc_authentication_init"),
    path("accounts/oidc/callback/", ReturnView.as_view(), name="oidc_authentication_callback"),
    *real_urlpatterns,
]


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
def planted(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    settings.SECRET_KEY = SECRETS["the secret key"]
    settings.TOOLFLOW_METRICS_TOKEN = SECRETS["the token of the metrics"]
    if connection.vendor == "sqlite":
        # Which needs none, and gets in with any.
        monkeypatch.setitem(connection.settings_dict, "PASSWORD", SECRETS["the database's password"])
    settings.TOOLFLOW_PROVIDER = "openai"
    settings.TOOLFLOW_TRACE_CONTENT = True
    with socket.socket() as deaf:
        # Nothing listens there: what wants Redis says so in the log.
        deaf.bind(("127.0.0.1", 0))
        redis = {"host": "127.0.0.1", "port": deaf.getsockname()[1], "password": SECRETS["the password of Redis"]}
        settings.Q_CLUSTER = {**settings.Q_CLUSTER, "redis": redis}
        yield


def find_secrets(place: str, text: str) -> list[str]:
    return [
        f"{name} in {place}"
        for name, secret in SECRETS.items()
        if any(form in text for form in (secret, quote(secret, safe=""), html.escape(secret), json.dumps(secret)[1:-1]))
    ]


def find_webhook_secrets(texts: Iterable[tuple[str, str]], run: Run) -> set[str]:
    """Where the secrets are that sign messages."""
    signers = (WebhookEndpoint.objects.get(flow=run.flow_id), fetch_installation_secret())
    keys = [derive_secret(signer).removeprefix("whsec_") for signer in signers]
    return {place for place, text in texts if any(key in text or html.escape(key) in text for key in keys)}


def read_rows() -> Iterator[tuple[str, str]]:
    """Everything that is stored, by table: as it lies in the database, and as models read what is packed or encoded."""
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f'SELECT * FROM "{table}"')  # noqa: S608  # a name of a table
            yield table, repr(cursor.fetchall())
    for model in apps.get_models():
        for row in model._base_manager.all():
            values = {field.attname: getattr(row, field.attname) for field in model._meta.concrete_fields}
            yield f"rows of {model.__name__}", json.dumps(values, ensure_ascii=False, default=str)
            if isinstance(row, AbstractBaseSession):
                yield "what sessions hold", json.dumps(row.get_decoded(), default=str)


def read_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, str]]:
    """What is written to be kept elsewhere: a backup."""
    copy = folder / "copy.sqlite3"
    if connection.vendor == "sqlite":
        database = {"ENGINE": connection.settings_dict["ENGINE"], "NAME": connection.settings_dict["NAME"]}
        monkeypatch.setattr(backup, "settings", SimpleNamespace(DATABASES={"default": database}))
        assert backup.write_backup(copy).runs == ANSWERS
        yield "a backup", copy.read_bytes().decode(errors="replace")


def read_pages(client: Client, run: Run) -> Iterator[tuple[str, str]]:
    """Everything that is shown or handed out, by address."""
    delivery = WebhookDelivery.objects.latest("pk").pk
    values = {
        "<run_id>": run.pk, "<step>": 1, "<number>": 1, "<flow_name>": run.flow.name, "<name>": run.flow.name,
        "<format>": "jsonl", "<part>": "request", "<delivery_id>": delivery, "<flow_id>": run.flow_id, "<index>": 1,
        "<app_label>": "runs", "<endpoint_id>": 1, "<object_id>": 1, "<id>": 1, "<content_type_id>": 1, "<url>": "x/",
    }  # fmt: skip
    addresses = {f"/{address}" for address in list_addresses() if "logout" not in address}
    addresses |= {f"/api/v1/{address}" for address in find_addresses()}
    addresses |= {"/crash/", "/nowhere/", "/runs/export/jsonl?with=attempts", "/runs/export/csv"}
    for address in sorted(addresses):
        for part, value in values.items():
            address = address.replace(part, str(value))
        yield address, read(client.get(address))
    yield "a bad host", read(client.get("/runs/", HTTP_HOST="evil.example"))
    metrics = client.get("/metrics", headers={"Authorization": f"Bearer {SECRETS['the token of the metrics']}"})
    assert metrics.status_code == 200
    yield "the metrics", read(metrics)


def read(answer: Any) -> str:
    content = b"".join(answer.streaming_content) if answer.streaming else answer.content
    return content.decode(errors="replace") + repr(answer.headers)


def read_commands(capsys: pytest.CaptureFixture[str]) -> Iterator[tuple[str, str]]:
    """What commands print."""
    capsys.readouterr()
    commands: list[tuple[str, Callable[[], Any]]] = [
        ("check", lambda: call_command("check", deploy=True)),
        ("workers", lambda: call_command("workers")),
        ("storage", lambda: call_command("storage")),
        ("export_flow", lambda: call_command("export_flow", Run.objects.latest("pk").flow.name)),
        ("dumpdata", lambda: call_command("dumpdata", exclude=["contenttypes"])),
    ]
    for name, command in commands:
        command()
        yield f"what “{name}” prints", "".join(capsys.readouterr())


def fail_to_sign_in(settings: Any) -> None:
    """Come back from a provider of OpenID Connect that answers with the secret of the client."""
    with run_provider() as provider:
        settings.AUTHENTICATION_BACKENDS = ["toolflow_site.openid.OpenIDBackend", *settings.AUTHENTICATION_BACKENDS]
        settings.TOOLFLOW_OIDC_ISSUER, settings.TOOLFLOW_OIDC_DOMAINS = provider.issuer, ["example.com"]
        settings.OIDC_RP_CLIENT_ID, settings.OIDC_RP_CLIENT_SECRET = CLIENT_ID, CLIENT_SECRET
        client = Client()
        way_back = provider.sign_in(client.get("/accounts/oidc/")["Location"])
        provider.is_down = True
        assert client.get(way_back)["Location"] == "/accounts/login/"
        assert "could not identify you" in client.get("/accounts/login/").content.decode()


@pytest.mark.parametrize(
    "key", [pytest.param("the provider's key", marks=pytest.mark.nightly), "a key that doesn't look like one"]
)
def test_a_planted_secret_is_nowhere(
    planted: None,
    model_server: ModelServer,
    receiver: Receiver,
    collector: Collector,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    log: io.StringIO,
    capsys: pytest.CaptureFixture[str],
    key: str,
) -> None:
    create_groups(apps=apps, using="default")
    settings.TOOLFLOW_OPENAI_API_KEY = SECRETS[key]
    settings.TOOLFLOW_OPENAI_BASE_URL = model_server.base_url
    model_server.app = provider = EchoingProvider()
    version = make_version(make_flow(make_step(max_retries=0, retry_window=0)))
    make_endpoint(receiver.url("/endpoint"), version)
    for way in range(ANSWERS):
        provider.way = way
        make_run(version, webhook_url=receiver.url())
        drain()
    tell_of_ended_runs()
    assert send_all() == len(receiver.received) == 2 * ANSWERS
    fail_to_sign_in(settings)
    client = Client(raise_request_exception=False)
    root = User.objects.create_superuser("root")
    client.force_login(root)
    runs = list(Run.objects.order_by("pk"))
    texts = [
        *read_pages(client, runs[-1]),
        *((page, read(client.get(page))) for run in runs for page in list_pages(run)),
        *read_rows(),
        *read_files(tmp_path, monkeypatch),
        *read_commands(capsys),
        *(("a webhook", f"{one.headers} {one.body.decode()}") for one in receiver.received),
        *(("a trace", str(span)) for span in collector.spans),
        ("the log", log.getvalue()),
    ]
    found = {secret for place, text in texts for secret in find_secrets(place, text)}
    assert not found, "\n".join(sorted(found))
    # These are stored nowhere, and shown once, when they are created.
    assert find_webhook_secrets(texts, runs[-1]) == set()
    # The places were really looked at, and hold what the provider said.
    assert [run.status for run in runs].count("succeeded") == USABLE
    for place in ("rows of Attempt", "a trace", "/api/v1/runs/"):
        assert any(place in name and "Echo: [key]" in text for name, text in texts), place
    for sign in ("_auth_user_id", "A view that fails", "webhook-signature"):
        assert any(sign in text for _, text in texts), sign


def list_pages(run: Run) -> list[str]:
    flow = f"/admin/flows/flow/{run.flow_id}/change/"
    return [f"/runs/{run.pk}/", f"/runs/{run.pk}.json", f"/api/v1/runs/{run.pk}/attempts", flow]
