"""Asking the API as scripts do."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django.contrib.auth.models import Group, User
from django.db import connection, connections
from django.http import HttpResponse
from django.test import Client

from flows.engine.json_values import dump_json
from runs.models import ApiToken, TokenScope

V1 = "/api/v1/"
SIGN_IN_QUERIES = 3
"""Those that let a caller in who sends a token: the token with its owner, the owner's permissions and the groups'."""


class Script:
    """A user's script: it sends a token, if it has one, and JSON."""

    def __init__(self, token: str | None = None) -> None:
        self._client = Client(raise_request_exception=False)
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    def get(self, path: str, **headers: str) -> HttpResponse:
        return self.ask("GET", path, **headers)

    def post(self, path: str, body: Any = None, **headers: str) -> HttpResponse:
        return self.ask("POST", path, body, **headers)

    def put(self, path: str, body: Any = None, **headers: str) -> HttpResponse:
        return self.ask("PUT", path, body, **headers)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> HttpResponse:
        """The answer; ``body`` is sent as JSON, bytes as they are. Headers are named with underscores."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        content_type = sent.pop("Content-Type", "application/json")
        data = body if isinstance(body, bytes) else b"" if body is None else dump_json(body).encode()
        # Addresses that answers hold can be asked as they are.
        path = path.removeprefix("http://testserver")
        address = path if path.startswith("/") else V1 + path
        answer: Any = self._client.generic(
            method, address, data, content_type=content_type, headers={**self._headers, **sent}
        )
        found: HttpResponse = answer
        return found


def make_user(name: str, *groups: str) -> User:
    """A user who is in these groups."""
    user, _ = User.objects.get_or_create(username=name)
    user.groups.set(Group.objects.filter(name__in=groups))
    return user


def create_token(user: User, scope: TokenScope = TokenScope.EDIT, **fields: Any) -> str:
    """What a token of that user is sent as."""
    values = {"name": f"{user.get_username()} {scope}", "scope": scope, "expiry": None, **fields}
    _, token = ApiToken.objects.create(user=user, **values)
    sent: str = token
    return sent


def read_problem(answer: HttpResponse) -> dict[str, Any]:
    """The problem document in an answer, which must be one and say what the answer's status says."""
    assert answer["Content-Type"] == "application/problem+json", (answer.status_code, answer.content[:300])
    document: dict[str, Any] = json.loads(answer.content)
    assert document.keys() >= {"type", "title", "status", "detail"}, document
    assert document.keys() <= {"type", "title", "status", "detail", "request_id", "errors"}, document
    assert document["status"] == answer.status_code
    assert document["type"].startswith("urn:toolflow:problem:")
    for error in document.get("errors", ()):
        assert error.keys() in ({"detail", "pointer"}, {"detail", "parameter"}), error
    return document


def read(script: Script, path: str) -> Any:
    """What is answered, which must be a document."""
    answer = script.get(path)
    assert answer.status_code == 200, answer.content
    assert answer["Content-Type"] == "application/json"
    return json.loads(answer.content)


def walk(script: Script, address: str, way: str = "next") -> Iterator[list[Any]]:
    """The items of each page, from that address on."""
    following: str | None = address
    while following is not None:
        page = read(script, following)
        yield page["items"]
        following = page[way]


def list_ids(script: Script, address: str) -> list[int]:
    """The ids of the items of a list."""
    return [item["id"] for item in read(script, address)["items"]]


def ask_at_once(sends: Sequence[Callable[[], HttpResponse]]) -> list[Any]:
    """The answers to requests that threads of their own send in the same moment."""
    gate = threading.Barrier(len(sends))

    def begin(send: Callable[[], HttpResponse]) -> HttpResponse:
        try:
            connection.ensure_connection()
            gate.wait(timeout=30)
            return send()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(sends)) as pool:
        return list(pool.map(begin, sends))


def settle(script: Script) -> None:
    """Have the use of the token noted, so that what follows costs no query for it."""
    script.get("nowhere")


def read_json(answer: HttpResponse, status: int = 200) -> Any:
    """The document in an answer, which must have that status."""
    assert answer.status_code == status, answer.content.decode()[:500]
    return json.loads(answer.content)


def list_wrong(answer: HttpResponse, status: int) -> list[str]:
    """The pointers or parameters that a problem names, which must have that status."""
    problem = read_problem(answer)
    assert problem["status"] == status, problem
    return [error["pointer"] if "pointer" in error else error["parameter"] for error in problem["errors"]]


def read_type(answer: HttpResponse) -> tuple[int, str]:
    """The status of a problem and its type."""
    problem = read_problem(answer)
    return problem["status"], problem["type"].removeprefix("urn:toolflow:problem:")
