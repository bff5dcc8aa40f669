"""The site under an ASGI server on loopback, as in production."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import uvicorn
from django.db import connections

from tests.waiting import wait_until
from toolflow_site.request_handler import MAX_WORKING, RequestHandler

TIMEOUT = 30.0


@contextlib.contextmanager
def serve(*, max_working: int = MAX_WORKING) -> Iterator[int]:
    """Serve the site; gives its port."""
    with handling_requests(max_working=max_working) as handler:
        config = uvicorn.Config(handler, host="127.0.0.1", port=0, log_config=None, log_level="warning", lifespan="off")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            wait_until(lambda: server.started, within=TIMEOUT, what="the server listens")
            yield server.servers[0].sockets[0].getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(TIMEOUT)


@contextlib.contextmanager
def handling_requests(*, max_working: int = MAX_WORKING, max_body: int | None = None) -> Iterator[RequestHandler]:
    """A handler whose threads end with the block, and their connections with them."""
    handler = RequestHandler(max_working=max_working, max_body=max_body)
    try:
        yield handler
    finally:
        for executor in (handler._threads, handler._stream_threads):
            if count := len(executor._threads):
                together = threading.Barrier(count)
                for _ in range(count):
                    executor.submit(_close_connections, together)
            executor.shutdown()


def _close_connections(together: threading.Barrier) -> None:
    connections.close_all()
    # Each thread takes one of these.
    together.wait(TIMEOUT)
