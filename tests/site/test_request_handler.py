"""The web server's side: what proxies say, the path of the installation, bodies, and requests at the same time."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2
import pytest
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from django.core.signals import request_finished, request_started
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.test import Client
from django.urls import path, resolve
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from runs.health import show_alive
from runs.observability.log_lines import JsonLines
from runs.request_slots import release_slot
from toolflow_site import request_handler
from toolflow_site.middleware import PROBE_VIEWS
from toolflow_site.request_handler import RequestHandler, SubPath

pytestmark = [pytest.mark.urls(__name__)]

MEGABYTE = b"x" * 1_000_000
TIMEOUT = 30.0


class Meeting:
    """What the views below wait for."""

    together: threading.Barrier
    working: int
    most: int
    holding: threading.Semaphore
    held: threading.Event
    closed: threading.Event


def show_request(request: HttpRequest) -> JsonResponse:
    seen = {"client": request.META["REMOTE_ADDR"], "scheme": request.scheme, "path": request.path}
    return JsonResponse({**seen, "size": len(request.body), "thread": threading.get_ident()})


def count_working(request: HttpRequest) -> HttpResponse:
    Meeting.working += 1
    Meeting.together.wait(TIMEOUT)
    Meeting.most = max(Meeting.most, Meeting.working)
    Meeting.together.wait(TIMEOUT)
    Meeting.working -= 1
    return HttpResponse()


def wait_aside(request: HttpRequest) -> HttpResponse:
    with release_slot():
        Meeting.together.wait(TIMEOUT)
    return HttpResponse()


def hold(request: HttpRequest) -> HttpResponse:
    Meeting.holding.release()
    Meeting.held.wait(TIMEOUT)
    return HttpResponse()


def stream(request: HttpRequest) -> StreamingHttpResponse:
    async def parts() -> AsyncIterator[bytes]:
        make_part = sync_to_async(lambda: b"part ")
        try:
            while True:
                yield await make_part()
                if "once" in request.GET:
                    return
        finally:
            Meeting.closed.set()

    return StreamingHttpResponse(parts())


urlpatterns = [
    path("", show_request),
    path("toolflow/runs/", show_request),
    path("toolflow/toolflowers", show_request),
    path("counted", count_working),
    path("aside", wait_aside),
    path("held", hold),
    path("healthz", show_alive),
    path("stream", stream),
]


@pytest.fixture(autouse=True)
def _site(settings: Any) -> Iterator[None]:
    settings.ALLOWED_HOSTS = ["flows.example.com"]
    settings.CSRF_COOKIE_SECURE = False
    settings.MIDDLEWARE = [name for name in settings.MIDDLEWARE if "Csrf" not in name]
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = None
    Meeting.working = Meeting.most = 0
    Meeting.holding = threading.Semaphore(0)
    Meeting.held, Meeting.closed = threading.Event(), threading.Event()
    yield
    Meeting.held.set()


def connect(application: Any, peer: str = "10.0.0.2") -> httpx2.AsyncClient:
    transport = httpx2.ASGITransport(application, client=(peer, 5000))
    return httpx2.AsyncClient(transport=transport, base_url="http://flows.example.com")


async def send(application: Any, content: Any, headers: dict[str, str] | None = None) -> httpx2.Response:
    async with connect(application) as client:
        return await client.post("/", content=content, headers=headers)


async def in_chunks(content: bytes) -> AsyncIterator[bytes]:
    yield content[:-1]
    yield content[-1:]


@pytest.mark.parametrize(
    ("proxies", "peer", "forwarded", "client"),
    [
        (["10.0.0.2"], "10.0.0.2", "203.0.113.7", "203.0.113.7"),
        (["192.0.2.1", "10.0.0.0/29"], "10.0.0.2", "203.0.113.7", "203.0.113.7"),
        (["10.0.0.2"], "10.0.0.9", "203.0.113.7", "10.0.0.9"),
        # What a client writes before its proxy counts for nothing, and proxies behind proxies are passed over.
        (["10.0.0.2"], "10.0.0.2", "127.0.0.1, 198.51.100.4, 203.0.113.7", "203.0.113.7"),
        (["10.0.0.0/29"], "10.0.0.2", "198.51.100.4, 203.0.113.7, 10.0.0.3", "203.0.113.7"),
    ],
)
async def test_only_named_proxies_say_where_a_request_comes_from(
    proxies: list[str], peer: str, forwarded: str, client: str
) -> None:
    application: Any = RequestHandler()
    async with connect(ProxyHeadersMiddleware(application, trusted_hosts=proxies), peer) as browser:
        headers = {"X-Forwarded-For": forwarded, "X-Forwarded-Proto": "https"}
        seen = (await browser.get("/", headers=headers)).json()
    assert (seen["client"], seen["scheme"]) == (client, "http" if client == peer else "https")


@pytest.mark.parametrize(
    ("asked", "known"),
    [
        ("/toolflow/runs/", "/toolflow/runs/"),
        ("/runs/", "/toolflow/runs/"),
        ("/toolflowers", "/toolflow/toolflowers"),
    ],
)
async def test_below_a_path_an_address_is_the_one_that_browsers_know(asked: str, known: str) -> None:
    async with connect(SubPath(RequestHandler(), "/toolflow")) as browser:
        assert (await browser.get(asked)).json()["path"] == known


class TestBodies:
    @pytest.mark.parametrize("in_parts", [False, True])
    @pytest.mark.parametrize(
        ("headers", "limit"),
        [
            ({}, 1_000_000),
            ({"Cookie": "csrftoken=sessionid; theme=dark"}, 1_000_000),
            ({"Cookie": "theme=dark; sessionid=abc"}, 2_000_000),
            ({"Authorization": "Bearer tf_abc"}, 2_000_000),
        ],
    )
    async def test_limits_depend_on_whether_a_session_or_a_token_is_named(
        self, headers: dict[str, str], limit: int, in_parts: bool
    ) -> None:
        handler = RequestHandler(max_body=2_000_000)
        body = b"x" * limit
        taken = await send(handler, in_chunks(body) if in_parts else body, headers)
        assert (taken.status_code, taken.json()["size"]) == (200, limit)
        refused = await send(handler, in_chunks(body + b"x") if in_parts else body + b"x", headers)
        assert (refused.status_code, refused.json()["type"]) == (413, "urn:toolflow:problem:too-large")
        assert refused.headers["Connection"] == "close" and refused.headers["X-Content-Type-Options"] == "nosniff"

    async def test_a_process_holds_ten_of_the_largest_and_small_ones_still_go_through(self) -> None:
        handler = RequestHandler(max_body=100_000)
        body = b"x" * 100_000
        async with connect(handler) as client:
            waiting = [asyncio.create_task(client.post("/held", content=body)) for _ in range(10)]
            for _ in waiting:
                assert await asyncio.to_thread(Meeting.holding.acquire, timeout=TIMEOUT)
            refused = await client.post("/", content=body)
            assert (refused.status_code, refused.headers["Retry-After"]) == (503, "5")
            assert (await client.post("/", content=body[: request_handler.SMALL_BODY])).status_code == 200
            Meeting.held.set()
            assert {answer.status_code for answer in await asyncio.gather(*waiting)} == {200}
            assert (await client.post("/", content=body)).status_code == 200

    @pytest.mark.parametrize("offered", [None, "from-the-proxy-1", "no\tgood"])
    async def test_a_refusal_has_an_id_and_a_line_in_the_log_like_all_answers(
        self, settings: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, offered: str | None
    ) -> None:
        settings.TOOLFLOW_ACCESS_LOG = "all"
        # All tests of a process share this handler.
        monkeypatch.setattr(caplog.handler, "formatter", JsonLines())
        caplog.set_level("INFO", "toolflow_site.middleware")
        answer = await send(RequestHandler(max_body=10), b"x" * 11, {"X-Request-ID": offered} if offered else None)
        request_id = answer.headers["X-Request-ID"]
        assert answer.json()["request_id"] == request_id
        assert (request_id == offered) == (offered == "from-the-proxy-1")
        lines = [line for line in map(json.loads, caplog.text.splitlines()) if line.get("event")]
        assert [(line["event"], line["status"], line["request_id"]) for line in lines] == [
            ("request.answered", 413, request_id)
        ]


class TestRequestsAtTheSameTime:
    async def test_threads_are_kept_and_a_request_begins_and_ends_in_its_own(self) -> None:
        seen: list[int] = []

        def note(**_: Any) -> None:
            seen.append(threading.get_ident())

        for signal in (request_started, request_finished):
            signal.connect(note)
        try:
            async with connect(RequestHandler()) as client:
                threads = [(await client.get("/")).json()["thread"] for _ in range(9)]
        finally:
            for signal in (request_started, request_finished):
                signal.disconnect(note)
        assert seen == [thread for thread in threads for _ in range(2)]
        assert len(set(threads)) < 4

    async def test_a_request_that_only_waits_lets_others_be_answered(self) -> None:
        handler = RequestHandler(max_working=2)
        # Three that answer only together.
        Meeting.together = threading.Barrier(3)
        async with connect(handler) as client:
            await asyncio.gather(*(client.get("/aside") for _ in range(3)))
            # Their slots are all there again, and none too many.
            Meeting.together = threading.Barrier(2)
            await asyncio.gather(*(client.get("/counted") for _ in range(4)))
        assert Meeting.most == 2

    async def test_a_probe_waits_for_no_other_request(self) -> None:
        async with connect(RequestHandler(max_working=2)) as client:
            busy = [asyncio.create_task(client.get("/held")) for _ in range(3)]
            assert (await client.get("/healthz")).json() == {"status": "ok"}
            Meeting.held.set()
            await asyncio.gather(*busy)

    async def test_a_stream_arrives_whole_and_ends_with_its_reader(self) -> None:
        handler = RequestHandler(max_working=1)
        async with connect(handler) as client:
            assert (await client.get("/stream?once=1")).content == b"part "
        Meeting.closed.clear()
        scope = {"type": "http", "method": "GET", "path": "/stream", "query_string": b""}
        scope |= {"headers": [(b"host", b"flows.example.com")]}
        asked: Any = ApplicationCommunicator(handler, scope)  # type: ignore[no-untyped-call]  # the package has no types here
        await asked.send_input({"type": "http.request", "body": b""})
        assert (await asked.receive_output(TIMEOUT))["status"] == 200
        await asked.receive_output(TIMEOUT)
        # It holds no slot between its parts.
        async with connect(handler) as client:
            assert (await client.get("/")).status_code == 200
        await asked.send_input({"type": "http.disconnect"})
        await asked.wait(TIMEOUT)
        assert Meeting.closed.is_set()


@pytest.mark.urls("toolflow_site.urls")
def test_probes_answer_under_any_name_and_without_tls(settings: Any, client: Client) -> None:
    settings.SECURE_SSL_REDIRECT = True
    assert {probe: resolve(probe).func for probe in PROBE_VIEWS} == PROBE_VIEWS
    answer = client.get("/healthz", headers={"host": "10.1.2.3:8000"})
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
    assert answer["Content-Security-Policy"] and answer["X-Content-Type-Options"] == "nosniff"
    assert client.get("/accounts/login/", headers={"host": "flows.example.com"}).status_code == 301
    assert client.get("/accounts/login/", headers={"host": "10.1.2.3:8000"}, secure=True).status_code == 400
