"""Providers, the servers that models are asked at, and the protocol of the clients that ask them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol
from urllib.parse import SplitResult, urlsplit

from flows.engine.model_families import COMPATIBLE_FAMILY, NEWER_FAMILY, ForcedTools, ModelFamily, find_family

OPENAI_BASE_URL = "https://api.openai.com/v1"
SIMULATED_BASE_URL = "http://simulated-model/v1"
"""What stands for the simulated model of this process."""

_OPENAI_HOST = ".api.openai.com"
_AZURE_HOSTS = (".openai.azure.com", ".services.ai.azure.com", ".cognitiveservices.azure.com")
_NEWER_ELSEWHERE = replace(NEWER_FAMILY, chat_tools=ForcedTools.ALWAYS)
FINE_TUNED = "ft"
"""What is before the first colon in the name of a fine-tuned model of OpenAI's."""


class Api(StrEnum):
    """The API by which a provider is asked."""

    AUTO = "auto"
    """Responses where the model needs it and the server is OpenAI's own, else chat completions."""
    CHAT = "chat"
    RESPONSES = "responses"


class UnsupportedCallError(ValueError):
    """A model can't be asked at its provider in this way; ``is_about_effort`` if another effort would do as well."""

    def __init__(self, message: str, *, is_about_effort: bool = False) -> None:
        super().__init__(message)
        self.is_about_effort = is_about_effort


@dataclass(frozen=True, slots=True)
class Provider:
    """A server that models are asked at. The default one has no name."""

    name: str = ""
    base_url: str = OPENAI_BASE_URL
    api_key: str = field(default="", repr=False)
    api: Api = Api.AUTO
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent with every request, beside those of the client."""

    def __post_init__(self) -> None:
        # Scripts write the API as text.
        object.__setattr__(self, "api", Api(self.api))

    @property
    def is_openai(self) -> bool:
        """Whether this is a server of OpenAI's or Azure's own; the simulated model counts as one."""
        return self.is_simulated or f".{self._address.hostname}".endswith((_OPENAI_HOST, *_AZURE_HOSTS))

    @property
    def is_simulated(self) -> bool:
        """Whether the simulated model of this process answers."""
        return self.base_url == SIMULATED_BASE_URL

    @property
    def place(self) -> str:
        """Host and port, without any user name or password that the address holds."""
        host = self._address.hostname
        if not host:
            return "the provider"
        return f"{host}:{self._address.port}" if self._address.port else host

    def variable(self, field: str) -> str:
        """The name of the environment variable that sets ``API_KEY``, ``BASE_URL``, ``API`` or ``HEADERS``."""
        if self.name:
            return f"TOOLFLOW_PROVIDER_{self.name.upper().replace('-', '_')}_{field}"
        return f"OPENAI_{field}" if field in ("API_KEY", "BASE_URL") else f"TOOLFLOW_{field}"

    def name_setting(self, field: str) -> str:
        """What sets ``API_KEY``, ``BASE_URL`` or ``API``, for messages: the variable, and the argument of a client."""
        return f"{self.variable(field)} (in a script: {field.lower()}=…)"

    def qualify(self, model: str) -> str:
        """The name by which flows call a model of this provider."""
        return f"{self.name}:{model}" if self.name else model

    def find_family(self, model: str) -> ModelFamily:
        """The family of a model by the name that it has here."""
        if not self.is_openai or self.api is Api.CHAT:
            # Which API it needs is not known: it is asked by the one that the server has.
            return find_family(model, newer=_NEWER_ELSEWHERE)
        # At Azure models have the names of deployments, which say nothing.
        is_azure = f".{self._address.hostname}".endswith(_AZURE_HOSTS)
        return find_family(model, unknown=COMPATIBLE_FAMILY if is_azure else NEWER_FAMILY)

    def find_problem(self) -> str | None:
        """What keeps any call from being made, in a sentence; None where nothing does."""
        key, whose = self.name_setting("API_KEY"), f" for the provider “{self.name}”" if self.name else ""
        if self._address.scheme not in ("http", "https") or not self._address.hostname:
            return (
                f"{self.name_setting('BASE_URL')} is not a web address. Use one that begins with http:// or "
                f"https://, such as {OPENAI_BASE_URL}, and restart the worker."
            )
        if not self.api_key and self.is_openai and not self.is_simulated:
            return f"No API key is set{whose}. Set {key} and restart the worker."
        if not self.api_key.isascii() or not self.api_key.isprintable() or " " in self.api_key:
            return (
                f"The API key{whose} contains an invalid character (a space, a line break or a typographic "
                f"sign). Copy {key} again and restart the worker."
            )
        return None

    @property
    def _address(self) -> SplitResult:
        try:
            address = urlsplit(self.base_url)
            address.port  # noqa: B018  # raises ValueError for one that is not a number
        except ValueError:
            return urlsplit("")
        return address


@dataclass(frozen=True, slots=True)
class Providers:
    """The providers of an installation."""

    default: Provider = Provider()
    named: Mapping[str, Provider] = field(default_factory=dict)

    def split(self, model: str) -> tuple[Provider, str]:
        """The provider that a flow's ``model`` or ``provider:model`` is asked at, and the model's name there.

        Raises ``UnsupportedCallError`` for a provider that is not known.
        """
        prefix, colon, name = model.partition(":")
        provider = self.named.get(prefix)
        # Elsewhere than at OpenAI colons are part of names, as in Ollama's “llama3:8b”.
        if not colon or prefix == FINE_TUNED or (provider is None and not self.default.is_openai):
            return self.default, model
        if provider is not None:
            if name:
                return provider, name
            raise UnsupportedCallError(
                f"“{model}” names a provider but no model. Write it like “{prefix}:name-of-model”."
            )
        known = ", ".join(f"“{name}”" for name in sorted(self.named)) or "none"
        raise UnsupportedCallError(
            f"No provider is called “{prefix}”. Configured: {known}. Name one of these, or add it to "
            "TOOLFLOW_PROVIDERS."
        )


@dataclass(frozen=True, slots=True)
class ModelReply:
    """What a provider answered with HTTP 200: the response body as parsed JSON, and its request id."""

    body: Mapping[str, Any]
    request_id: str | None = None


class ModelClient(Protocol):
    """Sends one request and returns what came back.

    A client with an attribute ``provider`` (a ``Provider``) is sent what models take there; one without is sent chat
    completions.
    """

    async def complete(self, request: Mapping[str, Any], *, idempotency_key: str, timeout: float) -> ModelReply:
        """Send ``request`` (the exact JSON body) once, without retries of its own.

        ``idempotency_key`` is the same whenever the same attempt is sent again; ``timeout`` is in seconds and
        covers the whole call. Raises ``ModelError`` for everything that is not a readable answer; its code says whether
        the call is repeated. So it is after ``TimeoutError`` and ``ConnectionError``. Anything else that it raises
        ends the run as errored, with all attempts kept.
        """

    async def close(self) -> None:
        """Give back connections. The client can't be used afterwards."""


CUSTOM_PROVIDER = Provider(api=Api.CHAT, api_key="its-own")
"""What is known of a client that names no provider."""


def find_providers(client: ModelClient, clients: Mapping[str, ModelClient]) -> Providers:
    """The providers that these clients ask: the default one, and others by name."""

    def find(client: ModelClient) -> Provider:
        return getattr(client, "provider", None) or CUSTOM_PROVIDER

    return Providers(find(client), {name: replace(find(other), name=name) for name, other in clients.items()})


def build_idempotency_key(*, run_id: str, step: int, number: int, started_at: datetime) -> str:
    """Return what names one attempt to a provider, so that a request that arrives twice is answered once."""
    # After an older copy of a database was put back, another run has the number of one that the provider may remember.
    return f"{int(started_at.timestamp() * 1000):x}-{run_id}-{step}-{number}"
