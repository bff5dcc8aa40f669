"""Environment variables: read, checked and explained.

Secrets may also come from files, as orchestrators mount them: where NAME may hold one, NAME_FILE may name its file.

Every reader takes the name of a variable. One that is unset or empty gives the default; one that is wrong raises
``ImproperlyConfigured`` with a sentence that names the variable and says what would be right. Values that may hold
a password or a key are never part of such a sentence.
"""

from __future__ import annotations

import base64
import contextlib
import ipaddress
import math
import os
import re
import secrets
import tempfile
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit
from zoneinfo import ZoneInfo

from django.core.exceptions import ImproperlyConfigured
from environ import Env

_Integer = TypeVar("_Integer", bound=int | None)
_Number = TypeVar("_Number", bound=float | None)

FLAGS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
MIN_SECRET_KEY_LENGTH = 32
MIN_WEBHOOK_KEY, MAX_WEBHOOK_KEY = 24, 64

_POSTGRES_OPTIONS = {
    # Seconds, and milliseconds for the one that counts unanswered data. Without them a host that vanished is waited
    # for a quarter of an hour, and what it locked stays locked for two.
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
    # The same for the server's end, and a bound on the locks of a process that is frozen in a transaction.
    "options": "-c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3 "
    "-c tcp_user_timeout=25000 -c idle_in_transaction_session_timeout=30000",
}
_REDIS_OPTIONS = {
    # Seconds. Whoever starts a run must not wait long for a broker that is away; the longest wait of the queue's own
    # is one second.
    "socket_connect_timeout": 5,
    "socket_timeout": 10,
    "socket_keepalive": True,
    "health_check_interval": 30,
    # Tried once more at once, for a connection that was closed while idle. The client's own policy is to try for
    # several seconds.
    "retry": None,
    "retry_on_error": [OSError],
}


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
    """One of ``choices``."""
    text = read_text(name, default)
    if text not in choices:
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


def read_url_prefix(name: str) -> str:
    """The path below which everything lies (``/toolflow``), without a slash at its end; nothing for the whole host."""
    prefix = read_text(name).rstrip("/")
    if prefix and not re.fullmatch(r"(/[A-Za-z0-9._~-]+)+", prefix):
        raise ImproperlyConfigured(
            f"{name} is “{prefix}”; it must be a path such as /toolflow, of letters, digits, “-”, “.”, “_” and “~”."
        )
    return prefix


def read_targets(name: str) -> list[str]:
    """Host names, IP addresses and networks, between commas. ``*.example.com`` stands for all hosts below it."""
    targets = read_list(name, [])
    for target in targets:
        try:
            ipaddress.ip_network(target.strip("[]"), strict=False)
        except ValueError:
            if not re.fullmatch(r"(\*\.)?[\w-]+(\.[\w-]+)*\.?", target) or re.fullmatch(r"[\d.]+", target):
                raise ImproperlyConfigured(
                    f"{name} names “{target}”; it must list hosts (hooks.example.com, *.example.com), addresses "
                    "(192.0.2.7) or networks (10.0.0.0/8), between commas."
                ) from None
    return targets


def read_webhook_secrets(name: str) -> list[str]:
    """Secrets of the Standard Webhooks scheme, between spaces: ``whsec_`` and 24 to 64 bytes in base64."""
    found = read_secret(name).split()
    for secret in found:
        prefix, _, encoded = secret.partition("_")
        try:
            length = len(base64.b64decode(encoded, validate=True)) if prefix == "whsec" else 0
        except ValueError:
            length = 0
        if not MIN_WEBHOOK_KEY <= length <= MAX_WEBHOOK_KEY:
            raise ImproperlyConfigured(
                f"{name} must be whsec_ and {MIN_WEBHOOK_KEY} to {MAX_WEBHOOK_KEY} random bytes in base64, several of "
                "them with spaces between. “manage.py webhook_secret --new” prints one."
            )
    return found


def read_base_url(name: str) -> str:
    """An HTTP address, or nothing."""
    text = read_text(name)
    parts = urlsplit(text)
    if text and (parts.scheme not in {"http", "https"} or not parts.netloc):
        raise ImproperlyConfigured(f"{name} must be an address such as http://localhost:8080/v1.")
    return text


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
    """The secret key: the variable, else the content of ``path``, which is generated once; empty without a ``path``.

    The file appears whole and readable by its owner only, also when several processes start at the same time.
    """
    key = read_secret(name)
    if key:
        if len(key) < MIN_SECRET_KEY_LENGTH:
            raise ImproperlyConfigured(
                f"{name} has {len(key)} characters; it must have at least {MIN_SECRET_KEY_LENGTH}, all of them random."
            )
        return key
    if path is None:
        return ""
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


def read_old_secret_keys(name: str) -> list[str]:
    """Secret keys of before, between spaces: what was signed with them still counts, and nothing new is."""
    keys = read_secret(name).split()
    for number, key in enumerate(keys, start=1):
        if len(key) < MIN_SECRET_KEY_LENGTH:
            raise ImproperlyConfigured(
                f"{name}: key {number} has {len(key)} characters; list keys that TOOLFLOW_SECRET_KEY was before, of at "
                f"least {MIN_SECRET_KEY_LENGTH}, with spaces between."
            )
    return keys


def read_database(name: str, *, sqlite_path: Path, base: Path) -> dict[str, Any]:
    """The database as an entry of ``DATABASES``: SQLite in ``sqlite_path`` unless the variable names another."""
    text = read_secret(name)
    expected = (
        f"{name} must be sqlite:///path/to/file (four slashes before an absolute path) "
        "or postgres://user:password@host:5432/database"
    )
    scheme = text.partition(":")[0]
    if scheme not in {"", "sqlite", "postgres", "postgresql"}:
        raise ImproperlyConfigured(f"{expected}; “{scheme}” is neither.")
    try:
        entry: dict[str, Any] = Env.db_url_config(text) if text else {"NAME": str(sqlite_path)}
    except ValueError as error:
        raise ImproperlyConfigured(f"{expected}; it can't be read as an address.") from error
    if not entry["NAME"] or entry["NAME"] == ":memory:":
        # One in memory would be another one in every process.
        raise ImproperlyConfigured(f"{expected}; it names no database.")
    if scheme in {"postgres", "postgresql"}:
        options = {**_POSTGRES_OPTIONS, **entry.get("OPTIONS", {})}
        return {"CONN_MAX_AGE": 600, "CONN_HEALTH_CHECKS": True, **entry, "OPTIONS": options}
    if entry.get("HOST"):
        raise ImproperlyConfigured(f"{expected}; SQLite takes no host.")
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": str(base / entry["NAME"]),
        "CONN_MAX_AGE": None,
        "OPTIONS": {
            # A deferred transaction that reads first and writes then fails at once when another process has written
            # in between; an immediate one waits for its turn.
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL;PRAGMA synchronous=NORMAL;",
        },
    }


def read_broker(name: str) -> dict[str, Any]:
    """Where the queue keeps its messages, as part of ``Q_CLUSTER``: the database unless the variable names a Redis."""
    text = read_secret(name)
    if not text:
        return {"orm": "default"}
    parts = urlsplit(text)
    database = parts.path.strip("/") or "0"
    try:
        port = parts.port or 6379
    except ValueError:
        port = 0
    if parts.scheme not in {"redis", "rediss"} or not parts.hostname or not port or not database.isdigit():
        raise ImproperlyConfigured(f"{name} must be redis://user:password@host:6379/0, or rediss:// with TLS.")
    # Taken apart so that the password stands under a name that Django hides on its debug pages.
    return {
        "redis": {
            "host": parts.hostname,
            "port": port,
            "db": int(database),
            "username": unquote(parts.username) if parts.username else None,
            "password": unquote(parts.password) if parts.password else None,
            "ssl": parts.scheme == "rediss",
            **_REDIS_OPTIONS,
        }
    }


def _write_once(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` unless another process was faster; nobody ever sees half of it."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f"{path.name}.", encoding="utf-8") as file:
        file.write(f"{text}\n")
        file.flush()
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(file.name)


def _reason(error: OSError | ValueError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else "it is not UTF-8 text"
