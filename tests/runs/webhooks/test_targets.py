"""Where webhooks may go, and where they may not whatever an address looks like."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import shutil
import socket
import ssl
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings
from yarl import URL

from runs.webhooks import posting
from runs.webhooks.addresses import Target, find_syntax_problem, find_target_problem, is_public
from runs.webhooks.posting import Answer, RefusedTargetError, list_permitted, post
from tests.runs.webhooks.receiver import Receiver, Reply
from tests.site.test_settings import read_settings

PUBLIC, OTHER_PUBLIC = "93.184.216.34", "93.184.216.35"
HERE = ("127.0.0.1", "localhost", "0.0.0.0", "[::1]", "[::ffff:127.0.0.1]", "127.1")  # noqa: S104  # nothing listens


def resolve_to(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> list[str]:
    """Let names resolve to these addresses, look-up by look-up; gives the names that were asked for."""
    left, asked = list(answers), []

    def look_up(host: str, port: int, *args: Any, **kwargs: Any) -> list[Any]:
        asked.append(host)
        found = left.pop(0) if len(left) > 1 else left[0]
        if not found:
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        families = {True: socket.AF_INET6, False: socket.AF_INET}
        return [(families[":" in one], socket.SOCK_STREAM, 6, "", (one, port)) for one in found]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return asked


def record_connections(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that connections are made to from now on; none of them answers."""
    connected: list[str] = []

    async def connect(self: Any, sock: socket.socket, address: Any) -> None:
        connected.append(address[0])
        raise OSError("no way")

    monkeypatch.setattr(asyncio.SelectorEventLoop, "sock_connect", connect)
    return connected


def send(url: str) -> Answer:
    return asyncio.run(post(url, body="{}", headers={}))


@pytest.mark.parametrize(
    "address",
    [
        "127.8.9.10", "0.1.2.3", "10.0.0.1", "172.16.5.4", "192.168.1.1", "169.254.169.254", "100.64.0.1", "192.0.0.8",
        "192.0.2.1", "192.88.99.1", "198.18.0.1", "198.51.100.1", "203.0.113.5", "224.0.0.1", "240.0.0.1",
        "255.255.255.255", "::", "::1", "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::1", "100::1",
        "2001::1", "2001:db8::1", "2002:7f00:1::", "3fff::1", "5f00::1", "fc00::1", "fd00:ec2::254", "fe80::1",
        "fe80::1%eth0", "fec0::1", "ff02::1", "ff0e::1",
    ],
)  # fmt: skip
def test_addresses_that_are_not_of_the_internet(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", [PUBLIC, "::ffff:8.8.8.8", "2606:4700::1111", "2a00:1450:4001:81b::200e"])
def test_addresses_of_the_internet(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("", "https://"), ("ftp://example.com/", "https://"), ("javascript:alert(1)", "https://"),
        ("https:///path", "name a host"), ("https://user:pw@example.com/", "password"),
        ("https://example.com:22/", "port 22"), ("https://example.com:0/", "port 0"),
        ("https://example.com:99999/", "not a valid URL"), ("https://exa\nmple.com/", "line breaks"),
        ("https://example.com\\@127.0.0.1/", "backslashes"), ("https://example.com/\ud800", "spaces"),
        ("https://example.com/" + "ü" * 1_000, "2,000 bytes"), ("https://[::1", "not a valid URL"),
        ("https://example.com", ""), ("HTTPS://Example.COM:443/hook?key=1#part", ""), ("http://receiver:1025/", ""),
        ("https://bücher.example/ü", ""), ("https://[2606:4700::1111]/", ""),
    ],
)  # fmt: skip
def test_what_is_no_address_of_a_receiver(url: str, problem: str) -> None:
    assert problem in find_syntax_problem(url) and bool(find_syntax_problem(url)) == bool(problem)


@pytest.mark.parametrize(
    ("allowed", "url", "is_possible"),
    [
        *(([], f"{scheme}://{host}/", False) for scheme in ("http", "https") for host in HERE[:-1]),
        ([], "https://localhost./", False),
        ([], "https://169.254.169.254/", False),
        (["other.example.com:80"], "http://example.com/", False),
        (["other.example.com:80"], "https://example.com/", True),
        (["10.0.0.0/8:80"], "http://10.1.2.3/", True),
        (["10.0.0.0/8:80"], "http://11.1.2.3/", False),
        (["10.0.0.0/8:80"], "http://inside.example.com/", True),
        (["10.0.0.0/8:80"], "http://inside.example.com:8080/", False),
        (["receiver"], "https://receiver/", True),
        (["receiver"], "http://receiver/", False),
        (["[::1]:8080"], "http://localhost:8080/", True),
    ],
)
def test_what_cannot_work_is_refused_before_a_name_is_looked_up(
    settings: Any, monkeypatch: pytest.MonkeyPatch, allowed: list[str], url: str, is_possible: bool
) -> None:
    asked = resolve_to(monkeypatch, ["10.0.0.1"])
    settings.TOOLFLOW_WEBHOOK_ALLOW = allowed
    obstacle = find_target_problem(url)
    assert (obstacle == "") is is_possible and asked == []
    assert is_possible or "TOOLFLOW_WEBHOOK_ALLOW" in obstacle


class TestRefusals:
    """What is refused is not connected to; the receiver is there and would answer."""

    @pytest.fixture
    def receiver(self, receiver: Receiver, settings: Any) -> Receiver:
        settings.TOOLFLOW_WEBHOOK_ALLOW = []
        return receiver

    @pytest.mark.parametrize("host", HERE)
    def test_this_machine_however_it_is_written(
        self, receiver: Receiver, host: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # What the C library makes of names and of “127.1”.
        resolve_to(monkeypatch, ["127.0.0.1"])
        for scheme in ("http", "https"):
            answer = send(f"{scheme}://{host}:{receiver.port}/")
            assert answer.is_refused and answer.status is None
        assert receiver.received == []

    def test_a_name_that_leads_here(
        self, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        resolve_to(monkeypatch, ["127.0.0.1", "169.254.169.254"])
        with caplog.at_level(logging.WARNING):
            answer = send(f"https://innocent.example.com:{receiver.port}/")
        assert answer.is_refused and receiver.received == []
        # The page says nothing of what names of the own network lead to; the log is for those who run it.
        assert "127.0.0.1" not in answer.problem
        assert "innocent.example.com" in caplog.text and "127.0.0.1, 169.254.169.254" in caplog.text

    def test_a_name_that_leads_elsewhere_once_it_was_checked(
        self, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The connection goes to what was checked: the name is looked up once."""
        asked = resolve_to(monkeypatch, [PUBLIC], ["127.0.0.1"])
        connected = record_connections(monkeypatch)
        assert not send(f"https://rebinding.example.com:{receiver.port}/").is_refused
        assert (asked, connected) == (["rebinding.example.com"], [PUBLIC])

    def test_of_several_addresses_only_those_of_the_internet_are_tried(self, monkeypatch: pytest.MonkeyPatch) -> None:
        resolve_to(monkeypatch, ["10.0.0.1", PUBLIC, "fd00::1", OTHER_PUBLIC])
        connected = record_connections(monkeypatch)
        send("https://mixed.example.com/")
        assert connected == [PUBLIC, OTHER_PUBLIC]

    def test_plain_http_to_the_internet_and_addresses_that_are_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        resolve_to(monkeypatch, [PUBLIC])
        for url in ("http://plain.example.com/", "ftp://example.com/", "https://user:secret@example.com/", "http://["):
            assert send(url).is_refused

    def test_a_proxy_of_the_environment_is_not_asked(
        self, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, settings: Any
    ) -> None:
        settings.TOOLFLOW_WEBHOOK_ALLOW = ["closed.example.com:64999"]
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, receiver.url("/"))
        resolve_to(monkeypatch, ["127.0.0.1"])
        assert send("http://closed.example.com:64999/").status is None
        assert receiver.received == []

    def test_redirects_are_not_followed(self, receiver: Receiver, settings: Any) -> None:
        settings.TOOLFLOW_WEBHOOK_ALLOW = [f"127.0.0.1:{receiver.port}"]
        receiver.reply(Reply(307, {"location": receiver.url("/inside")}))
        answer = send(receiver.url())
        assert (answer.status, answer.is_refused) == (307, False) and answer.problem
        assert [one.path for one in receiver.received] == ["/hook"]


class TestAllowance:
    @pytest.mark.parametrize(
        ("entry", "url"),
        [
            ("127.0.0.1:{port}", "http://127.0.0.1:{port}/"),
            ("127.0.0.0/8:*", "http://localhost:{port}/"),
            ("LocalHost.:*", "http://LOCALHOST:{port}/"),
        ],
    )
    def test_named_hosts_and_networks_are_reached_also_without_tls(
        self, receiver: Receiver, settings: Any, entry: str, url: str
    ) -> None:
        settings.TOOLFLOW_WEBHOOK_ALLOW = [entry.format(port=receiver.port)]
        assert send(url.format(port=receiver.port)).status == 200

    @pytest.mark.parametrize("entry", ["127.0.0.1", "127.0.0.0/8", "localhost", "localhost:64999", "127.0.0.1:80"])
    def test_a_host_that_is_allowed_opens_no_other_port(self, receiver: Receiver, settings: Any, entry: str) -> None:
        settings.TOOLFLOW_WEBHOOK_ALLOW = [entry]
        for scheme, host in (("http", "127.0.0.1"), ("https", "127.0.0.1"), ("http", "localhost")):
            assert send(f"{scheme}://{host}:{receiver.port}/").is_refused
        assert receiver.received == []

    @pytest.mark.parametrize(
        ("entry", "host", "is_named"),
        [
            ("*.internal.example.com", "a.b.internal.example.com", True),
            ("*.internal.example.com", "internal.example.com", False),
            ("*.internal.example.com", "evilinternal.example.com", False),
            ("internal.example.com", "hooks.internal.example.com", False),
            ("internal.example.com", "internal.example.com.evil.example", False),
            ("internal.example.com", "INTERNAL.example.com.", True),
            ("bücher.example", "xn--bcher-kva.example", True),
            ("xn--bcher-kva.example", "bücher.example", True),
        ],
    )
    def test_a_name_means_that_host_and_a_star_all_below(self, entry: str, host: str, is_named: bool) -> None:
        assert Target.parse(entry).is_host_of(URL(f"https://{host}/")) is is_named

    def test_one_network_opens_no_other(self, settings: Any) -> None:
        settings.TOOLFLOW_WEBHOOK_ALLOW = ["10.20.0.0/16"]
        found = ["10.20.3.4", "::ffff:10.20.3.4", "10.21.0.1", "169.254.169.254"]
        addresses = [ipaddress.ip_address(address) for address in found]
        assert list_permitted(URL("https://inside.example.com/"), addresses) == addresses[:2]

    @pytest.mark.parametrize(
        "address",
        [
            "169.254.169.254",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::a9fe:a9fe",
            "2002:a9fe:a9fe::1",
            "100.100.100.200",
            "168.63.129.16",
        ],
    )
    def test_nothing_opens_where_clouds_keep_the_secrets_of_a_machine(self, settings: Any, address: str) -> None:
        host = f"[{address}]" if ":" in address else address
        settings.TOOLFLOW_WEBHOOK_ALLOW = ["0.0.0.0/0:*", "[::/0]:*", "*.example.com:*"]
        assert find_target_problem(f"http://{host}/latest/meta-data/")
        for url in ("http://named.example.com/", "https://named.example.com/"):
            with pytest.raises(RefusedTargetError):
                list_permitted(URL(url), [ipaddress.ip_address(address)])

    def test_the_setting_lists_hosts_addresses_and_networks_with_their_ports(self, tmp_path: Path) -> None:
        assert read_settings(tmp_path)["TOOLFLOW_WEBHOOK_ALLOW"] == []
        text = "localhost, *.internal.example.com:8080,10.20.0.0/16:*, fd00::/8, [::1], [fd00::/8]:9000, hooks_a.:443"
        found = read_settings(tmp_path, TOOLFLOW_WEBHOOK_ALLOW=text)
        assert found["TOOLFLOW_WEBHOOK_ALLOW"] == [part.strip() for part in text.split(",")]

    @pytest.mark.parametrize(
        "target",
        [
            "https://example.com", "example.com:", "example.com:22", "example.com:99999", "*", ":80", "ex*mple.com",
            "10.0.0.0/99", "1.2.3", "a b", "[::1", "[::1]8080", "[10.0.0.1]:80", "169.254.0.0/16", "[fd00:ec2::254]:80",
        ],
    )  # fmt: skip
    def test_what_is_no_target_is_refused(self, tmp_path: Path, target: str) -> None:
        with pytest.raises(ImproperlyConfigured, match="TOOLFLOW_WEBHOOK_ALLOW"):
            read_settings(tmp_path, TOOLFLOW_WEBHOOK_ALLOW=f"localhost,{target}")


class TestWhatGoesWrong:
    def test_a_name_that_there_is_not(self, monkeypatch: pytest.MonkeyPatch) -> None:
        resolve_to(monkeypatch, [])
        answer = send("https://nowhere.invalid/")
        assert "nowhere.invalid" in answer.problem and not answer.is_refused

    def test_it_hangs(self, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(posting, "TIMEOUT", 0.2)
        is_over = threading.Event()
        receiver.reply(Reply(before=lambda: is_over.wait(20)))
        answer = send(receiver.url())
        is_over.set()
        assert "within 0.2 seconds" in answer.problem

    @pytest.mark.skipif(shutil.which("openssl") is None, reason="Certificates are made with openssl.")
    def test_its_certificate_has_no_known_issuer(self, tmp_path: Path) -> None:
        key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
        making = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=127.0.0.1", "-days", "1"]
        names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
        subprocess.run(["openssl", *making, *names], check=True, capture_output=True, timeout=60)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)
        answer = _talk_to(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", context)
        assert "certificate verify failed: self-signed certificate" in answer.problem

    def test_what_comes_back_is_kept_to_a_kilobyte_and_cleaned_and_may_never_end(
        self, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        receiver.reply(Reply(500, body=b"\xff\x00no" + b"x" * 5_000))
        answer = send(receiver.url())
        assert answer.body.startswith("\ufffd\ufffdno") and len(answer.body.encode()) <= 1_024 + 4
        assert "\x00" not in answer.body
        monkeypatch.setattr(posting, "BODY_TIMEOUT", 0.1)
        receiver.reply(Reply(200, {"content-length": "5000"}, b"begins"))
        assert send(receiver.url()) == Answer(status=200, body="begins")


def _talk_to(words: bytes, context: ssl.SSLContext | None = None) -> Answer:
    """The answer of a server that says these words and hangs up, encrypted if there is a ``context``."""

    async def ask() -> Answer:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(100)
            writer.write(words)
            writer.close()

        server = await asyncio.start_server(talk, "127.0.0.1", 0, ssl=context)
        async with server:
            port = server.sockets[0].getsockname()[1]
            url = f"http{'s' if context else ''}://127.0.0.1:{port}/"
            with override_settings(TOOLFLOW_WEBHOOK_ALLOW=[f"127.0.0.1:{port}"]):
                return await post(url, body="{}", headers={})

    return asyncio.run(ask())
