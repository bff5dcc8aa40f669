"""The ASGI application keeps its threads: connections outlive requests, and requests don't share one at a time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from asgiref.testing import ApplicationCommunicator
from django.core.signals import request_finished, request_started
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import path

from toolflow_site.request_threads import DashboardHandler, KeptThreads

BESIDE = threading.Semaphore(0)
"""Counts the requests that are in a thread at this moment."""
PAIR = threading.Barrier(2, timeout=30)
COUNT: list[int] = []
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
    return HttpResponse()


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
    path("stream", stream),
    path("endless", stream_on),
]


@pytest.fixture
def application(settings: Any) -> Iterator[KeptThreads]:
    settings.ROOT_URLCONF = __name__
    application = KeptThreads(DashboardHandler(), most_idle=2)
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


async def ask(application: KeptThreads, address: str) -> str:
    asked = ApplicationCommunicator(application, make_scope(address))  # type: ignore[arg-type]  # any callable of three will do
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


async def test_requests_beyond_the_bound_wait_for_their_turn(settings: Any) -> None:
    settings.ROOT_URLCONF = __name__
    application = KeptThreads(DashboardHandler(most_at_once=2))
    # Three that answer only together: the third one would have no place, if it did not say that it waits.
    patient = {**make_scope("/together"), "headers": [(b"host", b"localhost"), (b"prefer", b"wait=5")]}
    waiting = ApplicationCommunicator(application, patient)  # type: ignore[arg-type]  # any callable of three will do
    await waiting.send_input({"type": "http.request", "body": b""})
    threads = await asyncio.gather(*(ask(application, "/together") for _ in range(2)))
    assert len(set(threads)) == 2
    await waiting.wait(30)
    # Any number of them is answered in the end, two at a time.
    COUNT.clear()
    await asyncio.gather(*(ask(application, "/counted") for _ in range(6)))
    assert len(COUNT) == 6
    assert max(COUNT) == 2
    application.end()


async def test_what_a_view_streams_arrives_whole(application: KeptThreads) -> None:
    assert await ask(application, "/stream") == "one two"
