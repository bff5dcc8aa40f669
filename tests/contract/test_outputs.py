"""What leaves the installation: exports, webhooks and problem documents, as scripts and receivers read them."""

from __future__ import annotations

import csv
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import StringIO
from typing import Any

import pytest
from standardwebhooks import Webhook

from tests.contract.golden import check_golden, read_golden
from tests.contract.site import LOCAL_FLOW, Api, create_token, read_text, run_local_flow

pytestmark = pytest.mark.django_db(transaction=True)


def _list_keys(value: Any) -> str:
    """The keys of a document, sorted, those of inner objects in brackets; of lists those of the last one."""
    if isinstance(value, list):
        value = value[-1] if value else None
    if not isinstance(value, dict):
        return ""
    inner = {key: _list_keys(part) for key, part in sorted(value.items())}
    return " ".join(f"{key}({keys})" if keys else key for key, keys in inner.items())


def test_exports_have_the_same_columns_and_keys() -> None:
    api = Api()
    run_local_flow(api, "ab", labels=["nightly"])
    table = api.send("GET", "runs/export?format=csv")
    text = read_text(table)
    header, row = csv.reader(StringIO(text.removeprefix("\ufeff"), newline=""))
    assert len(header) == len(row)
    files = {"csv": {"type": table["Content-Type"], "has_mark": text.startswith("\ufeff"), "columns": " ".join(header)}}
    for attempts in ("none", "all"):
        response = api.send("GET", f"runs/export?format=jsonl&attempts={attempts}")
        (line,) = read_text(response).splitlines()
        files[f"jsonl {attempts}"] = {"type": response["Content-Type"], "keys": _list_keys(json.loads(line))}
    check_golden("golden/exports.yaml", files)


@pytest.fixture
def receiver(settings: Any) -> Iterator[tuple[str, list[tuple[Any, bytes]]]]:
    """The address of a receiver of webhooks, and the headers and bodies that came."""
    received: list[tuple[Any, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append((self.headers, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            """Keeps silent."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    settings.TOOLFLOW_WEBHOOK_ALLOW = [f"127.0.0.1:{server.server_port}"]
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/hook", received
    server.shutdown()
    server.server_close()


def test_receivers_get_the_same_message_and_can_check_it(receiver: tuple[str, list[tuple[Any, bytes]]]) -> None:
    url, received = receiver
    api = Api()
    api.fetch("PUT", "flows/count", LOCAL_FLOW)
    endpoint = api.fetch("POST", "webhook-endpoints", {"webhook_url": url, "flow": "count"})
    run_local_flow(api, "ab")
    ((headers, body),) = received
    Webhook(endpoint["secret"]).verify(body, dict(headers))
    message = json.loads(body)
    names = sorted(name.lower() for name in headers if name.lower().startswith(("webhook-", "content-type")))
    shown = {"headers": names, "type": message["type"], "keys": _list_keys(message)}
    check_golden("golden/webhook.yaml", shown)


def test_problems_have_the_same_types() -> None:
    api = Api()
    run = run_local_flow(api, "abcd")
    clients = {"admin": api, "reader": Api(create_token("admin", scope="read")), "nobody": Api("tf_wrong")}
    found = []
    for case in read_golden("golden/problems.yaml"):
        method, path = case["ask"].replace("{run}", str(run)).split(" ")
        headers = case.get("headers", {})
        kind = headers.get("Content-Type", "application/json")
        sent = {name: value for name, value in headers.items() if name != "Content-Type"}
        body = LOCAL_FLOW if case.get("body") == "flow" else case.get("body")
        response = clients[case.get("by", "admin")].send(method, path, body, kind=kind, headers=sent)
        assert response["Content-Type"] == "application/problem+json", (case, response.status_code, response.content)
        document = response.json()
        errors = [error.get("pointer", error.get("parameter")) for error in document.get("errors", [])]
        shown = {"status": response.status_code, "type": document["type"].removeprefix("urn:toolflow:problem:")}
        asked = {name: value for name, value in case.items() if name not in ("status", "type", "errors")}
        found.append({**asked, **shown, **({"errors": errors} if errors else {})})
    check_golden("golden/problems.yaml", found)
