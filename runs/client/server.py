"""The server's REST API: requests, retries, and everything that can go wrong with them as a sentence."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import uuid4

from flows import __version__
from runs.client import terminal

if TYPE_CHECKING:
    import httpx2

SUCCEEDED, FAILED, ERRORED, REFUSED = range(4)
"""Exit statuses."""
RUN_EXITS = {"succeeded": SUCCEEDED, "failed": FAILED, "errored": ERRORED, "cancelled": ERRORED}
"""Exit statuses by the status of a run that has ended."""
DEFAULT_URL = "http://127.0.0.1:8000"
TIMEOUT = 60.0
"""Seconds that an answer may take."""
FILE_TIMEOUT = 600.0
"""Seconds between two parts of a file: the server may have to search much that does not match."""
RETRY_TIMEOUT = 60.0
"""Seconds for which a request is repeated while the server is busy, connections break or the server restarts."""
RETRIED_STATUSES = {429, 500, 502, 503, 504}
KEY_IN_USE = "urn:toolflow:problem:idempotency-key-in-use"
MAX_PAGE_SIZE = 200


class ClientError(Exception):
    """Ends a command with ``REFUSED``: a sentence, and details of a line each."""

    def __init__(self, message: str, details: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.details = tuple(details)


class UnavailableError(ClientError):
    """The server can't answer now. ``pause`` is the seconds to wait before a retry, None if nothing listens."""

    def __init__(self, message: str, pause: float | None) -> None:
        super().__init__(message)
        self.pause = pause


class Server:
    """One installation, with the rights of a token. All methods raise ``ClientError``."""

    def __init__(self, url: str, token: str) -> None:
        """``url`` is the address of the pages, with or without the path of the API."""
        # Loading it takes as long as all the rest of what needs no server, such as --help.
        import httpx2

        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname or set("@?#") & set(url):
            # The address may hold a password, so it is not shown.
            right = "must be like https://flows.example.com, without a user name, a password, “?” or “#”"
            raise ClientError(f"TOOLFLOW_URL {right}.")
        if not token.isascii() or not token.isprintable() or " " in token:
            raise ClientError("TOOLFLOW_TOKEN is not a token; it must be like tf_0123456789abcdef….")
        self.url = url.rstrip("/").removesuffix("/api/v1")
        headers = {"Authorization": f"Bearer {token}", "User-Agent": f"toolflow/{__version__}"}
        self._client = httpx2.Client(base_url=f"{self.url}/api/v1/", headers=headers, timeout=TIMEOUT)

        self.is_waiting = False
        """Whether a command waits for runs, and so for a server that is away too: it may be restarting."""

    @contextmanager
    def wait(self, remark: str) -> Iterator[terminal.Progress]:
        """Give what shows how far that is that a command waits for; ``remark`` is printed when Ctrl-C ends it."""
        self.is_waiting = True
        with terminal.show_waiting(remark) as show:
            yield show

    def get(self, path: str, *, name: str = "", **query: Any) -> Any:
        """The JSON at ``path``."""
        return self.send("GET", path, name=name, params=query).json()

    def post(self, path: str, *, name: str = "", key: str | None = None, **body: Any) -> Any:
        """The JSON that answers a request to do something, under a key so that a retry does it once."""
        headers = {"Idempotency-Key": key or str(uuid4())}
        return self.send("POST", path, name=name, headers=headers, json=body).json()

    def iterate(self, path: str, limit: int | None = None, *, name: str = "", **query: Any) -> Iterator[Any]:
        """Up to ``limit`` items of a list, or all, page by page; a page may be empty and still have a next one."""
        count = 0
        query["limit"] = min(limit or MAX_PAGE_SIZE, MAX_PAGE_SIZE)
        page = self.get(path, name=name, **query)
        while True:
            for item in page["items"]:
                yield item
                count += 1
                if count == limit:
                    return
            if not page["next"]:
                return
            # Only the query of the address: a proxy may have another host than the one that is known here.
            page = self.get(f"{path}?{urlsplit(page['next']).query}")

    @contextmanager
    def download(self, path: str, *, accept: str, **query: Any) -> Iterator[Iterator[bytes]]:
        """The lines of a file as they arrive. Raises ``ClientError`` also if it breaks off."""
        answer = self.send("GET", path, accept=accept, is_stream=True, params=query, timeout=FILE_TIMEOUT)
        try:
            with self._explain_failures():
                yield _split_lines(answer.iter_bytes())
        finally:
            answer.close()

    def send(self, method: str, path: str, **request: Any) -> httpx2.Response:
        """The successful answer to a request, which must be idempotent: it is repeated where the server is busy."""
        deadline = time.monotonic() + RETRY_TIMEOUT
        while True:
            try:
                return self._send_once(method, path, **request)
            except UnavailableError as error:
                pause = max(1.0, error.pause or 0.0)
                if (error.pause is None and not self.is_waiting) or time.monotonic() + pause > deadline:
                    raise
                time.sleep(pause)

    def _send_once(
        self,
        method: str,
        path: str,
        *,
        name: str = "",
        accept: str = "application/json",
        is_stream: bool = False,
        headers: dict[str, str] | None = None,
        params: dict[str, Any] | None = None,
        **request: Any,
    ) -> httpx2.Response:
        """``name`` is what does not exist if the answer is 404. Parameters that are None are left out."""
        headers = {"Accept": accept, **(headers or {})}
        params = {key: value for key, value in (params or {}).items() if value is not None}
        with self._explain_failures():
            built = self._client.build_request(method, path, headers=headers, params=params or None, **request)
            answer = self._client.send(built, stream=is_stream)
            if not answer.is_success:
                answer.read()
                raise self._explain_refusal(answer, name)
        if not answer.headers.get("Content-Type", "").startswith(accept):
            raise ClientError(f"The server at {self.url} is not ToolFlow; check TOOLFLOW_URL.")
        return answer

    @contextmanager
    def _explain_failures(self) -> Iterator[None]:
        import httpx2

        try:
            yield
        except httpx2.ConnectError as error:
            raise UnavailableError(f"{self.url} can’t be reached: {error}.", pause=None) from None
        except httpx2.TransportError as error:
            reason = str(error) or type(error).__name__
            raise UnavailableError(f"The connection to {self.url} failed: {reason}.", pause=1) from None
        except UnicodeError as error:
            # Such as a key with an umlaut, or bytes on the command line that are not UTF-8.
            raise ClientError(f"The request can’t be sent: {error}.") from None

    def _explain_refusal(self, answer: httpx2.Response, name: str) -> ClientError:
        if answer.is_redirect:
            place = answer.headers.get("Location", "another address").partition("/api/v1/")[0]
            return ClientError(f"{self.url} redirects to {place}; set TOOLFLOW_URL to that.")
        is_problem = answer.headers.get("Content-Type", "").startswith("application/problem+json")
        problem = answer.json() if is_problem else {}
        message = problem.get("detail", f"{self.url} answered {answer.status_code}; is TOOLFLOW_URL its address?")
        if answer.status_code in RETRIED_STATUSES or problem.get("type") == KEY_IN_USE:
            pause = answer.headers.get("Retry-After", "")
            return UnavailableError(message, pause=float(pause) if pause.isdecimal() else 1.0)
        if is_problem and answer.status_code == 404 and name:
            return ClientError(f"{name} does not exist.")
        details = []
        for error in problem.get("errors", ()):
            place = error.get("pointer") or error.get("parameter")
            if error["detail"] != message:
                details.append(f"{place}: {error['detail']}" if place else error["detail"])
        return ClientError(message, details)


def _split_lines(parts: Iterator[bytes]) -> Iterator[bytes]:
    """Lines as JSON Lines has them: only a line feed ends one."""
    rest = b""
    for part in parts:
        *lines, rest = (rest + part).split(b"\n")
        yield from (line + b"\n" for line in lines)
    if rest:
        yield rest
