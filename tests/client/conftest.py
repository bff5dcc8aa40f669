"""The command ``toolflow`` in this process, against replies that a test gives or against the site."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import httpx2
import pytest
from django.apps import apps
from django.test import Client
from typer.testing import CliRunner

from runs.access_groups import create_groups
from runs.client import bulk, runs, server
from runs.client.__main__ import main
from tests.api.asking import create_token, make_user
from tests.moved_clock import SleptClock

Reply = httpx2.Response | BaseException
NO_RUNS: dict[str, Any] = {"items": [], "next": None}


def answer(document: Any, status: int = 200) -> httpx2.Response:
    return httpx2.Response(status, json=document)


def refuse(status: int, kind: str = "", errors: Any = (), retry_after: str = "") -> httpx2.Response:
    """A problem document that says “This is” and its status."""
    problem = {"type": f"urn:toolflow:problem:{kind}", "detail": f"This is {status}.", "errors": errors}
    headers = {"Content-Type": "application/problem+json", "Retry-After": retry_after}
    return httpx2.Response(status, content=json.dumps(problem), headers=headers)


class Done(NamedTuple):
    """What a command left behind."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Terminal:
    """Where a user types commands; ``replies`` is what the server is going to answer, ``asked`` what it was asked."""

    def __init__(self) -> None:
        self.clock = SleptClock()
        self.replies: list[Reply] = []
        self.asked: list[httpx2.Request] = []

    def reply(self, request: httpx2.Request) -> httpx2.Response:
        request.read()
        self.asked.append(request)
        reply = self.replies.pop(0)
        if isinstance(reply, BaseException):
            raise reply
        return reply

    def run(self, *arguments: str, stdin: str = "", types: str | None = None) -> Done:
        """Run a command to its end; ``types`` is what a user types at it."""
        with CliRunner().isolation(input=stdin if types is None else types) as (out, err, _):
            if types is not None:
                sys.stdin.isatty = lambda: True  # type: ignore[method-assign]  # as if it were one
            with pytest.raises(SystemExit) as caught:
                main(arguments)
            sys.stdout.flush()
            sys.stderr.flush()
            status = caught.value.code
            done = Done(status if isinstance(status, int) else -1, out.getvalue().decode(), err.getvalue().decode())
        assert "Traceback" not in done.err
        return done


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Terminal:
    """The terminal of a user whose server gives the replies of a test."""
    terminal = Terminal()
    monkeypatch.chdir(tmp_path)
    for module in (server, runs, bulk):
        monkeypatch.setattr(module, "time", terminal.clock)
    monkeypatch.setenv("TOOLFLOW_URL", "http://toolflow.test")
    monkeypatch.setenv("TOOLFLOW_TOKEN", "tf_0123")
    monkeypatch.setattr(httpx2.HTTPTransport, "handle_request", lambda _, request: terminal.reply(request))
    return terminal


def ask_site(request: httpx2.Request) -> httpx2.Response:
    """What the site answers."""
    request.read()
    headers = {name: value for name, value in request.headers.items() if name != "content-length"}
    kind = headers.get("content-type", "")
    found = Client(raise_request_exception=False).generic(
        request.method, request.url.raw_path.decode(), request.content, content_type=kind, headers=headers
    )
    return httpx2.Response(found.status_code, headers=list(found.headers.items()), content=found.getvalue())


@pytest.fixture
def sign_in(terminal: Terminal, db: None, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Terminal]:
    """Gives the terminal of a member of a group whose server is the site itself."""
    create_groups(apps=apps, using="default")
    monkeypatch.setenv("TOOLFLOW_URL", "http://testserver")
    monkeypatch.setattr(terminal, "reply", ask_site)

    def sign_in(group: str) -> Terminal:
        monkeypatch.setenv("TOOLFLOW_TOKEN", create_token(make_user(group.lower(), group)))
        return terminal

    return sign_in


@pytest.fixture
def site(sign_in: Callable[[str], Terminal]) -> Terminal:
    """The terminal of an editor whose server is the site itself."""
    return sign_in("Editor")
