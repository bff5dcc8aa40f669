"""The ASGI application keeps its threads: connections outlive requests, and requests don't share one at a time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from django.core.signals import request_finished, request_started
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import path

from runs.health import show_alive
from runs.request_places import stepping_aside
from toolflow_site.request_threads import DashboardHandler, KeptThreads

BESIDE = threading.Semaphore(0)
"""Counts the requests that are in a thread at this moment."""
PAIR = threading.Barrier(2, timeout=30)
COUNT: list[int] = []
HELD = threading.Event()
PART_BEGUN = threading.Event()
PART_GOES_ON = threading.Event()
PARTS: list[str] = []
ENDED = threading.Event()
TOGETHER = threading.Barrier(3, timeout=30)


def name_thread(request: HttpRequest) -> HttpResponse:
    return HttpResponse(str(threading.get_ident()))


def name_thread_together(request: HttpRequest) -> HttpResponse:
    TOGETHER.wait()
    return HttpResponse(str(threading.get_ident()))


def count_those_beside(request: HttpRequest) -> HttpResponse:
    BESIDE.release()
    # As long as another one may come, it is given the time to.
    PAIR.wait()
    COUNT.append(BESIDE._value)
    PAIR.wait()
    BESIDE.acquire()
    return HttpResponse(str(threading.get_ident()))


def step_aside(request: HttpRequest) -> HttpResponse:
    with stepping_aside():
        TOGETHER.wait()
    return HttpResponse(str(threading.get_ident()))


def hold(request: HttpRequest) -> HttpResponse:
    HELD.wait(30)
    return HttpResponse()


async def stream_parts(request: HttpRequest) -> StreamingHttpResponse:
    def make_part() -> bytes:
        PART_BEGUN.set()
        PART_GOES_ON.wait(30)
        PARTS.append("made")
        return b"part"

    async def parts() -> AsyncIterator[bytes]:
        while True:
            yield await sync_to_async(make_part)()

    response = StreamingHttpResponse(parts())
    response._resource_closers.append(lambda: PARTS.append("closed"))
    return response


async def stream(request: HttpRequest) -> StreamingHttpResponse:
    async def parts() -> AsyncIterator[bytes]:
        for part in (b"one ", b"two"):
            await asyncio.sleep(0)
            yield part

    return StreamingHttpResponse(parts())


async def stream_on(request: HttpRequest) -> StreamingHttpResponse:
    async def parts() -> AsyncIterator[bytes]:
        try:
            while True:
                await asyncio.sleep(0)
                yield b"on "
        finally:
            ENDED.set()

    return StreamingHttpResponse(parts())


urlpatterns = [
    path("alone", name_thread),
    path("together", name_thread_together),
    path("counted", count_those_beside),
    path("aside", step_aside),
    path("held", hold),
    path("healthz", show_alive),
    path("parts", stream_parts),
    path("stream", stream),
    path("endless", stream_on),
]


@pytest.fixture
def application(settings: Any) -> Iterator[KeptThreads]:
    settings.ROOT_URLCONF = __name__
    application = KeptThreads(DashboardHandler(), most_idle=2)
    yield application
    application.end()


@pytest.fixture
def small(settings: Any) -> Iterator[KeptThreads]:
    """One that works on two requests at a time."""
    settings.ROOT_URLCONF = __name__
    application = KeptThreads(DashboardHandler(most_at_once=2))
    yield application
    application.end()


def make_scope(address: str) -> dict[str, Any]:
    return {
        "type": "http",
        "method": "GET",
        "path": address,
        "headers": [(b"host", b"localhost")],
        "query_string": b"",
    }


async def ask(application: KeptThreads, address: str, *, prefer: bytes = b"") -> str:
    scope = make_scope(address)
    if prefer:
        scope["headers"].append((b"prefer", prefer))
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


async def test_who_reads_slowly_keeps_no_thread_from_others(application: KeptThreads) -> None:
    begun, goes_on = asyncio.Event(), asyncio.Event()
    body = b""

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: dict[str, Any]) -> None:
        nonlocal body
        begun.set()
        await goes_on.wait()
        body += message.get("body", b"")

    slow = asyncio.create_task(application(make_scope("/alone"), receive, send))
    await begun.wait()
    thread = await ask(application, "/alone")
    goes_on.set()
    await slow
    assert body.decode() == thread


async def test_a_request_has_begun_and_ended_in_its_thread_when_its_answer_arrives(application: KeptThreads) -> None:
    seen: list[int] = []

    def note(**_: Any) -> None:
        seen.append(threading.get_ident())

    for signal in (request_started, request_finished):
        signal.connect(note)
    try:
        thread = await ask(application, "/alone")
    finally:
        for signal in (request_started, request_finished):
            signal.disconnect(note)
    assert seen == [int(thread), int(thread)]


async def test_a_reader_who_leaves_ends_what_is_streamed(application: KeptThreads) -> None:
    asked = ApplicationCommunicator(application, make_scope("/endless"))  # type: ignore[arg-type]  # any callable of three
    await asked.send_input({"type": "http.request", "body": b""})
    assert (await asked.receive_output(30))["status"] == 200
    await asked.receive_output(30)
    await asked.send_input({"type": "http.disconnect"})
    await asked.wait(30)
    assert ENDED.is_set()


async def test_requests_beyond_the_bound_wait_for_their_turn(small: KeptThreads) -> None:
    COUNT.clear()
    threads = await asyncio.gather(*(ask(small, "/counted", prefer=b"x") for _ in range(6)))
    assert len(COUNT) == 6
    assert max(COUNT) == 2
    assert len(set(threads)) == 2


async def test_who_only_waits_lets_others_be_answered(small: KeptThreads) -> None:
    # Three that answer only together: the third has a place because the others stepped aside.
    threads = await asyncio.gather(*(ask(small, "/aside") for _ in range(3)))
    assert len(set(threads)) == 3
    # Their places are all there again, and none too many.
    COUNT.clear()
    await asyncio.gather(*(ask(small, "/counted") for _ in range(4)))
    assert max(COUNT) == 2


async def test_a_probe_is_answered_whatever_else_goes_on(small: KeptThreads) -> None:
    busy = [asyncio.create_task(ask(small, "/held")) for _ in range(3)]
    try:
        assert "ok" in await ask(small, "/healthz")
    finally:
        HELD.set()
        await asyncio.gather(*busy)


async def test_a_part_under_way_is_made_before_its_stream_is_closed(application: KeptThreads) -> None:
    PARTS.clear()
    asked = ApplicationCommunicator(application, make_scope("/parts"))  # type: ignore[arg-type]  # any callable of three
    await asked.send_input({"type": "http.request", "body": b""})
    assert (await asked.receive_output(30))["status"] == 200
    # The reader leaves while the first part is being made.
    await asyncio.to_thread(PART_BEGUN.wait, 30)
    await asked.send_input({"type": "http.disconnect"})
    for _ in range(50):
        await asyncio.sleep(0)
    assert PARTS == []
    PART_GOES_ON.set()
    await asked.wait(30)
    assert PARTS == ["made", "closed"]


async def test_what_a_view_streams_arrives_whole(application: KeptThreads) -> None:
    assert await ask(application, "/stream") == "one two"
