"""Environment variables: read, checked and explained.

Every reader takes the name of a variable. One that is unset or empty gives the default; one that is wrong raises
``ImproperlyConfigured`` with a sentence that names the variable and says what would be right. Values that may hold a
password or a key are never part of such a sentence; they may also come from the file that ``NAME_FILE`` names.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured
from environ import Env

from flows.engine.providers import FINE_TUNED, Api, Provider

_Default = TypeVar("_Default")
_Value = TypeVar("_Value")

MIN_SECRET_KEY_LENGTH = 32


def load_env_file(path: Path) -> None:
    """Add the ``NAME=value`` lines of ``path``, if it exists, to the environment; what is set already stays.

    Raises ``ImproperlyConfigured`` with the number of the first line that is none, no comment and not empty, and for
    a file that TOOLFLOW_ENV_FILE names and that does not exist.
    """
    if not path.exists() and read_text("TOOLFLOW_ENV_FILE"):
        raise ImproperlyConfigured(f"TOOLFLOW_ENV_FILE names {path}, which does not exist.")
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
    except (ValueError, LookupError, TypeError, OSError):
        raise ImproperlyConfigured(f"{name} is “{text}”; it must be {expected}.") from None


def read_list(
    name: str, default: Sequence[str] = (), *, validate: Callable[[str], object] = bool, expected: str = ""
) -> list[str]:
    """The parts between commas. ``validate`` raises ``ValueError``, or gives nothing, for one that is wrong."""
    parts = [part.strip() for part in read_text(name).split(",") if part.strip()]
    for part in parts:
        try:
            is_valid = bool(validate(part))
        except ValueError:
            is_valid = False
        if not is_valid:
            raise ImproperlyConfigured(f"{name} names “{part}”; it must list {expected}, between commas.")
    return parts or list(default)


def read_pairs(name: str) -> dict[str, str]:
    """``left=right`` pairs, between commas. What is left may hold an equals sign: the last one parts the two."""
    pattern = re.compile(r".*\S\s*=\s*[^=\s][^=]*")
    parts = read_list(name, validate=pattern.fullmatch, expected="pairs like staff=Editor")
    pairs = (part.rpartition("=") for part in parts)
    return {left.strip(): right.strip() for left, _, right in pairs}


def read_flag(name: str, *, default: bool) -> bool:
    """``true`` or ``false``, also spelled yes/no, on/off, 1/0."""
    flags = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    return read_value(name, default, lambda text: flags[text.lower()], "true or false")


def read_number(name: str, default: int | None, *, minimum: int, maximum: int = 10**9, is_whole: bool = True) -> Any:
    """A number within bounds, both of them allowed."""

    def parse(text: str) -> float:
        if not minimum <= (number := int(text) if is_whole else float(text)) <= maximum:
            raise ValueError
        return number

    noun = "a whole number" if is_whole else "a number"
    return read_value(name, default, parse, f"{noun} from {minimum:,} to {maximum:,}")


def read_choice(name: str, default: str, choices: Sequence[str]) -> str:
    """One of ``choices``, or ``default``."""
    text = read_text(name, default)
    if text not in (default, *choices):
        raise ImproperlyConfigured(f"{name} is “{text}”; it must be {' or '.join(choices)}.")
    return text


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
        headers = json.loads(text or "{}")
        is_valid = all(
            re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", header) and value.isascii() and value.isprintable()
            for header, value in headers.items()
        )
    except (ValueError, AttributeError):
        # It is not JSON, no object, or one with another value than a text.
        is_valid = False
    if not is_valid:
        raise ImproperlyConfigured(
            f'{name} must be a JSON object of HTTP headers and their values, such as {{"X-Team": "research"}}.'
        )
    return dict(headers)


def read_providers(name: str) -> dict[str, Provider]:
    """Model providers by name, each with its own variables: ``TOOLFLOW_PROVIDER_<NAME>_BASE_URL`` and so on."""
    # Names of fine-tuned models begin with it.
    pattern = re.compile(rf"(?!{FINE_TUNED}$)[a-z][a-z0-9]*(-[a-z0-9]+)*")
    expected = f"names of lower-case letters, digits and single hyphens, and not “{FINE_TUNED}”"
    providers = {}
    for text in read_list(name, validate=pattern.fullmatch, expected=expected):
        variable = Provider(name=text).variable
        providers[text] = Provider(
            name=text,
            base_url=read_base_url(variable("BASE_URL")),
            api_key=read_secret(variable("API_KEY")),
            api=Api(read_choice(variable("API"), Api.AUTO, tuple(Api))),
            headers=read_headers(variable("HEADERS")),
        )
        if not providers[text].base_url:
            raise ImproperlyConfigured(f"{variable('BASE_URL')} must be the address of the API of “{text}”.")
    return providers


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
