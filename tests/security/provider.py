"""A provider of OpenID Connect on loopback, with a key of its own."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urljoin, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

TIMEOUT = 30.0
CLIENT_ID, CLIENT_SECRET = "toolflow", "a secret of the client"


@cache
def make_key(number: int = 0) -> rsa.RSAPrivateKey:
    """A key to sign with: making one takes a while."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


class FakeProvider:
    """Says of every user what ``claims`` says; ``token`` replaces parts of the id token."""

    def __init__(self, port: int) -> None:
        self.issuer = self.described_issuer = f"http://127.0.0.1:{port}"
        self.key = make_key()
        self.signs_with = self.key
        self.claims: dict[str, Any] = {"sub": "1", "email": "olga@example.com", "email_verified": True}
        self.token: dict[str, Any] = {}
        self.is_down = False
        self.asked: list[str] = []
        """The paths of what it was asked for by us, in order."""
        self.arrived = threading.Semaphore(0)
        self.goes_on = threading.Event()
        """Nothing is answered while this is not set; ``arrived`` counts what waits."""
        self.goes_on.set()
        self._codes: dict[str, dict[str, str]] = {}

    def sign_in(self, address: str) -> str:
        """What the provider adds to the address to come back to, for a user who was sent to ``address``."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        assert address.startswith(f"{self.issuer}/authorize?")
        assert query["client_id"] == CLIENT_ID and query["code_challenge_method"] == "S256"
        code = f"code-{len(self._codes)}"
        self._codes[code] = query
        return f"{urlsplit(query['redirect_uri']).path}?code={code}&state={query['state']}"

    def answer(self, path: str, form: dict[str, str]) -> tuple[int, Any]:
        """The status and the document for a request."""
        if self.is_down:
            return 503, {"error": CLIENT_SECRET}
        match path:
            case "/.well-known/openid-configuration":
                ends = {"authorization": "authorize", "token": "token", "userinfo": "userinfo"}
                document = {f"{name}_endpoint": f"{self.issuer}/{end}" for name, end in ends.items()}
                return 200, {"issuer": self.described_issuer, "jwks_uri": f"{self.issuer}/keys", **document}
            case "/keys":
                public = json.loads(RSAAlgorithm.to_jwk(self.key.public_key()))
                return 200, {"keys": [{**public, "kid": "one", "alg": "RS256", "use": "sig"}]}
            case "/userinfo":
                return 200, self.claims
            case "/token":
                return self._issue(form)
        return 404, {}

    def _issue(self, form: dict[str, str]) -> tuple[int, Any]:
        asked = self._codes.pop(form["code"], None)
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if asked is None or form["client_secret"] != CLIENT_SECRET or asked["code_challenge"] != challenge:
            return 400, {"error": "invalid_grant"}
        now = int(time.time())
        payload = {"iss": self.issuer, "aud": CLIENT_ID, "sub": "1", "iat": now, "exp": now + 60}
        payload = {**payload, "nonce": asked["nonce"], **self.token}
        return 200, {
            "access_token": "access",
            "id_token": jwt.encode(payload, self.signs_with, "RS256", headers={"kid": "one"}),
        }


@contextmanager
def run_provider() -> Iterator[FakeProvider]:
    """A provider that is at work."""
    provider: FakeProvider

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.startswith("/authorize?"):
                self._show_page()
            else:
                self._answer({})

        def _show_page(self) -> None:
            """What a user sees who was sent there with a browser."""
            asked = provider.issuer + self.path
            (back,) = parse_qs(urlsplit(asked).query)["redirect_uri"]
            address = urljoin(back, provider.sign_in(asked))
            self._send(200, "text/html", f'<a href="{escape(address)}">Yes, that is me</a>'.encode())

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self._answer({name: values[0] for name, values in parse_qs(body).items()})

        def _answer(self, form: dict[str, str]) -> None:
            provider.asked.append(self.path)
            provider.arrived.release()
            provider.goes_on.wait(TIMEOUT)
            status, document = provider.answer(self.path, form)
            self._send(status, "application/json", json.dumps(document).encode())

        def _send(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider = FakeProvider(server.server_port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield provider
    finally:
        provider.goes_on.set()
        server.shutdown()
        thread.join()
        server.server_close()
