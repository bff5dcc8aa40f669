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
from yarl import URL

from runs.webhooks import posting
from runs.webhooks.addresses import Allowance, Target, find_obstacle, find_problem, is_public, load_allowance
from runs.webhooks.posting import Answer, RefusedTargetError, list_permitted, post
from tests.runs.webhooks.receiver import Receiver, Reply

PUBLIC, OTHER_PUBLIC = "93.184.216.34", "93.184.216.35"
HERE = ("127.0.0.1", "localhost", "0.0.0.0")  # noqa: S104  # nothing listens there
NUMERIC_HOSTS = ("127.1", "2130706433", "0177.0.0.1", "0x7f.1", "0x7f000001", "1.2.3.256", "host.1", "127.1.")
ODDLY_WRITTEN = ("[::1]", "[::ffff:127.0.0.1]", "\N{FULLWIDTH DIGIT ONE}27.0.0.1")


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
    return asyncio.run(post(url, body="{}", headers={}, allowance=load_allowance()))


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.8.9.10", HERE[2], "0.1.2.3", "10.0.0.1", "172.16.5.4", "192.168.1.1", "169.254.169.254",
        "169.254.1.1", "100.64.0.1", "100.127.255.254", "192.0.0.8", "192.0.2.1", "192.88.99.1", "198.18.0.1",
        "198.51.100.1", "203.0.113.5", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255",
        "::", "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "64:ff9b::7f00:1",
        "64:ff9b:1::1", "100::1", "2001::1", "2001:db8::1", "2002:7f00:1::", "3fff::1", "5f00::1", "fc00::1",
        "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "ff0e::1",
    ],
)  # fmt: skip
def test_addresses_that_are_not_of_the_internet_are_told_apart(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "address", [PUBLIC, "8.8.8.8", "::ffff:8.8.8.8", "2606:4700::1111", "2a00:1450:4001:81b::200e"]
)
def test_addresses_of_the_internet_are_known(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


class TestAddresses:
    @pytest.mark.parametrize(
        ("url", "sentence"),
        [
            ("", "The address must begin with https:// or http://"),
            ("ftp://example.com/", "The address must begin with https:// or http://"),
            ("javascript:alert(1)", "The address must begin with https:// or http://"),
            ("https:///path", "The address names no host"),
            ("https://user:pw@example.com/", "must not hold a user name or a password"),
            ("https://user@example.com/", "must not hold a user name or a password"),
            ("https://example.com:22/", "The port 22 is not one for webhooks"),
            ("https://example.com:0/", "The port 0 is not one for webhooks"),
            ("https://example.com:1024/", "The port 1024 is not one for webhooks"),
            ("https://example.com:99999/", "This is no address"),
            ("https://exa mple.com/", "spaces, line breaks or backslashes"),
            ("https://exa\nmple.com/", "spaces, line breaks or backslashes"),
            ("https://example.com\\@127.0.0.1/", "spaces, line breaks or backslashes"),
            ("https://example.com/\x00", "spaces, line breaks or backslashes"),
            ("https://example.com/\ud800", "spaces, line breaks or backslashes"),
            ("https://example.com/" + "ü" * 1_000, "longer than 2,000 bytes"),
            ("https://[::1", "This is no address"),
            ("http://[E:]/", "This is no address: only one of IPv6 stands in brackets"),
            ("https://[::1::]:8080/", "This is no address: only one of IPv6 stands in brackets"),
        ],
    )
    def test_each_mistake_has_its_sentence(self, url: str, sentence: str) -> None:
        assert sentence in find_problem(url)

    @pytest.mark.parametrize(
        "url",
        [
            "https://example.com", "https://example.com:443/hook?key=1#part", "http://localhost:8080/", "HTTPS://Example.COM/",
            "https://bücher.example/ü", "https://[2606:4700::1111]/", "http://receiver:1025/", "https://example.com:65535/",
        ],
    )  # fmt: skip
    def test_what_can_be_tried_has_none(self, url: str) -> None:
        assert find_problem(url) == ""


class TestObstacles:
    """What the settings and the address itself rule out is known before anything is sent."""

    @pytest.mark.parametrize(
        "host", [*HERE, *ODDLY_WRITTEN, "localhost.", "a.localhost", "169.254.169.254", "[fd00::1]"]
    )
    def test_addresses_of_inner_networks_however_they_are_written(self, settings: Any, host: str) -> None:
        settings.TOOLFLOW_WEBHOOK_ALLOW = []
        for scheme in ("http", "https"):
            obstacle = find_obstacle(f"{scheme}://{host}/")
            assert "leads to an address that is not one of the internet; TOOLFLOW_WEBHOOK_ALLOW names" in obstacle

    @pytest.mark.parametrize("host", ["example.com", PUBLIC, "[2606:4700::1111]"])
    def test_plain_http_where_nothing_is_allowed(self, settings: Any, host: str) -> None:
        settings.TOOLFLOW_WEBHOOK_ALLOW = ["other.example.com:80"]
        assert find_obstacle(f"http://{host}/").startswith("Plain http:// is only for hosts and networks that TOOL")
        assert find_obstacle(f"https://{host}/") == ""

    @pytest.mark.parametrize("host", NUMERIC_HOSTS)
    def test_no_setting_lets_a_host_through_that_only_looks_like_an_address(self, settings: Any, host: str) -> None:
        settings.TOOLFLOW_WEBHOOK_ALLOW = ["0.0.0.0/0:*"]
        assert find_obstacle(f"http://{host}/").startswith(f"“{host}” is not a valid host; an IPv4 address has four")

    def test_mistakes_come_first(self) -> None:
        assert "must begin with https://" in find_obstacle("ftp://127.0.0.1/")

    def test_where_a_name_leads_is_asked_later(self, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        asked = resolve_to(monkeypatch, ["10.0.0.1"])
        settings.TOOLFLOW_WEBHOOK_ALLOW = ["10.0.0.0/8:80"]
        for address in ("https://inside.example.com/", "http://inside.example.com/", "http://10.1.2.3/"):
            assert find_obstacle(address) == ""
        for address in ("http://inside.example.com:8080/", "http://11.1.2.3/"):
            assert find_obstacle(address).startswith("Plain http://")
        assert asked == []

    def test_a_host_that_is_named_with_another_port_is_told_so(self, settings: Any) -> None:
        settings.TOOLFLOW_WEBHOOK_ALLOW = ["receiver", "10.0.0.7:9000"]
        named = "TOOLFLOW_WEBHOOK_ALLOW names “{}”, but not its port {}."
        assert find_obstacle("https://receiver/") == ""
        assert find_obstacle("http://receiver/") == named.format("receiver", 80)
        assert find_obstacle("http://receiver:8080/") == named.format("receiver", 8080)
        assert find_obstacle("https://10.0.0.7/") == named.format("10.0.0.7", 443)


class TestRefusals:
    """What is refused is not connected to; the receiver is there and would answer."""

    @pytest.fixture
    def receiver(self, receiver: Receiver, settings: Any) -> Receiver:
        settings.TOOLFLOW_WEBHOOK_ALLOW = []
        return receiver

    @pytest.mark.parametrize("host", [*HERE, *ODDLY_WRITTEN])
    def test_however_this_machine_is_written(
        self, receiver: Receiver, host: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if host in ODDLY_WRITTEN:
            # What the C library makes of them.
            resolve_to(monkeypatch, ["127.0.0.1"])
        for scheme in ("http", "https"):
            answer = send(f"{scheme}://{host}:{receiver.port}/")
            assert answer.is_refused and answer.status is None
            assert "leads to an address that is not one of the internet; TOOLFLOW_WEBHOOK_ALLOW names" in answer.problem
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
        assert [record.getMessage() for record in caplog.records] == [
            "A webhook was not sent to innocent.example.com (127.0.0.1, 169.254.169.254): " + answer.problem
        ]

    def test_a_name_that_leads_elsewhere_once_it_was_checked(
        self, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The connection goes to what was checked: the name is looked up once."""
        asked = resolve_to(monkeypatch, [PUBLIC], ["127.0.0.1"])
        connected = record_connections(monkeypatch)
        answer = send(f"https://rebinding.example.com:{receiver.port}/")
        assert (asked, connected) == (["rebinding.example.com"], [PUBLIC])
        assert "No connection to “rebinding.example.com”" in answer.problem and not answer.is_refused

    def test_of_several_addresses_only_those_of_the_internet_are_tried(self, monkeypatch: pytest.MonkeyPatch) -> None:
        resolve_to(monkeypatch, ["10.0.0.1", PUBLIC, "fd00::1", OTHER_PUBLIC])
        connected = record_connections(monkeypatch)
        assert "No connection" in send("https://mixed.example.com/").problem
        assert connected == [PUBLIC, OTHER_PUBLIC]

    def test_plain_http_to_the_internet(self, monkeypatch: pytest.MonkeyPatch) -> None:
        resolve_to(monkeypatch, [PUBLIC])
        answer = send("http://plain.example.com/")
        assert answer.is_refused
        assert answer.problem == (
            "Plain http:// is only for hosts and networks that TOOLFLOW_WEBHOOK_ALLOW names; use https:// for "
            "“plain.example.com”."
        )

    def test_an_address_that_is_none(self) -> None:
        assert send("ftp://example.com/").is_refused
        assert send("https://user:secret@example.com/").is_refused
        assert send("no address at all").is_refused
        assert send("http://[").problem != ""

    def test_a_proxy_of_the_environment_is_not_asked(
        self, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, settings: Any
    ) -> None:
        settings.TOOLFLOW_WEBHOOK_ALLOW = ["closed.example.com:64999"]
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, receiver.url("/"))
        resolve_to(monkeypatch, ["127.0.0.1"])
        assert "No connection" in send("http://closed.example.com:64999/").problem
        assert receiver.received == []

    @pytest.mark.parametrize(
        "target",
        ["http://127.0.0.1:{port}/inside", "http://169.254.169.254/latest/meta-data/", "//localhost:{port}/", "/here"],
    )
    def test_redirects_are_not_followed(self, receiver: Receiver, settings: Any, target: str) -> None:
        settings.TOOLFLOW_WEBHOOK_ALLOW = [f"127.0.0.1:{receiver.port}"]
        for status in (301, 302, 303, 307, 308):
            receiver.received.clear()
            receiver.reply(Reply(status, {"location": target.format(port=receiver.port)}))
            answer = send(receiver.url())
            assert answer.status == status and not answer.is_refused
            assert "names another address; redirects are not followed" in answer.problem
            assert [one.path for one in receiver.received] == ["/hook"]


class TestAllowance:
    @pytest.mark.parametrize(
        ("entry", "url"),
        [
            ("127.0.0.1:{port}", "http://127.0.0.1:{port}/"),
            ("127.0.0.0/8:{port}", "http://127.0.0.1:{port}/"),
            ("127.0.0.0/8:*", "http://localhost:{port}/"),
            ("localhost:{port}", "http://localhost:{port}/"),
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
            answer = send(f"{scheme}://{host}:{receiver.port}/")
            assert answer.is_refused and answer.status is None
        assert receiver.received == []

    @pytest.mark.parametrize(
        ("entry", "host", "is_named"),
        [
            ("*.internal.example.com", "hooks.internal.example.com", True),
            ("*.internal.example.com", "a.b.internal.example.com", True),
            ("*.internal.example.com", "internal.example.com", False),
            ("*.internal.example.com", "evilinternal.example.com", False),
            ("internal.example.com", "hooks.internal.example.com", False),
            ("internal.example.com", "internal.example.com.evil.example", False),
            ("internal.example.com", "INTERNAL.example.com.", True),
        ],
    )
    def test_a_name_means_that_host_and_a_star_all_below(self, entry: str, host: str, is_named: bool) -> None:
        assert Target.parse(entry).is_host_of(URL(f"https://{host}/")) is is_named

    @pytest.mark.parametrize("entry", ["bücher.example", "xn--bcher-kva.example"])
    def test_a_name_with_umlauts_is_known_in_both_spellings(
        self, receiver: Receiver, settings: Any, entry: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        settings.TOOLFLOW_WEBHOOK_ALLOW = [f"{entry}:{receiver.port}"]
        asked = resolve_to(monkeypatch, ["127.0.0.1"])
        assert send(f"http://bücher.example:{receiver.port}/").status == 200
        assert asked == ["xn--bcher-kva.example"]

    def test_one_network_opens_no_other(self, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        settings.TOOLFLOW_WEBHOOK_ALLOW = ["10.20.0.0/16"]
        found = ["10.20.3.4", "::ffff:10.20.3.4", "10.21.0.1", "169.254.169.254"]
        addresses = [ipaddress.ip_address(address) for address in found]
        assert list_permitted(URL("https://inside.example.com/"), addresses, load_allowance()) == addresses[:2]

    @pytest.mark.parametrize(
        "address", ["169.254.169.254", "::ffff:169.254.169.254", "100.100.100.200", "168.63.129.16"]
    )
    def test_nothing_opens_where_clouds_keep_the_secrets_of_a_machine(
        self, settings: Any, address: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        settings.TOOLFLOW_WEBHOOK_ALLOW = [f"[{address}]:*" if ":" in address else f"{address}:*", "*.example.com:*"]
        host = f"[{address}]" if ":" in address else address
        assert "leads to an address that is not one of the internet" in find_obstacle(
            f"http://{host}/latest/meta-data/"
        )
        for url in ("http://named.example.com/", "https://named.example.com/"):
            with pytest.raises(RefusedTargetError, match="leads to an address"):
                list_permitted(URL(url), [ipaddress.ip_address(address)], load_allowance())


class TestWhatGoesWrong:
    def test_a_name_that_there_is_not(self, monkeypatch: pytest.MonkeyPatch) -> None:
        resolve_to(monkeypatch, [])
        answer = send("https://nowhere.example.com/")
        assert (answer.problem, answer.is_refused) == ("The name “nowhere.example.com” can’t be resolved.", False)

    def test_nobody_listens(self, receiver: Receiver) -> None:
        receiver.stop()
        assert send(receiver.url()).problem.startswith("No connection to “127.0.0.1”: ")

    def test_it_hangs(self, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(posting, "TIMEOUT", 0.2)
        is_over = threading.Event()
        receiver.reply(Reply(before=lambda: is_over.wait(20)))
        answer = send(receiver.url())
        is_over.set()
        assert answer.problem == "“127.0.0.1” did not answer within 0.2 seconds."

    def test_it_speaks_no_http(self) -> None:
        assert (
            _talk_to(b"220 mail.example.com ESMTP\r\n\r\n").problem
            == "“127.0.0.1” answered with something that is not HTTP."
        )

    def test_it_hangs_up(self) -> None:
        assert _talk_to(b"").problem == "“127.0.0.1” closed the connection without an answer."

    @pytest.mark.skipif(shutil.which("openssl") is None, reason="Certificates are made with openssl.")
    def test_its_certificate_is_known_to_nobody(self, tmp_path: Path) -> None:
        key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
        making = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=127.0.0.1", "-days", "1"]
        names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
        subprocess.run(["openssl", *making, *names], check=True, capture_output=True, timeout=60)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)
        answer = _talk_to(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", context)
        assert answer.problem.startswith("The certificate of “127.0.0.1” is not trusted: self-signed certificate")

    def test_what_comes_back_is_kept_to_a_kilobyte_and_cleaned(self, receiver: Receiver) -> None:
        receiver.reply(Reply(500, body=b"\xff\x00no" + b"x" * 5_000))
        answer = send(receiver.url())
        assert answer.problem == "The receiver answered 500 Internal Server Error."
        assert answer.body.startswith("\ufffd\ufffdno") and len(answer.body.encode()) <= 1_024 + 4
        assert "\x00" not in answer.body

    def test_a_status_counts_though_its_body_never_ends(
        self, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
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
            return await post(url, body="{}", headers={}, allowance=Allowance((Target.parse(f"127.0.0.1:{port}"),)))

    return asyncio.run(ask())
