"""An installation as its users meet it: the API, commands, queued work, and rows by plain SQL."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from io import StringIO
from typing import Any

from django.contrib.auth.models import User
from django.core.cache import caches
from django.core.management import call_command
from django.db import connection
from django.http.response import HttpResponseBase
from django.test import Client
from django.utils.module_loading import import_string
from django_q.models import OrmQ

JSON, YAML = "application/json", "application/yaml"


def create_token(name: str = "admin", *, scope: str = "edit") -> str:
    """A token of that user, who is made an administrator if new."""
    if not User.objects.filter(username=name).exists():
        User.objects.create_superuser(name)
    out = StringIO()
    call_command("create_token", name, "--name", scope, "--scope", scope, stdout=out, stderr=StringIO())
    return out.getvalue().strip()


class Api:
    """A client of the REST API with a token."""

    def __init__(self, token: str | None = None) -> None:
        self._client = Client(raise_request_exception=False)
        self._headers = {"Authorization": f"Bearer {create_token() if token is None else token}"}

    def send(
        self, method: str, path: str, body: Any = None, *, kind: str = JSON, headers: Mapping[str, str] | None = None
    ) -> Any:
        """The response to a request; ``body`` is sent as JSON, text as it is."""
        data = body if isinstance(body, str) else "" if body is None else json.dumps(body)
        caches["throttling"].clear()
        sent = {**self._headers, **(headers or {})}
        return self._client.generic(method, f"/api/v1/{path}", data.encode(), content_type=kind, headers=sent)

    def fetch(self, method: str, path: str, body: Any = None, *, kind: str = JSON) -> Any:
        """The document in a response that must be a success."""
        response = self.send(method, path, body, kind=kind)
        assert response.status_code < 300, (path, response.status_code, response.content.decode()[:1000])
        return response.json()

    def find_errors(self, body: Any, *, kind: str = JSON) -> list[dict[str, str]]:
        """What ``flows/validate`` finds wrong with a flow; a response without a list of errors is one error."""
        response = self.send("POST", "flows/validate", body, kind=kind)
        document = response.json()
        if response.status_code == 200:
            return []
        return document.get("errors") or [{"detail": document["detail"], "pointer": document["type"]}]


def read_text(response: HttpResponseBase) -> str:
    """The text of a response, streamed or not."""
    content = b"".join(response) if response.streaming else response.content  # type: ignore[attr-defined]
    return content.decode()


def work_off_queue() -> None:
    """Do what the messages on the queue ask for, as a worker would, until none is left."""
    while (message := OrmQ.objects.order_by("pk").first()) is not None:
        task = message.task
        message.delete()
        function = import_string(task["func"]) if isinstance(task["func"], str) else task["func"]
        is_drain = "leaves_when_idle" in inspect.signature(function).parameters
        function(*task["args"], **task["kwargs"], **({"leaves_when_idle": True} if is_drain else {}))


def select_rows(sql: str, *values: Any) -> list[dict[str, Any]]:
    """Rows by column name."""
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


LOCAL_FLOW: dict[str, Any] = {
    "name": "count",
    "title": "Count",
    "steps": [
        {
            "name": "Count",
            "compute": "{'text': input.text, 'length': size(input.text)}",
            "audits": [
                {
                    "name": "Long",
                    "rule": "output.length > 3",
                    "message": "'Too short.'",
                    "path": "'/length'",
                    "severity": "high",
                }
            ],
        }
    ],
}
"""A flow without a model: an input with a short text fails it."""


ASK_FLOW: dict[str, Any] = {
    "name": "ask",
    "model": "gpt-4.1",
    "steps": [
        {
            "name": "Ask",
            "tool_name": "ask",
            "output_schema": {"type": "object", "properties": {}, "required": [], "additionalProperties": False},
            "max_retries": 0,
            "retry_window": 0,
        }
    ],
}
"""A flow that asks the model once."""


def run_local_flow(api: Api, text: str, **options: Any) -> int:
    """The number of a run of ``LOCAL_FLOW`` that has ended."""
    api.fetch("PUT", "flows/count", LOCAL_FLOW)
    run = api.fetch("POST", "runs", {"flow": "count", "input": {"text": text}, **options})
    work_off_queue()
    number: int = run["id"]
    return number
