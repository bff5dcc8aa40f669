"""``manage.py serve``: the web server of this host, for production."""

from __future__ import annotations

import os
import socket
import sys
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from runs.management.terminal import announce
from runs.observability.meters import prepare_metrics_folder

REQUEST_STOP_TIMEOUT = 10
"""Seconds that requests have to end after a stop. Streams of events have no end of their own: they are broken off."""
KEEP_ALIVE_TIMEOUT = 75
"""Seconds that an idle connection stays open: longer than a proxy keeps it, so that none is closed as it is used."""
HEALTH_TIMEOUT = 30
"""Seconds after which a process that does not answer, or does not start, is replaced."""
MAX_HEADER_BYTES = 65_536
"""Size of the first line and the headers of a request."""


class Command(BaseCommand):
    help = (
        "Serve pages and the API until stopped (SIGTERM or Ctrl-C). SIGHUP replaces the processes one by one. "
        "Put a proxy that terminates TLS in front of it."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="Address to listen on (default: %(default)s)")
        parser.add_argument("--port", type=int, default=8000, help="Port to listen on (default: %(default)s)")
        parser.add_argument(
            "--processes",
            type=int,
            choices=range(1, 65),
            metavar="1…64",
            default=settings.TOOLFLOW_WEB_PROCESSES,
            help="Processes that answer (default: TOOLFLOW_WEB_PROCESSES, %(default)s)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        host, port, processes = options["host"], options["port"], options["processes"]
        # Without collected static files no process could serve a page.
        self.check(tags=["staticfiles"], include_deployment_checks=True)
        refuse_taken_port(host, port)
        if settings.TOOLFLOW_METRICS_TOKEN:
            prepare_metrics_folder(port)
        address = f"http://{host}:{port}{settings.TOOLFLOW_URL_PREFIX}/"
        announce(self, f"ToolFlow answers on {address} (processes: {processes}).")
        # In the place of this process: signals reach the server, and nothing waits beside it.
        os.execv(sys.executable, build_server_command(host, port, processes=processes))  # noqa: S606  # our own command


def refuse_taken_port(host: str, port: int) -> None:
    """Raise ``CommandError`` that says what to do if something listens on the port already."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except (OSError, OverflowError) as error:
            raise CommandError(
                f"Can't listen on {host}, port {port}: {error}. Choose another port: make up PORT={port + 1}"
            ) from error


def build_server_command(host: str, port: int, *, processes: int = 1) -> list[str]:
    """The command that serves pages and the API; each process has up to ``TOOLFLOW_WEB_CONNECTIONS``."""
    return [
        *(sys.executable, "-m", "uvicorn", "toolflow_site.asgi:application"),
        *("--host", host, "--port", str(port)),
        *("--workers", str(processes)),
        *("--log-level", "warning", "--no-access-log", "--no-server-header"),
        # Forwarded headers are believed where TOOLFLOW_TRUSTED_PROXIES is known.
        "--no-proxy-headers",
        *("--limit-concurrency", str(settings.TOOLFLOW_WEB_CONNECTIONS)),
        # httptools bounds no headers, and answers HTTP/1.0 in chunks, which that does not know.
        *("--http", "h11", "--h11-max-incomplete-event-size", str(MAX_HEADER_BYTES)),
        *("--timeout-keep-alive", str(KEEP_ALIVE_TIMEOUT)),
        *("--timeout-graceful-shutdown", str(REQUEST_STOP_TIMEOUT)),
        *("--timeout-worker-healthcheck", str(HEALTH_TIMEOUT)),
    ]
