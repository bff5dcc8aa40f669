"""The ASGI application keeps its threads: connections outlive requests, and requests don't share one at a time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from asgiref.testing import ApplicationCommunicator
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import path

from toolflow_site.request_threads import DashboardHandler, KeptThreads

TOGETHER = threading.Barrier(3, timeout=30)


def name_thread(request: HttpRequest) -> HttpResponse:
    return HttpResponse(str(threading.get_ident()))


def name_thread_together(request: HttpRequest) -> HttpResponse:
    TOGETHER.wait()
    return HttpResponse(str(threading.get_ident()))


async def stream(request: HttpRequest) -> StreamingHttpResponse:
    async def parts() -> AsyncIterator[bytes]:
        for part in (b"one ", b"two"):
            await asyncio.sleep(0)
            yield part

    return StreamingHttpResponse(parts())


urlpatterns = [path("alone", name_thread), path("together", name_thread_together), path("stream", stream)]


@pytest.fixture
def application(settings: Any) -> Iterator[KeptThreads]:
    settings.ROOT_URLCONF = __name__
    application = KeptThreads(DashboardHandler(), most_idle=2)
    yield application
    application.end()


async def ask(application: KeptThreads, address: str) -> str:
    scope = {
        "type": "http",
        "method": "GET",
        "path": address,
        "headers": [(b"host", b"localhost")],
        "query_string": b"",
    }
    asked = ApplicationCommunicator(application, scope)  # type: ignore[arg-type]  # any callable of three will do
    await asked.send_input({"type": "http.request", "body": b""})
    start = await asked.receive_output(30)
    assert start["status"] == 200
    body = b""
    while True:
        part = await asked.receive_output(30)
        body += part.get("body", b"")
        if not part.get("more_body"):
            break
    await asked.wait(30)
    return body.decode()


async def test_requests_one_after_the_other_have_the_same_thread(application: KeptThreads) -> None:
    assert len({await ask(application, "/alone") for _ in range(3)}) == 1


async def test_requests_at_the_same_time_have_threads_of_their_own(application: KeptThreads) -> None:
    threads = await asyncio.gather(*(ask(application, "/together") for _ in range(3)))
    assert len(set(threads)) == 3
    # Two of them are kept, as many as may be idle.
    assert await ask(application, "/alone") in threads


async def test_what_a_view_streams_arrives_whole(application: KeptThreads) -> None:
    assert await ask(application, "/stream") == "one two"
