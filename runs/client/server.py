"""The server: requests that come back as JSON, and all that can go wrong with them as a sentence."""

from __future__ import annotations

import json as json_text
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx2

from flows import __version__
from runs.client.errors import ClientError, InUseError, NothingThereError, SilenceError, UnreachableError

DEFAULT_URL = "http://127.0.0.1:8000"
API = "/api/v1/"
TIMEOUT = 60.0
"""Seconds that an answer may take."""
FILE_TIMEOUT = 600.0
"""Seconds that may pass between two parts of a file: the server may have to look through much that doesn't match."""
MOST_ITEMS = 200
"""Items that a page of a list has at most."""
TRIES = 4
"""How often a request that may be repeated is sent while the server says that it can't answer now."""
TRIES_IN_USE = 20
"""The same while it says that the first request with the same key is under way, which ends for sure."""
LONGEST_PAUSE = 60.0
"""Seconds that the server may ask to wait before the next try."""

_Found = TypeVar("_Found")

_LATER = {429, 502, 503, 504}
"""Statuses of answers that may be another one in a moment."""
_KEY_IN_USE = "urn:toolflow:problem:idempotency-key-in-use"


class Document(dict[str, Any]):
    """An object of an answer. What it lacks has a sentence."""

    def __missing__(self, name: str) -> Any:
        right = "TOOLFLOW_URL should be the address of a ToolFlow as new as this command"
        raise ClientError(f"The server’s answer has no “{name}”; {right}.")


class Server:
    """One installation, as whoever has the token sees it."""

    def __init__(self, url: str, token: str) -> None:
        """``url`` is what browsers open, with or without the path of the API. Raises ``ClientError``."""
        _check_address(url)
        if not token.isascii() or not token.isprintable() or " " in token:
            raise ClientError("TOOLFLOW_TOKEN holds what no token has; it should be like tf_0123456789abcdef….")
        self._url = url.rstrip("/").removesuffix(API.rstrip("/"))
        headers = {"Authorization": f"Bearer {token}", "User-Agent": f"toolflow/{__version__}"}
        try:
            self._client = httpx2.Client(headers=headers, timeout=TIMEOUT)
        except (OSError, ValueError, httpx2.InvalidURL) as error:
            # Proxies and certificates that the environment names.
            raise ClientError(f"Nothing can be asked for: {_name_reason(error)}.") from None

    @classmethod
    def from_environment(cls, url: str) -> Server:
        """The server at ``url`` with the token of the environment. Raises ``ClientError`` if there is none."""
        token = os.environ.get("TOOLFLOW_TOKEN", "").strip()
        if not token:
            raise ClientError(
                "TOOLFLOW_TOKEN is not set. Make a token on the page “API tokens”, and put it into the environment."
            )
        return cls(url, token)

    def get(self, path: str, **query: Any) -> Document:
        """The JSON under ``path`` of the API, or under an address that an answer gave. Raises ``ClientError``."""
        return self.ask("GET", path, query=query)

    def list(self, path: str, limit: int, **query: Any) -> Iterator[dict[str, Any]]:
        """Up to ``limit`` items of a list, page by page. Raises ``ClientError``."""
        page = self.get(path, **query, limit=min(limit, MOST_ITEMS)) if limit else Document(items=[], next=None)
        while True:
            yield from page["items"][:limit]
            limit -= len(page["items"])
            if limit <= 0 or not page["next"]:
                return
            # Only what comes behind the “?” is taken: a proxy may have made another host of ours.
            page = self.get(f"{path}?{urlsplit(page['next']).query}")

    def ask(self, method: str, path: str, **request: Any) -> Document:
        """The JSON object that answers a request, as ``send`` takes it. Raises ``ClientError``."""
        return self.read(self.send(method, path, **request).content)

    def read(self, text: str | bytes) -> Document:
        """An object of the API. Raises ``ClientError`` if the text is something else."""
        try:
            found = json_text.loads(text, object_hook=Document)
        except (ValueError, RecursionError) as error:
            raise ClientError(f"{self._url} sent JSON that can’t be read: {_name_reason(error)}.") from None
        if not isinstance(found, Document):
            raise self._not_toolflow()
        return found

    def send(
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
        """The answer to a request that may be repeated. Raises ``ClientError`` for all but success.

        With an ``Idempotency-Key`` it is also repeated where the server failed, and while it still does what was asked.
        """
        return _repeat(lambda: self._ask_once(method, path, query, json, content, headers), tries)

    @contextmanager
    def download(self, path: str, *, kind: str, query: Mapping[str, Any]) -> Iterator[Iterator[bytes]]:
        """The parts of a file of the media type ``kind``, as they come. Raises ``ClientError``, also where it breaks
        off.
        """
        with ExitStack() as stack:
            answer = _repeat(lambda: stack.enter_context(self._open(path, query)), TRIES)
            if not answer.headers.get("Content-Type", "").startswith(kind):
                raise self._not_toolflow()
            try:
                yield answer.iter_bytes()
            except httpx2.HTTPError as error:
                raise ClientError(f"{self._url} broke off before the end: {_name_reason(error)}.") from None

    @contextmanager
    def _open(self, path: str, query: Mapping[str, Any]) -> Iterator[httpx2.Response]:
        timeout = httpx2.Timeout(TIMEOUT, read=FILE_TIMEOUT)
        with ExitStack() as stack:
            with self._naming_faults():
                answer = stack.enter_context(
                    self._client.stream("GET", self._url + API + path, params=_drop_none(query), timeout=timeout)
                )
                if not answer.is_success:
                    answer.read()
            if not answer.is_success:
                raise self._explain(answer, is_harmless=True)
            yield answer

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
        body: dict[str, Any] = {"json": json} if json is not None else {"content": content}
        with self._naming_faults():
            answer = self._client.request(
                method, self._url + API + path, params=_drop_none(query), headers=dict(headers or {}), **body
            )
        if answer.is_success:
            self._require_json(answer)
            return answer
        raise self._explain(answer, is_harmless=method == "GET" or "Idempotency-Key" in (headers or {}))

    @contextmanager
    def _naming_faults(self) -> Iterator[None]:
        try:
            yield
        except httpx2.TimeoutException:
            raise UnreachableError(f"{self._url} did not answer within {TIMEOUT:g} seconds.", pause=1) from None
        except httpx2.ConnectError as error:
            raise UnreachableError(f"{self._url} can’t be reached: {_name_reason(error)}.") from None
        except (httpx2.InvalidURL, UnicodeError) as error:
            # Such as bytes on the command line that are no UTF-8: to send it again would change nothing.
            raise ClientError(f"What was typed can’t be sent to {self._url}: {_name_reason(error)}.") from None
        except httpx2.HTTPError as error:
            raise UnreachableError(f"{self._url} did not answer: {_name_reason(error)}.", pause=1) from None

    def _require_json(self, answer: httpx2.Response) -> None:
        if answer.status_code == httpx2.codes.NO_CONTENT:
            return
        kind = answer.headers.get("Content-Type", "")
        if not answer.content or not kind.startswith(("application/json", "application/yaml")):
            raise self._not_toolflow()

    def _not_toolflow(self) -> ClientError:
        return ClientError(f"What answers at {self._url} is not ToolFlow; TOOLFLOW_URL should be its address.")

    def _explain(self, answer: httpx2.Response, *, is_harmless: bool) -> ClientError:
        """What a refusal says; ``is_harmless`` if to send the request once more can’t do twice what it asks for."""
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
        if problem is not None and problem.get("type") == _KEY_IN_USE:
            return InUseError(sentence, pause=_read_pause(answer))
        if answer.status_code in _LATER or (is_harmless and answer.status_code == httpx2.codes.INTERNAL_SERVER_ERROR):
            return UnreachableError(sentence, pause=_read_pause(answer))
        return ClientError(sentence, _list_errors(problem or {}, sentence))


def _check_address(url: str) -> None:
    """Raises ``ClientError`` if a server can't be asked at this address."""
    right = "TOOLFLOW_URL should be like https://flows.example.com"
    if set("@?#") & set(url):
        # A password would be sent in place of the token. It is not shown either.
        raise ClientError(
            f"{right}, without a user name, a password, or what follows a “?” or a “#”. The token alone signs in."
        )
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address:
        raise ClientError(f"“{url}” is no address; {right}.")


def _repeat(ask: Callable[[], _Found], tries: int) -> _Found:
    """What ``ask`` gives, which may be asked again while the server can't answer."""
    tries_in_use = TRIES_IN_USE
    while True:
        try:
            return ask()
        except UnreachableError as error:
            if isinstance(error, InUseError):
                tries_in_use -= 1
            else:
                tries -= 1
            if min(tries, tries_in_use) <= 0 or error.pause is None or error.pause > LONGEST_PAUSE:
                raise
            time.sleep(error.pause)


def _drop_none(query: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return {name: value for name, value in (query or {}).items() if value is not None} or None


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
    errors = problem.get("errors")
    for error in errors if isinstance(errors, list) else ():
        if isinstance(error, dict) and (detail := error.get("detail", sentence)) != sentence:
            place = error.get("pointer") or error.get("parameter")
            lines.append(f"{place}: {detail}" if place else str(detail))
    return lines


def _read_pause(answer: httpx2.Response) -> float:
    """Seconds that the server asks to wait: it may name their number, or a moment."""
    text = answer.headers.get("Retry-After", "")
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        return max(0.0, (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return 1.0


def _name_reason(error: Exception) -> str:
    if isinstance(error, UnicodeEncodeError):
        return f"the character U+{ord(error.object[error.start]):04X} can’t stand in it"
    return str(error).strip().rstrip(".") or type(error).__name__
