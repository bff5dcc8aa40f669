"""Environment variables: read, checked and explained.

Secrets may also come from files, as orchestrators mount them: where NAME may hold one, NAME_FILE may name its file.

Every reader takes the name of a variable. One that is unset or empty gives the default; one that is wrong raises
``ImproperlyConfigured`` with a sentence that names the variable and says what would be right. Values that may hold
a password or a key are never part of such a sentence.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import math
import os
import re
import secrets
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from django.core.exceptions import ImproperlyConfigured
from environ import Env

from flows.engine.providers import FINE_TUNED, Api, Provider
from flows.webhook_address import Target
from toolflow_site.servers import build_broker, build_database

_Integer = TypeVar("_Integer", bound=int | None)
_Number = TypeVar("_Number", bound=float | None)

FLAGS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
MIN_SECRET_KEY_LENGTH = 32


def load_env_file(path: Path) -> None:
    """Add the ``NAME=value`` lines of ``path``, if it exists, to the environment; what is set already stays.

    Raises ``ImproperlyConfigured`` that gives the number of the first line that is neither such a line, a comment
    nor empty.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError) as error:
        raise ImproperlyConfigured(f"{path} can't be read: {_reason(error)}.") from error
    for number, line in enumerate(text.splitlines(), start=1):
        # Checked here since the package would log such a line, and it may hold a key.
        if line and not line.startswith("#") and not re.match(r"(export )?[A-Za-z_0-9]+=", line):
            raise ImproperlyConfigured(f"Line {number} of {path} is not NAME=value (without spaces around the “=”).")
    Env.read_env(path)


def read_text(name: str, default: str = "") -> str:
    """The variable without the white space around it."""
    return os.environ.get(name, "").strip() or default


def read_secret(name: str) -> str:
    """The variable, or the content of the file that the variable ``name``_FILE names; without the white space around.

    Raises ``ImproperlyConfigured`` if both are set, or if the file can't be read or is empty.
    """
    value, path = read_text(name), read_text(f"{name}_FILE")
    if not path:
        return value
    if value:
        raise ImproperlyConfigured(f"{name} and {name}_FILE are both set; keep one of them.")
    try:
        value = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ImproperlyConfigured(f"{name}_FILE is “{path}”, which can't be read: {_reason(error)}.") from error
    if not value:
        raise ImproperlyConfigured(f"{name}_FILE is “{path}”, which is empty; it must hold what {name} would.")
    return value


def read_list(name: str, default: list[str]) -> list[str]:
    """The parts between commas, without empty ones."""
    text = read_text(name)
    return [part.strip() for part in text.split(",") if part.strip()] if text else default


def read_pairs(name: str) -> dict[str, str]:
    """``left=right`` pairs, between commas. What is left may hold an equals sign: the last one parts the two."""
    pairs = {}
    for part in read_list(name, []):
        left, sign, right = (text.strip() for text in part.rpartition("="))
        if not (left and sign and right):
            raise ImproperlyConfigured(f"{name} names “{part}”; it must list pairs like staff=Editor, between commas.")
        pairs[left] = right
    return pairs


def read_flag(name: str, *, default: bool) -> bool:
    """``true`` or ``false``, also spelled yes/no, on/off, 1/0."""
    text = read_text(name)
    if not text:
        return default
    if text.lower() not in FLAGS:
        raise ImproperlyConfigured(f"{name} is “{text}”; it must be true or false.")
    return FLAGS[text.lower()]


def read_integer(name: str, default: _Integer, *, minimum: int, maximum: int | None = None) -> int | _Integer:
    """A whole number within bounds, both of them allowed."""
    text = read_text(name)
    if not text:
        return default
    expected = f"a whole number of at least {minimum}" if maximum is None else f"a whole number {minimum} to {maximum}"
    if not re.fullmatch(r"[+-]?[0-9]{1,12}", text) or not minimum <= int(text) <= (maximum or math.inf):
        raise ImproperlyConfigured(f"{name} is “{text}”; it must be {expected}.")
    return int(text)


def read_number(name: str, default: _Number, *, minimum: float, maximum: float) -> float | _Number:
    """A finite number within bounds, both of them allowed."""
    text = read_text(name)
    if not text:
        return default
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not minimum <= number <= maximum:
        raise ImproperlyConfigured(f"{name} is “{text}”; it must be a number from {minimum:g} to {maximum:g}.")
    return number


def read_choice(name: str, default: str, choices: tuple[str, ...]) -> str:
    """One of ``choices``, or ``default``."""
    text = read_text(name, default)
    if text not in (default, *choices):
        raise ImproperlyConfigured(f"{name} is “{text}”; it must be {' or '.join(choices)}.")
    return text


def read_modules(name: str, default: list[str]) -> list[str]:
    """Dotted names of Python modules, between commas."""
    modules = read_list(name, default)
    for module in modules:
        if not all(part.isidentifier() for part in module.split(".")):
            raise ImproperlyConfigured(
                f"{name} names “{module}”; it must list Python modules such as company.audits, between commas."
            )
    return modules


def read_time_zone(name: str, default: str) -> str:
    """The name of a time zone that this machine knows."""
    text = read_text(name, default)
    try:
        ZoneInfo(text)
    except (KeyError, ValueError, OSError) as error:
        raise ImproperlyConfigured(
            f"{name} is “{text}”; it must be the name of a time zone such as UTC or Europe/Vienna."
        ) from error
    return text


def read_origins(name: str) -> list[str]:
    """Origins (``https://flows.example.com``), between commas."""
    origins = read_list(name, [])
    for origin in origins:
        parts = urlsplit(origin)
        if parts.scheme not in {"http", "https"} or not parts.netloc or parts.path or parts.query:
            raise ImproperlyConfigured(
                f"{name} names “{origin}”; it must list origins such as https://flows.example.com."
            )
    return origins


def read_networks(name: str) -> list[str]:
    """IP addresses and networks, between commas."""
    networks = read_list(name, [])
    for network in networks:
        try:
            ipaddress.ip_network(network)
        except ValueError:
            raise ImproperlyConfigured(
                f"{name} names “{network}”; it must list addresses (127.0.0.1) or networks (172.16.0.0/12), "
                "between commas."
            ) from None
    return networks


def read_address(name: str, default: str) -> str:
    """The variable as an address of this machine, such as ``127.0.0.1`` or ``::``."""
    text = read_text(name, default)
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise ImproperlyConfigured(f"{name} is “{text}”, which is no address; write one such as 127.0.0.1.") from None


def read_url_prefix(name: str) -> str:
    """The path below which everything lies (``/toolflow``), without a slash at its end; nothing for the whole host."""
    prefix = read_text(name).rstrip("/")
    if prefix and not re.fullmatch(r"(/[A-Za-z0-9._~-]+)+", prefix):
        raise ImproperlyConfigured(
            f"{name} is “{prefix}”; it must be a path such as /toolflow, of letters, digits, “-”, “.”, “_” and “~”."
        )
    return prefix


def read_targets(name: str) -> list[str]:
    """Host names, IP addresses and networks that webhooks may reach, each with its port, between commas."""
    targets = read_list(name, [])
    for target in targets:
        try:
            read = Target.parse(target)
        except ValueError:
            raise ImproperlyConfigured(
                f"{name} names “{target}”; it must list hosts (hooks.example.com, *.example.com), addresses "
                "(192.0.2.7, [fd00::7]) or networks (10.0.0.0/8) between commas, each with a colon and its port "
                "(80, 443, one above 1024, or * for all of them) unless that is 443."
            ) from None
        if read.is_metadata:
            raise ImproperlyConfigured(f"{name} names “{target}”, where clouds keep secrets of a machine; take it out.")
    return targets


def read_base_url(name: str) -> str:
    """An HTTP address, or nothing. It may be one of an inner network."""
    text = read_text(name)
    try:
        parts = urlsplit(text)
        host = parts.hostname or ""
    except ValueError:
        host = ""
    if text and (not host or parts.scheme not in {"http", "https"}):
        raise ImproperlyConfigured(f"{name} must be an address such as http://localhost:8080/v1.")
    return text


def read_headers(name: str) -> dict[str, str]:
    """HTTP headers as a JSON object, also from a file: they may hold keys."""
    text = read_secret(name)
    try:
        headers = json.loads(text) if text else {}
    except ValueError:
        headers = None
    is_valid = isinstance(headers, dict) and all(
        re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", header) and isinstance(value, str) and _is_header_value(value)
        for header, value in headers.items()
    )
    if not is_valid:
        raise ImproperlyConfigured(
            f'{name} must be a JSON object of HTTP headers and their values, such as {{"X-Team": "research"}}.'
        )
    return dict(headers or {})


def _is_header_value(text: str) -> bool:
    return text.isascii() and text.isprintable()


def read_providers(name: str) -> dict[str, Provider]:
    """Model providers by name, each with its own variables: ``TOOLFLOW_PROVIDER_<NAME>_BASE_URL`` and so on."""
    providers: dict[str, Provider] = {}
    for provider in read_list(name, []):
        if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", provider):
            raise ImproperlyConfigured(
                f"{name} names “{provider}”; it must list names of lower-case letters, digits and single hyphens, "
                "between commas."
            )
        if provider == FINE_TUNED:
            raise ImproperlyConfigured(
                f"{name} names “{provider}”, with which names of fine-tuned models begin; choose another name."
            )
        if provider in providers:
            raise ImproperlyConfigured(f"{name} names “{provider}” twice; name it once.")
        providers[provider] = _read_provider(Provider(name=provider), listed_in=name)
    return providers


def _read_provider(named: Provider, *, listed_in: str) -> Provider:
    variable = named.variable("BASE_URL")
    base_url = read_base_url(variable)
    if not base_url:
        raise ImproperlyConfigured(
            f"{listed_in} names “{named.name}”, but {variable} is not set; set it to the address of its API, "
            "such as https://api.example.com/v1."
        )
    return replace(
        named,
        base_url=base_url,
        api_key=read_secret(named.variable("API_KEY")),
        api=Api(read_choice(named.variable("API"), Api.AUTO, tuple(Api))),
        headers=read_headers(named.variable("HEADERS")),
    )


def read_path(name: str, default: Path, *, base: Path) -> Path:
    """A path that need not exist; a relative one is taken from ``base``."""
    return base / Path(read_text(name, str(default))).expanduser()


def read_data_dir(name: str, default: Path, *, base: Path) -> Path:
    """A folder that this process may write to, made if need be; a relative one is taken from ``base``."""
    path = read_path(name, default, base=base)
    try:
        # It holds the secret key and everything that models wrote: nobody else's business.
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ImproperlyConfigured(f"{name} is “{path}”, and this folder can't be made: {_reason(error)}.") from error
    return path


def read_secret_key(name: str, path: Path | None) -> str:
    """The secret key: the variable, else the content of ``path``, which is generated once.

    Without a ``path`` it is the variable as it is, or empty: production tells what is wrong with it, with all else. The
    file appears whole and readable by its owner only, also when several processes start at the same time.
    """
    key = read_secret(name)
    if path is None:
        return key
    if key:
        if len(key) < MIN_SECRET_KEY_LENGTH:
            raise ImproperlyConfigured(
                f"{name} has {len(key)} characters; it must have at least {MIN_SECRET_KEY_LENGTH}, all of them random."
            )
        return key
    try:
        if not path.exists():
            _write_once(path, secrets.token_urlsafe(48))
        key = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ImproperlyConfigured(
            f"The secret key can't be kept in {path}: {_reason(error)}. Mend that, or set {name}."
        ) from error
    if len(key) < MIN_SECRET_KEY_LENGTH:
        raise ImproperlyConfigured(f"{path} holds no secret key. Delete it, and a new one is made; all sign-ins end.")
    return key


def read_old_secret_keys(name: str, *, any_length: bool = False) -> list[str]:
    """Secret keys of before, between spaces: what was signed with them still counts, and nothing new is.

    With ``any_length`` they are as they are: production tells what is wrong with them, with all else.
    """
    keys = read_secret(name).split()
    for number, key in enumerate(keys, start=1):
        if len(key) < MIN_SECRET_KEY_LENGTH and not any_length:
            raise ImproperlyConfigured(
                f"{name}: key {number} has {len(key)} characters; list keys that TOOLFLOW_SECRET_KEY was before, of at "
                f"least {MIN_SECRET_KEY_LENGTH}, with spaces between."
            )
    return keys


def read_database(name: str, *, sqlite_path: Path, base: Path) -> dict[str, Any]:
    """The database as an entry of ``DATABASES``: SQLite in ``sqlite_path`` unless the variable names another."""
    return build_database(name, read_secret(name), sqlite_path=sqlite_path, base=base)


def read_broker(name: str) -> dict[str, Any]:
    """Where the queue keeps its messages, as part of ``Q_CLUSTER``: the database unless the variable names a Redis."""
    return build_broker(name, read_secret(name))


def _write_once(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` unless another process was faster; nobody ever sees half of it."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f"{path.name}.", encoding="utf-8") as file:
        file.write(f"{text}\n")
        file.flush()
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(file.name)


def _reason(error: OSError | ValueError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else "it is not UTF-8 text"
