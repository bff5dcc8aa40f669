"""A user's server that receives webhooks: real HTTP on loopback, with signatures checked by their own library."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from runs.webhooks.messages import derive_secret, fetch_installation_secret


@dataclass(frozen=True, slots=True)
class Received:
    """One request."""

    path: str
    headers: dict[str, str]
    """By names in lower case."""
    body: bytes

    def verify(self, secret: str | None = None) -> Any:
        """The message in it, if its signature is valid: by ``secret``, or by the installation's if none is given."""
        return Webhook(secret or derive_secret(fetch_installation_secret())).verify(self.body, self.headers)

    def is_signed_with(self, secret: str) -> bool:
        """Whether a receiver with that secret accepts it."""
        try:
            return bool(self.verify(secret))
        except WebhookVerificationError:
            return False


@dataclass
class Reply:
    """What it answers. ``before`` is called first, while the sender waits."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b"thanks"
    before: Callable[[], Any] | None = None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


class Receiver:
    """Answers each request with the next of ``replies``, and with the last one from then on."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.replies: list[Reply] = [Reply()]
        self.most_at_a_time = 0
        self._at_a_time = 0
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), self._make_handler())
        self.port: int = self._server.server_address[1]
        serve = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        serve.start()

    def url(self, path: str = "/hook", *, host: str = "127.0.0.1") -> str:
        """An address of this server."""
        return f"http://{host}:{self.port}{path}"

    def reply(self, *replies: Reply | int) -> None:
        """What to answer from now on."""
        self.replies = [Reply(status=one) if isinstance(one, int) else one for one in replies]

    def find_last(self, message_id: str) -> Received:
        """The last request of one message; messages that are due at the same time come in any order."""
        return next(one for one in reversed(self.received) if one.headers["webhook-id"] == message_id)

    def stop(self) -> None:
        """Receive no more."""
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        with self._lock:
            self._at_a_time += 1
            self.most_at_a_time = max(self.most_at_a_time, self._at_a_time)
            reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        body = request.rfile.read(int(request.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in request.headers.items()}
        with self._lock:
            self.received.append(Received(request.path, headers, body))
        if reply.before is not None:
            reply.before()
        with self._lock:
            self._at_a_time -= 1
        try:
            request.send_response(reply.status)
            for name, value in {"content-length": str(len(reply.body)), **reply.headers}.items():
                request.send_header(name, value)
            request.end_headers()
            request.wfile.write(reply.body)
        except OSError:
            pass  # The sender has gone away.

    def _make_handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver._answer(self)

            do_GET = do_POST  # noqa: N815  # the name that the server calls

            def log_message(self, format: str, *args: Any) -> None:
                """Says nothing."""

        return Handler


@pytest.fixture
def receiver(settings: Any) -> Iterator[Receiver]:
    """A receiver that webhooks may reach."""
    found = Receiver()
    settings.TOOLFLOW_WEBHOOK_ALLOW = [f"127.0.0.1:{found.port}"]
    yield found
    found.stop()
