"""The edge of the ASGI application: what proxies say, the path below which everything lies, and sizes of bodies."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from django.test import Client
from django.urls import resolve

from runs.logs.formatting import JsonLines
from toolflow_site import edge
from toolflow_site.edge import build_edge
from toolflow_site.probes import PROBES

PROXY, NEIGHBOUR = "10.0.0.2", "10.0.0.9"


async def tell(scope: Any, receive: Any, send: Any) -> None:
    """An application that answers with what it sees."""
    size = 0
    while (message := await receive()).get("more_body"):
        size += len(message["body"])
    seen = {
        "client": scope["client"][0],
        "scheme": scope["scheme"],
        "path": scope["path"],
        "size": size + len(message.get("body", b"")),
    }
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": json.dumps(seen).encode()})


async def ask(
    path: str = "/", *, peer: str = PROXY, headers: dict[str, str] | None = None, content: Any = None, **options: Any
) -> tuple[int, Any]:
    """Status and document that ``peer`` gets from ``tell`` behind an edge."""
    transport = httpx2.ASGITransport(build_edge(tell, **{"most_bytes": 1000, **options}), client=(peer, 5000))
    async with httpx2.AsyncClient(transport=transport, base_url="http://flows.example.com") as client:
        answer = await client.post(path, headers=headers, content=content)
        return answer.status_code, answer.json()


class TestProxies:
    HEADERS = {"X-Forwarded-For": "203.0.113.7", "X-Forwarded-Proto": "https"}

    async def test_a_named_proxy_is_believed(self) -> None:
        for proxies in (["10.0.0.2"], ["192.0.2.1", "10.0.0.0/29"]):
            _, seen = await ask(headers=self.HEADERS, trusted_proxies=proxies)
            assert (seen["client"], seen["scheme"]) == ("203.0.113.7", "https")

    async def test_nobody_else_is(self) -> None:
        for proxies in ([], ["10.0.0.2"]):
            _, seen = await ask(headers=self.HEADERS, trusted_proxies=proxies, peer=NEIGHBOUR)
            assert (seen["client"], seen["scheme"]) == (NEIGHBOUR, "http")

    async def test_what_a_client_writes_before_its_proxy_counts_for_nothing(self) -> None:
        headers = {"X-Forwarded-For": "127.0.0.1, 198.51.100.4, 203.0.113.7"}
        _, seen = await ask(headers=headers, trusted_proxies=[PROXY])
        assert seen["client"] == "203.0.113.7"

    async def test_proxies_behind_proxies_are_passed_over(self) -> None:
        headers = {"X-Forwarded-For": "198.51.100.4, 203.0.113.7, 10.0.0.3"}
        _, seen = await ask(headers=headers, trusted_proxies=["10.0.0.0/29"])
        assert seen["client"] == "203.0.113.7"


class TestSubPath:
    @pytest.mark.parametrize("path", ["/toolflow/runs/", "/runs/"])
    async def test_the_path_is_the_one_that_browsers_know_whatever_the_proxy_does(self, path: str) -> None:
        _, seen = await ask(path, url_prefix="/toolflow")
        assert seen["path"] == "/toolflow/runs/"

    async def test_a_name_that_only_begins_alike_is_not_the_prefix(self) -> None:
        _, seen = await ask("/toolflowers", url_prefix="/toolflow")
        assert seen["path"] == "/toolflow/toolflowers"


class TestBodies:
    async def test_as_much_as_is_allowed_goes_through(self) -> None:
        status, seen = await ask(content=b"x" * 1000)
        assert (status, seen["size"]) == (200, 1000)

    @pytest.mark.parametrize("is_told", [True, False])
    async def test_more_is_refused_whether_or_not_the_length_is_told(self, is_told: bool) -> None:
        async def parts() -> AsyncIterator[bytes]:
            for _ in range(1001):
                yield b"x"

        status, problem = await ask(content=b"x" * 1001 if is_told else parts())
        assert (status, problem["type"]) == (413, "urn:toolflow:problem:too-large")
        assert problem["detail"] == "The body is larger than 1,000 bytes, the limit here."

    @pytest.mark.parametrize("offered", [None, "from-the-proxy-1", "no\tgood"])
    async def test_a_refusal_names_the_request_as_the_log_does(
        self,
        settings: Any,
        caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch,
        offered: str | None,
    ) -> None:
        settings.TOOLFLOW_ACCESS_LOG = "all"
        # All tests of a process share this handler.
        monkeypatch.setattr(caplog.handler, "formatter", JsonLines())
        caplog.set_level("INFO")
        transport = httpx2.ASGITransport(build_edge(tell, most_bytes=10))
        headers = {"X-Request-ID": offered} if offered else {}
        async with httpx2.AsyncClient(transport=transport, base_url="http://flows.example.com") as client:
            answer = await client.post("/api/v1/runs", headers=headers, content=b"x" * 11)
        request_id = answer.headers["X-Request-ID"]
        assert answer.json()["request_id"] == request_id
        assert (request_id == offered) == (offered == "from-the-proxy-1") and len(request_id) >= 8
        (line,) = map(json.loads, caplog.text.splitlines())
        told = [line[name] for name in ("event", "method", "path", "status", "request_id")]
        assert told == ["request.answered", "POST", "/api/v1/runs", 413, request_id]


class TestStrangers:
    """Those who name no session and no token; nobody has looked yet whether it is a good one."""

    MEGABYTE = b"x" * 1_000_000

    @pytest.mark.parametrize("headers", [{}, {"Cookie": "csrftoken=sessionid; theme=dark"}])
    @pytest.mark.parametrize("is_told", [True, False])
    async def test_they_send_little(self, headers: dict[str, str], is_told: bool) -> None:
        async def parts() -> AsyncIterator[bytes]:
            yield self.MEGABYTE
            yield b"x"

        content = self.MEGABYTE + b"x" if is_told else parts()
        status, problem = await ask(content=content, headers=headers, most_bytes=2_000_000)
        assert (status, problem["type"]) == (413, "urn:toolflow:problem:too-large")
        assert "larger than 1,000,000 bytes, the limit for whoever names no session and no token" in problem["detail"]
        assert (await ask(content=self.MEGABYTE, headers=headers, most_bytes=2_000_000))[0] == 200

    @pytest.mark.parametrize("headers", [{"Cookie": "theme=dark; sessionid=abc"}, {"Authorization": "Bearer tf_abc"}])
    async def test_others_may_send_more(self, headers: dict[str, str]) -> None:
        status, seen = await ask(content=self.MEGABYTE + b"x", headers=headers, most_bytes=2_000_000)
        assert (status, seen["size"]) == (200, 1_000_001)

    async def test_a_body_that_does_not_arrive_in_time_is_waited_for_no_longer(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(edge, "STRANGER_SECONDS", 0)

        async def parts() -> AsyncIterator[bytes]:
            yield b"x"
            await asyncio.Event().wait()

        status, problem = await ask(content=parts())
        assert (status, problem["type"]) == (408, "urn:toolflow:problem:body-too-slow")


class TestManyBodiesAtOnce:
    async def test_they_fill_no_more_than_a_process_may_hold_and_small_ones_still_go_through(self) -> None:
        """Ten of the largest size are held; what comes then is refused until one of them is done with."""
        are_held, go_on = asyncio.Event(), asyncio.Event()
        held = 0

        async def hold(scope: Any, receive: Any, send: Any) -> None:
            nonlocal held
            while (await receive()).get("more_body"):
                pass
            held += 1
            if held == 30:
                are_held.set()
            if scope["path"] == "/held":
                await go_on.wait()
            await tell(scope, done, send)

        async def done() -> Any:
            return {"type": "http.request"}

        application = build_edge(hold, most_bytes=edge.SMALL_BODY // 2 * 3)
        transport = httpx2.ASGITransport(application)
        body = b"x" * (edge.SMALL_BODY // 2 * 3)
        async with httpx2.AsyncClient(transport=transport, base_url="http://flows.example.com") as client:
            waiting = [asyncio.create_task(client.post("/held", content=body)) for _ in range(30)]
            await are_held.wait()
            answer = await client.post("/", content=body)
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
            assert "Too many large bodies arrive at once" in answer.json()["detail"]
            assert (await client.post("/", content=body[: edge.SMALL_BODY])).status_code == 200
            go_on.set()
            assert {answer.status_code for answer in await asyncio.gather(*waiting)} == {200}
            assert (await client.post("/", content=body)).status_code == 200


class TestProbes:
    def test_they_answer_under_any_name_and_without_tls(self, settings: Any, client: Client) -> None:
        settings.SECURE_SSL_REDIRECT = True
        settings.ALLOWED_HOSTS = ["flows.example.com"]
        answer = client.get("/healthz", headers={"host": "10.1.2.3:8000"})
        assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
        assert answer["Content-Security-Policy"] and answer["X-Content-Type-Options"] == "nosniff"
        assert client.get("/accounts/login/", headers={"host": "flows.example.com"}).status_code == 301
        assert client.get("/accounts/login/", headers={"host": "10.1.2.3:8000"}, secure=True).status_code == 400

    def test_they_are_those_of_the_addresses(self) -> None:
        assert {path: resolve(path).func for path in PROBES} == PROBES
