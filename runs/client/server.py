"""The server: requests that come back as JSON, and all that can go wrong with them as a sentence."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx2

from flows import __version__
from runs.client.errors import ClientError, NothingThereError, SilenceError, UnreachableError

DEFAULT_URL = "http://127.0.0.1:8000"
API = "/api/v1/"
TIMEOUT = 60.0
"""Seconds that an answer may take."""
MOST_ITEMS = 200
"""Items that a page of a list has at most."""
TRIES = 4
"""How often a request that may be repeated is sent while the server says that it can't answer now."""
LONGEST_PAUSE = 60.0
"""Seconds that the server may ask to wait before the next try."""

_LATER = {429, 502, 503, 504}
"""Statuses of answers that may be another one in a moment."""


class Server:
    """One installation, as whoever has the token sees it."""

    def __init__(self, url: str, token: str) -> None:
        """``url`` is what browsers open, with or without the path of the API. Raises ``ClientError``."""
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.netloc:
            raise ClientError(f"“{url}” is no address; TOOLFLOW_URL should be like https://flows.example.com.")
        if not token.isascii() or not token.isprintable() or " " in token:
            raise ClientError("TOOLFLOW_TOKEN holds what no token has; it should be like tf_0123456789abcdef….")
        self._url = url.rstrip("/").removesuffix(API.rstrip("/"))
        self._client = httpx2.Client(
            headers={"Authorization": f"Bearer {token}", "User-Agent": f"toolflow/{__version__}"}, timeout=TIMEOUT
        )

    @classmethod
    def from_environment(cls, url: str) -> Server:
        """The server at ``url`` with the token of the environment. Raises ``ClientError`` if there is none."""
        token = os.environ.get("TOOLFLOW_TOKEN", "").strip()
        if not token:
            raise ClientError(
                "TOOLFLOW_TOKEN is not set. Make a token on the page “API tokens”, and put it into the environment."
            )
        return cls(url, token)

    def get(self, path: str, **query: Any) -> Any:
        """The JSON under ``path`` of the API, or under an address that an answer gave. Raises ``ClientError``."""
        return self.ask("GET", path, query=query).json()

    def list(self, path: str, limit: int, **query: Any) -> Iterator[dict[str, Any]]:
        """Up to ``limit`` items of a list, page by page. Raises ``ClientError``."""
        page = self.get(path, **query, limit=min(limit, MOST_ITEMS)) if limit else {"items": [], "next": None}
        while True:
            yield from page["items"][:limit]
            limit -= len(page["items"])
            if limit <= 0 or not page["next"]:
                return
            # Only what comes behind the “?” is taken: a proxy may have made another host of ours.
            page = self.get(f"{path}?{urlsplit(page['next']).query}")

    def ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        json: Any = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        tries: int = TRIES,
    ) -> httpx2.Response:
        """The answer to a request that may be repeated. Raises ``ClientError`` for all but success."""
        while True:
            try:
                return self._ask_once(method, path, query, json, content, headers)
            except UnreachableError as error:
                tries -= 1
                if tries <= 0 or error.pause is None or error.pause > LONGEST_PAUSE:
                    raise
                time.sleep(error.pause)

    def listen(self, path: str, *, last_id: str, patience: float) -> Iterator[httpx2.ServerSentEvent]:
        """The events of a stream, after the one of that ``last_id``, until the server or the connection ends it.

        A stream that doesn't come about has no events: what is wrong shows when what it tells of is asked for. Raises
        ``SilenceError`` if not even a sign of life comes for ``patience`` seconds.
        """
        known = {"Last-Event-ID": last_id} if last_id else {}
        timeout = httpx2.Timeout(TIMEOUT, read=patience)
        try:
            with self._client.sse(
                self._url + API + path, headers=known, timeout=timeout, max_event_size=None
            ) as source:
                if source.response.status_code == httpx2.codes.OK:
                    yield from source
        except httpx2.ReadTimeout:
            raise SilenceError from None
        except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError):
            return

    def _ask_once(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None,
        json: Any,
        content: bytes | None,
        headers: Mapping[str, str] | None,
    ) -> httpx2.Response:
        known = {name: value for name, value in (query or {}).items() if value is not None}
        body: dict[str, Any] = {"json": json} if json is not None else {"content": content}
        try:
            answer = self._client.request(
                method, self._url + API + path, params=known or None, headers=dict(headers or {}), **body
            )
        except httpx2.TimeoutException:
            raise UnreachableError(f"{self._url} did not answer within {TIMEOUT:g} seconds.", pause=1) from None
        except httpx2.ConnectError as error:
            raise UnreachableError(f"{self._url} can’t be reached: {_name_reason(error)}.") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError) as error:
            raise UnreachableError(f"{self._url} did not answer: {_name_reason(error)}.", pause=1) from None
        if answer.is_success:
            self._require_json(answer)
            return answer
        raise self._explain(answer)

    def _require_json(self, answer: httpx2.Response) -> None:
        kind = answer.headers.get("Content-Type", "")
        if answer.content and not kind.startswith(("application/json", "application/yaml")):
            raise ClientError(f"What answers at {self._url} is not ToolFlow; TOOLFLOW_URL should be its address.")

    def _explain(self, answer: httpx2.Response) -> ClientError:
        if answer.is_redirect:
            place = answer.headers.get("Location", "elsewhere").partition(API)[0]
            return ClientError(f"{self._url} sends requests on to {place}; set TOOLFLOW_URL to that.")
        status = f"{answer.status_code} {answer.reason_phrase}".strip()
        problem = _read_problem(answer)
        if problem is None:
            sentence = f"{self._url} answered {status}, and not as ToolFlow does; is TOOLFLOW_URL its address?"
        else:
            sentence = str(problem.get("detail") or status)
        if problem is not None and answer.status_code == httpx2.codes.NOT_FOUND:
            return NothingThereError(sentence)
        if answer.status_code in _LATER:
            return UnreachableError(sentence, pause=_read_pause(answer))
        return ClientError(sentence, _list_errors(problem or {}, sentence))


def _read_problem(answer: httpx2.Response) -> dict[str, Any] | None:
    if not answer.headers.get("Content-Type", "").startswith("application/problem+json"):
        return None
    try:
        problem = answer.json()
    except ValueError:
        return None
    return problem if isinstance(problem, dict) else None


def _list_errors(problem: Mapping[str, Any], sentence: str) -> list[str]:
    lines = []
    for error in problem.get("errors") or ():
        place = error.get("pointer") or error.get("parameter") or ""
        if error["detail"] != sentence:
            lines.append(f"{place}: {error['detail']}" if place else error["detail"])
    return lines


def _read_pause(answer: httpx2.Response) -> float:
    text = answer.headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdigit() else 1.0


def _name_reason(error: Exception) -> str:
    return str(error).strip().rstrip(".") or type(error).__name__
