"""Tests can't reach a provider by accident."""

import asyncio
import os
import socket
import urllib.request

import pytest

from tests.conftest import NetworkAccessError


@pytest.mark.parametrize("address", [("192.0.2.1", 443), ("2001:db8::1", 443, 0, 0)])
def test_a_test_that_connects_beyond_this_machine_is_told_so(address: tuple[object, ...]) -> None:
    family = socket.AF_INET if len(address) == 2 else socket.AF_INET6
    with socket.socket(family) as client, pytest.raises(NetworkAccessError, match=str(address[0])):
        client.connect(address)


def test_names_of_other_machines_are_not_even_looked_up() -> None:
    with pytest.raises(NetworkAccessError, match=r"api\.openai\.com"):
        socket.create_connection(("api.openai.com", 443))
    with pytest.raises(NetworkAccessError):
        urllib.request.urlopen("http://example.com")


async def test_the_guard_holds_for_asyncio() -> None:
    with pytest.raises(NetworkAccessError):
        await asyncio.open_connection("192.0.2.1", 443)
    with pytest.raises(NetworkAccessError):
        await asyncio.open_connection("api.openai.com", 443)


async def test_servers_on_loopback_can_be_reached() -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection("localhost", server.sockets[0].getsockname()[1])
        assert await reader.read() == b"hello"
        writer.close()
        await writer.wait_closed()


def test_no_key_and_no_address_of_a_provider_are_in_the_environment() -> None:
    assert not [name for name in os.environ if name.startswith("OPENAI_")]
