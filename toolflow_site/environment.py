"""Environment variables: read, checked and explained.

Every reader takes the name of a variable. One that is unset or empty gives the default; one that is wrong raises
``ImproperlyConfigured`` with a sentence that names the variable and says what would be right. Values that may hold a
password or a key are never part of such a sentence; they may also come from the file that ``NAME_FILE`` names.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import re
import secrets
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from django.core.exceptions import ImproperlyConfigured
from environ import Env

from flows.engine.providers import FINE_TUNED, Api, Provider
from runs.webhooks.addresses import Target

_Default = TypeVar("_Default")
_Value = TypeVar("_Value")

MIN_SECRET_KEY_LENGTH = 32
_PROVIDER_NAME = r"[a-z][a-z0-9]*(-[a-z0-9]+)*"


def load_env_file(path: Path) -> None:
    """Add the ``NAME=value`` lines of ``path``, if it exists, to the environment; what is set already stays.

    Raises ``ImproperlyConfigured`` with the number of the first line that is none, no comment and not empty.
    """
    if not path.is_file():
        return
    for number, line in enumerate(_read_file(path, str(path)).splitlines(), start=1):
        # Checked here since the package would log such a line, and it may hold a key.
        if line and not line.startswith("#") and not re.match(r"(export )?[A-Za-z_0-9]+=", line):
            raise ImproperlyConfigured(f"Line {number} of {path} is not NAME=value (without spaces around the “=”).")
    Env.read_env(path)


def read_text(name: str, default: str = "") -> str:
    """The variable without the white space around it."""
    return os.environ.get(name, "").strip() or default


def read_secret(name: str) -> str:
    """The variable, or the content of the file that the variable ``name``_FILE names, without the white space around.

    Raises ``ImproperlyConfigured`` if both are set, or if the file can't be read or is empty.
    """
    value, path = read_text(name), read_text(f"{name}_FILE")
    if not path:
        return value
    if value:
        raise ImproperlyConfigured(f"{name} and {name}_FILE are both set; keep one of them.")
    value = _read_file(Path(path), f"{name}_FILE is “{path}”, which").strip()
    if not value:
        raise ImproperlyConfigured(f"{name}_FILE is “{path}”, which is empty; it must hold what {name} would.")
    return value


def read_value(name: str, default: _Default, parse: Callable[[str], _Value], expected: str) -> _Default | _Value:
    """What ``parse`` makes of the variable. It raises ``ValueError`` for a text that is not ``expected``."""
    text = read_text(name)
    try:
        return parse(text) if text else default
    except (ValueError, KeyError, OSError):
        raise ImproperlyConfigured(f"{name} is “{text}”; it must be {expected}.") from None


def read_list(name: str, default: list[str] | None = None) -> list[str]:
    """The parts between commas, without empty ones."""
    parts = [part.strip() for part in read_text(name).split(",") if part.strip()]
    return parts or default or []


def read_valid_list(
    name: str, validate: Callable[[str], object], expected: str, default: list[str] | None = None
) -> list[str]:
    """The parts between commas. ``validate`` raises ``ValueError``, or gives False, for one that is not valid."""
    parts = read_list(name, default)
    for part in parts:
        try:
            is_valid = validate(part) is not False
        except ValueError:
            is_valid = False
        if not is_valid:
            raise ImproperlyConfigured(f"{name} names “{part}”; it must list {expected}, between commas.")
    return parts


def read_pairs(name: str) -> dict[str, str]:
    """``left=right`` pairs, between commas. What is left may hold an equals sign: the last one parts the two."""
    parts = read_valid_list(
        name, lambda part: bool(re.fullmatch(r".*\S\s*=\s*[^=\s][^=]*", part)), "pairs like staff=Editor"
    )
    pairs = (part.rpartition("=") for part in parts)
    return {left.strip(): right.strip() for left, _, right in pairs}


def read_flag(name: str, *, default: bool) -> bool:
    """``true`` or ``false``, also spelled yes/no, on/off, 1/0."""
    flags = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    return read_value(name, default, lambda text: flags[text.lower()], "true or false")


def read_integer(name: str, default: _Default, *, minimum: int, maximum: int | None = None) -> int | _Default:
    """A whole number within bounds, both of them allowed."""
    most = 10**12 if maximum is None else maximum

    def parse(text: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]{1,12}", text) or not minimum <= int(text) <= most:
            raise ValueError
        return int(text)

    expected = f"a whole number of at least {minimum}" if maximum is None else f"a whole number {minimum} to {maximum}"
    return read_value(name, default, parse, expected)


def read_number(name: str, default: _Default, *, minimum: float, maximum: float) -> float | _Default:
    """A finite number within bounds, both of them allowed."""

    def parse(text: str) -> float:
        if not minimum <= float(text) <= maximum:
            raise ValueError
        return float(text)

    return read_value(name, default, parse, f"a number from {minimum:g} to {maximum:g}")


def read_choice(name: str, default: str, choices: tuple[str, ...]) -> str:
    """One of ``choices``, or ``default``."""
    text = read_text(name, default)
    if text not in (default, *choices):
        raise ImproperlyConfigured(f"{name} is “{text}”; it must be {' or '.join(choices)}.")
    return text


def read_modules(name: str, default: list[str]) -> list[str]:
    """Dotted names of Python modules, between commas."""

    def validate(module: str) -> bool:
        return all(part.isidentifier() for part in module.split("."))

    return read_valid_list(name, validate, "Python modules such as company.audits", default)


def read_time_zone(name: str, default: str) -> str:
    """The name of a time zone that this machine knows."""
    return read_value(name, default, lambda text: ZoneInfo(text).key, "the name of a time zone such as Europe/Vienna")


def read_origins(name: str) -> list[str]:
    """Origins, between commas."""
    return read_valid_list(
        name,
        lambda origin: bool(re.fullmatch(r"https?://[^/?#]+", origin)),
        "origins such as https://flows.example.com",
    )


def read_networks(name: str) -> list[str]:
    """IP addresses and networks, between commas."""
    return read_valid_list(name, ipaddress.ip_network, "addresses (127.0.0.1) or networks (172.16.0.0/12)")


def read_address(name: str, default: str) -> str:
    """An address of this machine, such as ``127.0.0.1`` or ``::``."""
    return read_value(name, default, lambda text: str(ipaddress.ip_address(text)), "an address such as 127.0.0.1")


def read_url_prefix(name: str) -> str:
    """The path below which everything lies (``/toolflow``), without a slash at its end; empty for the whole host."""

    def parse(text: str) -> str:
        if not re.fullmatch(r"(/[A-Za-z0-9._~-]+)*/?", text):
            raise ValueError
        return text.rstrip("/")

    return read_value(name, "", parse, "a path such as /toolflow, of letters, digits, “-”, “.”, “_” and “~”")


def read_targets(name: str) -> list[str]:
    """Host names, IP addresses and networks that webhooks may reach, each with its port, between commas."""
    expected = (
        "hosts (hooks.example.com, *.example.com), addresses (192.0.2.7, [fd00::7]) or networks (10.0.0.0/8), each "
        "with a colon and its port (80, 443, one above 1024, or * for all of them) unless that is 443, and none where "
        "clouds keep secrets of a machine"
    )
    return read_valid_list(name, lambda target: not Target.parse(target).is_metadata, expected)


def read_base_url(name: str) -> str:
    """An HTTP address, or nothing. It may be one of an inner network, and is not shown: it may hold a password."""
    text = read_text(name)
    try:
        parts = urlsplit(text)
        is_valid = bool(parts.hostname) and parts.scheme in {"http", "https"}
    except ValueError:
        is_valid = False
    if text and not is_valid:
        raise ImproperlyConfigured(f"{name} must be an address such as http://localhost:8080/v1.")
    return text


def read_headers(name: str) -> dict[str, str]:
    """HTTP headers as a JSON object, also from a file: they may hold keys."""
    text = read_secret(name)
    try:
        headers = json.loads(text) if text else {}
    except ValueError:
        headers = None
    if not isinstance(headers, dict) or not all(
        re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", header)
        and isinstance(value, str)
        and value.isascii()
        and value.isprintable()
        for header, value in headers.items()
    ):
        raise ImproperlyConfigured(
            f'{name} must be a JSON object of HTTP headers and their values, such as {{"X-Team": "research"}}.'
        )
    return headers


def read_providers(name: str) -> dict[str, Provider]:
    """Model providers by name, each with its own variables: ``TOOLFLOW_PROVIDER_<NAME>_BASE_URL`` and so on."""
    expected = f"names of lower-case letters, digits and single hyphens, each once, and not “{FINE_TUNED}”"
    names = read_valid_list(
        name, lambda text: bool(re.fullmatch(_PROVIDER_NAME, text)) and text != FINE_TUNED, expected
    )
    if len(names) > len(set(names)):
        raise ImproperlyConfigured(f"{name} must list {expected}, between commas.")
    return {text: _read_provider(Provider(name=text).variable, text) for text in names}


def _read_provider(variable: Callable[[str], str], name: str) -> Provider:
    base_url = read_base_url(variable("BASE_URL"))
    if not base_url:
        raise ImproperlyConfigured(f"{variable('BASE_URL')} must be the address of the API of “{name}”; it is not set.")
    return Provider(
        name=name,
        base_url=base_url,
        api_key=read_secret(variable("API_KEY")),
        api=Api(read_choice(variable("API"), Api.AUTO, tuple(Api))),
        headers=read_headers(variable("HEADERS")),
    )


def read_path(name: str, default: Path, *, base: Path) -> Path:
    """A path that need not exist; a relative one is taken from ``base``."""
    return base / Path(read_text(name, str(default))).expanduser()


def read_data_dir(name: str, default: Path, *, base: Path) -> Path:
    """A folder that this process may write to, made if need be; a relative one is taken from ``base``."""
    path = read_path(name, default, base=base)
    try:
        # It holds the secret key and everything that models wrote.
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ImproperlyConfigured(f"{name} is “{path}”, a folder that can't be created: {error.strerror}.") from error
    return path


def read_secret_key(name: str, path: Path | None) -> str:
    """The secret key: the variable, else the content of ``path``, which is generated once.

    Without a ``path`` it is the variable as it is, or empty: production checks it with all else.
    """
    key = read_secret(name)
    if path is None:
        return key
    source = name
    if not key:
        source = f"The file {path}"
        try:
            if not path.exists():
                _write_once(path, secrets.token_urlsafe(48))
        except OSError as error:
            raise ImproperlyConfigured(f"{path} can't be written: {error.strerror}. Set {name} instead.") from error
        key = _read_file(path, str(path)).strip()
    if len(key) < MIN_SECRET_KEY_LENGTH:
        raise ImproperlyConfigured(
            f"{source} holds {len(key)} characters; a secret key has at least {MIN_SECRET_KEY_LENGTH} random ones."
        )
    return key


def _write_once(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` for its owner only, unless another process was faster; no reader gets half of it."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f"{path.name}.", encoding="utf-8") as file:
        file.write(f"{text}\n")
        file.flush()
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(file.name)


def _read_file(path: Path, subject: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ImproperlyConfigured(f"{subject} can't be read: {reason}.") from error
