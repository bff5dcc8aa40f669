"""The connections to a provider, against servers that speak what tests make them speak."""

from __future__ import annotations

import asyncio
import json
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from flows.engine.errors import ModelError, ModelErrorCode
from flows.engine.openai_client import OpenAIClient
from flows.engine.providers import ModelReply
from tests.engine.executions import make_request

KEY = "sk-proj-1234567890abcdefSECRET"
BODY = b'{"id": "1", "choices": []}'


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


class WireServer:
    """Answers every connection with ``answer`` once a whole request has come in, and closes it."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.requests: list[bytes] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next((line.split(b":")[1] for line in head.lower().split(b"\r\n") if b"content-length:" in line), b"0")
        self.requests.append(head + await reader.readexactly(int(length)))
        writer.write(self.answer)
        await writer.drain()
        writer.close()


@asynccontextmanager
async def serving(answer: bytes, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[WireServer]:
    wire = WireServer(answer)
    server = await asyncio.start_server(wire.serve, "127.0.0.1", 0, ssl=tls)
    wire.port = server.sockets[0].getsockname()[1]
    try:
        yield wire
    finally:
        server.close()
        await server.wait_closed()


async def send(base_url: str, request: dict[str, Any] | None = None, *, timeout: float = 30.0) -> ModelReply:
    client = OpenAIClient(api_key=KEY, base_url=base_url)
    try:
        return await client.complete(request or make_request(), idempotency_key="run-1-1", timeout=timeout)
    finally:
        await client.close()


async def fail(call: Awaitable[object]) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await call
    return caught.value


async def ask(answer: bytes, send: Callable[[str], Awaitable[ModelReply]] = send) -> ModelReply:
    async with serving(answer) as wire:
        return await send(f"http://127.0.0.1:{wire.port}/v1")


def chunked(*chunks: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\ncontent-len",
        b"HTTP/1.1 200 OK\r\nx-long: " + b"a" * 200_000 + b"\r\n\r\n" + BODY,
        b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n" + BODY,
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunked(BODY),
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n" + BODY,
    ],
)
async def test_an_answer_that_is_broken_is_an_error_that_may_be_tried_again(answer: bytes) -> None:
    error = await fail(ask(answer))
    assert error.code in {ModelErrorCode.CONNECTION, ModelErrorCode.UNREADABLE} and error.code.is_retryable
    assert "127.0.0.1" in error.message and len(error.message) < 1_000


@pytest.mark.parametrize("status", [302, 307])
async def test_a_redirect_is_reported_and_not_followed(status: int) -> None:
    async with serving(BODY) as elsewhere:
        answer = (
            f"HTTP/1.1 {status} Moved\r\nlocation: http://127.0.0.1:{elsewhere.port}/v1\r\ncontent-length: 0\r\n\r\n"
        )
        error = await fail(ask(answer.encode()))
    assert error.status == status
    assert elsewhere.requests == []


async def test_what_is_sent_is_one_request_with_the_key_and_the_attempt() -> None:
    async with serving(b"HTTP/1.1 200 OK\r\n\r\n" + BODY) as wire:
        await send(f"http://127.0.0.1:{wire.port}/v1")
    head, _, content = wire.requests[0].partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    assert lines[0] == b"post /v1/chat/completions http/1.1"
    for line in (
        b"idempotency-key: run-1-1",
        b"content-type: application/json",
        f"host: 127.0.0.1:{wire.port}".encode(),
    ):
        assert lines.count(line) == 1
    assert sum(line.startswith(b"authorization: bearer sk-proj-") for line in lines) == 1
    assert b"x-stainless" not in head.lower(), "nothing is told of this machine"
    assert len({line.partition(b":")[0] for line in lines}) == len(lines), "a header was sent twice"
    assert json.loads(content) == make_request()


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "ALL_PROXY"])
async def test_calls_go_through_the_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    async with serving(b"HTTP/1.1 200 OK\r\n\r\n" + BODY) as proxy:
        monkeypatch.setenv(variable, f"http://me:pass@127.0.0.1:{proxy.port}")
        await send("http://provider.example/v1")
    assert proxy.requests[0].startswith(b"POST http://provider.example/v1/chat/completions HTTP/1.1\r\n")
    assert b"proxy-authorization: basic bwu6cgfzcw==" in proxy.requests[0].lower()


@pytest.mark.parametrize("base_url", ["http://provider.example/v1", "https://provider.example/v1"])
async def test_a_proxy_that_refuses_is_an_error_that_hides_its_password(
    monkeypatch: pytest.MonkeyPatch, base_url: str
) -> None:
    async with serving(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n") as proxy:
        monkeypatch.setenv("ALL_PROXY", f"http://me:pass-word@127.0.0.1:{proxy.port}")
        error = await fail(send(base_url))
    assert "407" in error.message
    assert "pass-word" not in error.message


async def test_a_proxy_of_another_kind_says_what_to_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://me:pass-word@127.0.0.1:1080")
    error = await fail(send("https://provider.example/v1"))
    assert error.code is ModelErrorCode.NOT_CONFIGURED
    assert "socks5://" in error.message and "pass-word" not in error.message


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate of 127.0.0.1, signed by itself, in one file with its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    path = tmp_path / "certificate.pem"
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", "-"]
    made = subprocess.run([openssl, "req", "-x509", *key, "-subj", "/CN=127.0.0.1"], capture_output=True, check=True)
    path.write_bytes(made.stdout)
    return path


async def test_a_certificate_without_a_known_issuer_is_refused(certificate: Path) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    async with serving(b"HTTP/1.1 200 OK\r\n\r\n" + BODY, tls=tls) as wire:
        error = await fail(send(f"https://127.0.0.1:{wire.port}/v1"))
    assert error.code is ModelErrorCode.CONNECTION
    assert "certificate verify failed" in error.message
    assert wire.requests == []
