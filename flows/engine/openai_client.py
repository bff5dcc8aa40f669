"""The model client that talks to OpenAI, and to every server that speaks one of its APIs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, Self

import httpx2
from openai import APIStatusError, APITimeoutError, AsyncOpenAI, Omit, OpenAIError

from flows.engine.errors import ModelError, ModelErrorCode
from flows.engine.http_transport import CONNECT_TIMEOUT, HttpTransport, find_proxy
from flows.engine.model_api import find_api
from flows.engine.provider_errors import explain_status, find_wrapped_status, mask_key, quote_provider
from flows.engine.providers import OPENAI_BASE_URL, SIMULATED_BASE_URL, Api, ModelReply, Provider

_PATHS = {Api.CHAT: "/chat/completions", Api.RESPONSES: "/responses"}
_NO_KEY = "none"
"""Sent to compatible servers that want no key: the ``openai`` client insists on one."""
_SIMULATED_KEY = "key-of-the-simulated-model"
_MIN_SECRET_LENGTH = 12
"""Characters of a key that is masked in answers: compatible servers are given keys such as “ollama”, no secrets, and
their models may well write that."""
_MACHINE = ("Lang", "Package-Version", "OS", "Arch", "Runtime", "Runtime-Version", "Async")
_LEFT_OUT = {f"X-Stainless-{name}": Omit() for name in (*_MACHINE, "Retry-Count", "Read-Timeout")}
"""What the ``openai`` client sends about itself and this machine. No provider needs it, and it takes time."""
_MAX_PAGE_BYTES = 16_000
"""Bytes that are decoded of an answer that is not JSON."""

ASGIApp = Callable[[Any, Any, Any], Awaitable[None]]


class OpenAIClient:
    """A ``ModelClient`` on the real ``openai`` client, without retries of its own.

    It works on whatever event loop calls it, also on several: each has its own connections, which are closed as it
    ends. The client is a context manager: ``with`` for scripts that call ``run_flow_sync``, ``async with`` otherwise.
    """

    def __init__(
        self,
        *,
        api_key: str | None,
        base_url: str | None = None,
        api: Api | str = Api.AUTO,
        headers: Mapping[str, str] | None = None,
        http_client: httpx2.AsyncClient | None = None,
    ) -> None:
        """``base_url`` is OpenAI's own by default; a compatible server's may do without ``api_key``.

        ``api`` is “auto”, “chat” or “responses”; ``headers`` are sent with every call. What is wrong with these is said
        by ``complete``, so that the client can be made without. ``http_client`` replaces the HTTP layer on all event
        loops.
        """
        self.provider = Provider(
            base_url=(base_url or OPENAI_BASE_URL).strip(),
            api_key=(api_key or "").strip(),
            api=Api(api),
            headers=headers or {},
        )
        self._http_client = http_client
        self._clients: dict[asyncio.AbstractEventLoop, tuple[AsyncOpenAI, AsyncGenerator[AsyncOpenAI]]] = {}
        self._is_closed = False

    @classmethod
    def for_provider(cls, provider: Provider) -> OpenAIClient:
        """A client that asks ``provider``."""
        client = cls(api_key=None)
        client.provider = provider
        return client

    async def complete(self, request: Mapping[str, Any], *, idempotency_key: str, timeout: float) -> ModelReply:
        """Send ``request`` once; see ``ModelClient.complete``. Raises ``ModelError`` that says what to change."""
        if self._is_closed:
            raise RuntimeError("This client is closed.")
        try:
            content = json.dumps(request, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        except (TypeError, ValueError, RecursionError) as error:
            message = f"The request can't be written as JSON: {error}. Change the input of the step."
            raise ModelError(ModelErrorCode.BAD_REQUEST, message) from error
        client = await self._find_client()
        try:
            async with asyncio.timeout(timeout):
                # The raw response of a request that is encoded already: building and reading the client's typed
                # objects would take longer than everything else together, and would let HTML pass for an answer.
                response = await client.post(
                    _PATHS[find_api(request)],
                    cast_to=httpx2.Response,
                    content=content,
                    options={
                        "headers": {**_LEFT_OUT, "Idempotency-Key": idempotency_key},
                        # Not sent; without it the client makes up one of its own.
                        "idempotency_key": idempotency_key,
                        "timeout": timeout,
                    },
                )
        except APIStatusError as error:
            # Not chained: the original repeats the provider's words without masking keys.
            raise self._explain_status(error.status_code, error.response, request) from None
        except (OpenAIError, TimeoutError, OSError, LookupError) as error:
            # A LookupError is raised for an error page in a charset that decodes to no text.
            raise self._explain_connection(error, timeout) from error
        return self._read_reply(response, request)

    async def close(self) -> None:
        """Close the connections of the running event loop, and the client for all; other loops may call it as well."""
        self._is_closed = True
        if held := self._clients.get(asyncio.get_running_loop()):
            await held[1].aclose()
        if self._http_client is not None:
            await self._http_client.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_closed = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def _find_client(self) -> AsyncOpenAI:
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            if problem := self.provider.find_problem():
                raise ModelError(ModelErrorCode.NOT_CONFIGURED, problem)
            holder = self._hold_client()
            self._clients[loop] = await anext(holder), holder
        return self._clients[loop][0]

    async def _hold_client(self) -> AsyncGenerator[AsyncOpenAI]:
        # A generator, since an event loop closes its async generators as it ends and has no other hook for that.
        http_client = self._http_client
        if http_client is None:
            transport = HttpTransport(proxy=find_proxy(httpx2.URL(self.provider.base_url)))
            # A redirected POST comes out as a GET or takes the key elsewhere: an error says so instead.
            http_client = httpx2.AsyncClient(transport=transport, trust_env=False, follow_redirects=False)
        client = AsyncOpenAI(
            api_key=self.provider.api_key or _NO_KEY,
            base_url=self.provider.base_url,
            default_headers=self.provider.headers,
            max_retries=0,
            http_client=http_client,
        )
        try:
            yield client
        finally:
            del self._clients[asyncio.get_running_loop()]
            if self._http_client is None:
                await client.close()

    def _read_reply(self, response: httpx2.Response, request: Mapping[str, Any]) -> ModelReply:
        provider = self.provider
        # Whatever repeats the key, a tool call too, goes without it into the history.
        key = provider.api_key if len(provider.api_key) >= _MIN_SECRET_LENGTH else ""
        request_id = mask_key(response.headers.get("x-request-id"), key)
        body = _parse_body(response, key)
        if not isinstance(body, dict):
            kind = response.headers.get("content-type", "no content type").partition(";")[0]
            message = (
                f"{provider.place} answered {response.status_code} with a body that is not a JSON object "
                f"({quote_provider(kind, provider.api_key)}). "
                f"Check {provider.name_setting('BASE_URL')}; most such addresses end with /v1."
            )
            if isinstance(body, str) and (quote := quote_provider(body, provider.api_key)):
                message = f"{message} It said: “{quote}”"
            raise ModelError(ModelErrorCode.UNREADABLE, message, status=response.status_code, request_id=request_id)
        if body.get("error") and not body.get("choices"):
            # Routers wrap the error of the provider behind them in a 200.
            raise self._explain_status(find_wrapped_status(body["error"]), response, request)
        return ModelReply(body, request_id)

    def _explain_status(self, status: int, response: httpx2.Response, request: Mapping[str, Any]) -> ModelError:
        body = _parse_body(response, "")
        return explain_status(status, body, response.headers, request=request, provider=self.provider)

    def _explain_connection(self, error: Exception, timeout: float) -> ModelError:
        provider, cause = self.provider, error.__cause__ or error
        remedy = f"Check {provider.name_setting('BASE_URL')} and the network."
        if isinstance(cause, httpx2.ConnectTimeout):
            message = f"No connection to {provider.place} within {CONNECT_TIMEOUT:g} seconds. {remedy}"
            return ModelError(ModelErrorCode.CONNECTION, message)
        if isinstance(error, APITimeoutError | TimeoutError):
            message = f"{provider.place} gave no complete answer within {timeout:g} seconds."
            return ModelError(ModelErrorCode.TIMEOUT, message)
        detail = quote_provider(str(cause) or type(cause).__name__, provider.api_key)
        if isinstance(cause, httpx2.ConnectError | httpx2.ProxyError):
            message = f"No connection to {provider.place}: {detail}. {remedy}"
        else:
            message = f"The connection to {provider.place} broke before the answer was complete: {detail}."
        return ModelError(ModelErrorCode.CONNECTION, message)


def simulated_client(app: ASGIApp, *, api: Api | str = Api.AUTO) -> OpenAIClient:
    """A client whose requests go to ``app`` in this process, through the ``openai`` client's own HTTP layer."""
    http_client = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), trust_env=False)
    return OpenAIClient(api_key=_SIMULATED_KEY, base_url=SIMULATED_BASE_URL, api=api, http_client=http_client)


def _parse_body(response: httpx2.Response, key: str) -> Any:
    """The JSON of a response with ``key`` masked, or its first bytes as text where it is none."""
    try:
        return mask_key(json.loads(response.content), key)
    except (ValueError, RecursionError):
        # Not as its charset says: that may name one that decodes to no text at all.
        return response.content[:_MAX_PAGE_BYTES].decode(errors="replace")
