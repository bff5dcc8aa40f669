"""A server that stands in for ToolFlow: it says what a test makes it say."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

Reply = tuple[int, dict[str, str], bytes]
"""Status, headers and body."""


def answer_json(document: Any, status: int = 200) -> Reply:
    return status, {"Content-Type": "application/json"}, json.dumps(document).encode()


class StandIn:
    """Gives these replies one after the other."""

    def __init__(self, replies: Iterable[Reply]) -> None:
        left = list(replies)

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", "0")))
                status, headers, content = left.pop(0)
                self.send_response(status)
                for name, value in {"Content-Length": str(len(content)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def __getattr__(self, name: str) -> Callable[[], None]:
                if not name.startswith("do_"):
                    raise AttributeError(name)
                return self.answer

            def log_message(self, *arguments: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
