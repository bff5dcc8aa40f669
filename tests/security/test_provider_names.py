"""Where the name of a provider leads: looked at with each connection, since it may lead elsewhere by then."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest

from flows.engine.errors import ModelError
from flows.engine.openai_client import OpenAIClient
from runs.models import Attempt, Run
from tests.conftest import NetworkAccessError
from tests.engine.builders import make_flow, make_step
from tests.engine.model_server import ModelServer
from tests.engine.simulated_requests import make_request
from tests.runs.builders import make_run, make_version
from tests.runs.executing import drain

NAME = "models.example.com"
METADATA = (
    ("169.254.169.254",), ("169.254.170.2",), ("fe80::1",), ("fd00:ec2::254",), ("100.100.100.200",),
    ("168.63.129.16",), ("fd00:42::42",), ("::ffff:169.254.169.254",), ("64:ff9b::a9fe:a9fe",),
    ("64:ff9b:1::a9fe:a9fe",), ("2002:a9fe:a9fe::1",), ("169.254.169.254", "fe80::1"),
)  # fmt: skip

Lead = Callable[..., None]


@pytest.fixture
def lead(monkeypatch: pytest.MonkeyPatch) -> Lead:
    """Lets the name lead to addresses."""
    known = socket.getaddrinfo
    addresses: list[str] = []

    def look_up(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        if host != NAME:
            return known(host, port, *args, **kwargs)
        return [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", (one, port, 0, 0))
            if ":" in one
            else (socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port))
            for one in addresses
        ]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)

    def to(*found: str) -> None:
        addresses[:] = found

    return to


@pytest.fixture
def address(model_server: ModelServer) -> str:
    """That of a provider on this machine, by the name."""
    return f"http://{NAME}:{urlsplit(model_server.base_url).port}/v1"


async def ask(base_url: str) -> Any:
    """What somebody's script is answered there."""
    client = OpenAIClient(api_key="any", base_url=base_url)
    try:
        return await client.complete(make_request(), idempotency_key="1", timeout=5)
    finally:
        await client.close()


@pytest.mark.django_db(transaction=True)
@pytest.mark.any_database
@pytest.mark.parametrize("found", METADATA)
def test_a_run_whose_provider_leads_to_the_metadata_of_a_cloud_ends_at_once_with_one_sentence(
    lead: Lead, settings: Any, found: tuple[str, ...]
) -> None:
    lead(*found)
    settings.TOOLFLOW_PROVIDER = "openai"
    settings.TOOLFLOW_OPENAI_BASE_URL = f"http://{NAME}/v1"
    settings.TOOLFLOW_OPENAI_API_KEY = "sk-planted-3Vt8QmZr5Yx"
    make_run(make_version(make_flow(make_step(max_retries=3))))
    drain()
    run = Run.objects.get()
    assert (run.status, Attempt.objects.filter(step__index=1).count()) == ("errored", 1)
    assert (
        f"{NAME} leads to {found[0]}, where clouds keep secrets of a machine; set OPENAI_BASE_URL (in a script: "
        "base_url=…) to the address of a provider and restart the worker." in run.end_sentence
    )
    assert "sk-planted" not in str(list(Attempt.objects.values_list()))


async def test_a_name_that_led_elsewhere_a_moment_ago_is_looked_at_again(
    lead: Lead, address: str, model_server: ModelServer
) -> None:
    lead("127.0.0.1")
    assert await ask(address)
    lead("169.254.169.254")
    with pytest.raises(ModelError, match=r"leads to 169\.254\.169\.254") as refusal:
        await ask(address)
    assert not refusal.value.code.is_retryable
    assert len(model_server.app.calls) == 1


@pytest.mark.parametrize(
    "found", [("169.254.169.254", "127.0.0.1"), ("fe80::1", "127.0.0.1"), ("127.0.0.1", "fe80::1")]
)
async def test_a_name_with_other_addresses_too_is_reached_at_those(
    lead: Lead, address: str, found: tuple[str, ...]
) -> None:
    lead(*found)
    assert await ask(address)


@pytest.mark.parametrize(
    "found", ["10.0.0.7", "172.16.4.1", "192.168.1.20", "100.64.0.1", "fd12:3456::1", "198.51.100.7"]
)
async def test_a_model_of_ones_own_may_be_in_any_network(lead: Lead, address: str, found: str) -> None:
    lead(found)
    # Tests reach nothing there, but the client tries to.
    with pytest.raises((ModelError, NetworkAccessError)) as refusal:
        await ask(address)
    assert "clouds keep secrets" not in str(refusal.value)
    assert not isinstance(refusal.value, ModelError) or refusal.value.code.is_retryable


@pytest.mark.parametrize("base_url", ["http://169.254.169.254/v1", "http://2852039166/v1", "http://[fe80::1]/v1"])
async def test_a_script_that_names_such_an_address_is_told_so_too(base_url: str) -> None:
    with pytest.raises(ModelError, match=r"OPENAI_BASE_URL names “.+”, where clouds keep secrets of a machine; set"):
        await ask(base_url)
