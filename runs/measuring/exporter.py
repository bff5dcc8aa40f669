"""Serving what a worker process measures: each on a port of its own, the first that is free of a few.

A process that is killed frees its port, and the one that takes its place takes that too.
"""

from __future__ import annotations

import errno
import logging
import socket
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from runs.measuring.access import is_allowed

logger = logging.getLogger(__name__)

PATIENCE = 5.0
"""Seconds that a client may take to say what it wants."""


def serve_metrics(
    registry: CollectorRegistry, *, host: str, port: int, count: int, token: str
) -> ThreadingHTTPServer | None:
    """Serve ``registry`` in a daemon thread on the first free port of ``count`` from ``port`` on; gives the server.

    ``host`` is an address of this machine; ``::`` and ``0.0.0.0`` stand for all of them.

    None, and a warning, if all are taken: the worker does its work all the same.
    """
    handler = _make_handler(registry, token)
    for candidate in range(port, port + count):
        try:
            server = _make_server(host, candidate, handler)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                logger.warning("Metrics of this process can't be served on port %s: %s", candidate, error)
                return None
            continue
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
        return server
    logger.warning("Metrics of this process are not served: the ports %s to %s are taken.", port, port + count - 1)
    return None


def _make_server(host: str, port: int, handler: type[BaseHTTPRequestHandler]) -> ThreadingHTTPServer:
    class MetricsServer(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

    return MetricsServer((host, port), handler)


def _make_handler(registry: CollectorRegistry, token: str) -> type[BaseHTTPRequestHandler]:
    class MetricsHandler(BaseHTTPRequestHandler):
        timeout = PATIENCE
        server_version = "ToolFlow"
        sys_version = ""

        def do_GET(self) -> None:
            if not is_allowed(self.headers.get("Authorization"), token=token):
                self._answer(HTTPStatus.UNAUTHORIZED, "text/plain; charset=utf-8", b"The token is missing or wrong.\n")
            elif self.path.partition("?")[0] != "/metrics":
                self._answer(
                    HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", b"There is nothing here but /metrics.\n"
                )
            else:
                encode, content_type = choose_encoder(self.headers.get("Accept", ""))
                self._answer(HTTPStatus.OK, content_type, encode(registry))

        def _answer(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
            self.send_response(status)
            if status is HTTPStatus.UNAUTHORIZED:
                self.send_header("WWW-Authenticate", 'Bearer realm="metrics"')
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing: scrapes come every few seconds."""

    return MetricsHandler
