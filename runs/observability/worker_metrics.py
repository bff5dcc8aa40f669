"""Serve the metrics of a worker process: each process on its own port, the first free one of the worker's."""

from __future__ import annotations

import base64
import binascii
import errno
import hmac
import logging
import socket
import threading
from collections.abc import Iterable
from functools import cache
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from wsgiref.types import StartResponse, WSGIEnvironment

from django.conf import settings
from prometheus_client import CollectorRegistry, make_wsgi_app

from runs.observability import find_worker_meter

logger = logging.getLogger(__name__)

REFUSAL = "The token is missing or wrong.\n"
CHALLENGE = 'Bearer realm="metrics"'


def is_allowed(authorization: str | None, *, token: str) -> bool:
    """Whether the header ``Authorization`` brings ``token``: as a bearer token, or as the password of any user."""
    scheme, _, value = (authorization or "").partition(" ")
    given = value.strip()
    if scheme.lower() == "basic":
        try:
            given = base64.b64decode(given, validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            return False
    elif scheme.lower() != "bearer":
        return False
    return hmac.compare_digest(given.encode(errors="replace"), token.encode())


@cache
def serve_worker_metrics() -> None:
    """Serve what this worker process measures, if a port is set; once for each process."""
    port, meter = settings.TOOLFLOW_WORKER_METRICS_PORT, find_worker_meter()
    if port is not None and meter is not None:
        serve_metrics(
            meter.registry,
            host=settings.TOOLFLOW_WORKER_METRICS_HOST,
            port=port,
            count=settings.TOOLFLOW_WORKERS,
            token=settings.TOOLFLOW_METRICS_TOKEN,
        )


def serve_metrics(registry: CollectorRegistry, *, host: str, port: int, count: int, token: str) -> WSGIServer | None:
    """Serve ``registry`` in a daemon thread on the first free port of ``count`` from ``port`` on.

    ``host`` is an address of this machine; ``::`` and ``0.0.0.0`` stand for all. None, and a warning, if that fails.
    """
    metrics = make_wsgi_app(registry)

    def answer(request: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if is_allowed(request.get("HTTP_AUTHORIZATION"), token=token):
            content: Iterable[bytes] = metrics(request, start_response)
            return content
        headers = [("WWW-Authenticate", CHALLENGE), ("Content-Type", "text/plain; charset=utf-8")]
        start_response("401 Unauthorized", headers)
        return [REFUSAL.encode()]

    class Server(ThreadingMixIn, WSGIServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        daemon_threads = True

    for candidate in range(port, port + count):
        try:
            server = make_server(host, candidate, answer, Server, _Handler)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                continue
            logger.warning("Metrics of this process can't be served on port %s: %s", candidate, error)
            return None
        threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
        return server
    logger.warning("Metrics of this process are not served: the ports %s to %s are taken.", port, port + count - 1)
    return None


class _Handler(WSGIRequestHandler):
    timeout = 5.0

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: scrapes come every few seconds."""
