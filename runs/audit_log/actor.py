"""Who acts: the user whose request is being answered, a command, a sign-in provider, or ToolFlow itself.

Commands name themselves before Django is set up: this module imports no models.
"""

from __future__ import annotations

import ipaddress
import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from django.http import HttpRequest

from runs.observability.log_events import current_request, read_request_id

if TYPE_CHECKING:
    from django.contrib.auth.models import AbstractBaseUser

TOOLFLOW = "ToolFlow"
"""The actor of policies and schedules."""
PROVIDER = "Sign-in provider"
"""The actor of groups that change at a sign-in through a provider."""

SERVING = frozenset({"run_worker", "serve", "up", "runserver"})
"""Commands that run on: what they do is not done by the user who started them."""
MAX_ADDRESS_LENGTH = 45

_name: ContextVar[str] = ContextVar("audit_log_actor", default="")
_process_name = ""


def describe_actor(user: AbstractBaseUser | None = None) -> dict[str, Any]:
    """Who acts now, or ``user`` who sends no request, by the columns of an entry."""
    request, name = current_request.get(), _name.get()
    found: dict[str, Any] = {"actor_name": name or _process_name, "request_id": read_request_id() or ""}
    if request is not None:
        # Django REST framework puts the token, if one was sent, onto the request.
        token_name = getattr(getattr(request, "auth", None), "name", "")
        found |= {"actor_name": name, "token_name": token_name, "address": find_address(request)}
        # Within a request, what is done in another name is not done by the user who is signed in.
        user = user or (None if name else getattr(request, "user", None))
    if user is not None and user.is_authenticated:
        found |= {"actor_id": user.pk, "actor_name": user.get_username()}
    return found


@contextmanager
def acting_as(name: str) -> Iterator[None]:
    """Let ``name`` be the actor in this block."""
    token = _name.set(name)
    try:
        yield
    finally:
        _name.reset(token)


def act_as_command(command: str, *, caller: str = "") -> None:
    """Let the user who started ``command`` be the actor of this process, or ToolFlow if it serves.

    ``caller`` is the user behind ``sudo``; without one it is the user of the operating system.
    """
    global _process_name  # noqa: PLW0603  # it is what the process was started for
    _process_name = TOOLFLOW if command in SERVING else f"Command line: {caller or _fetch_system_user()}"


def find_address(request: HttpRequest) -> str:
    """The address that a request comes from; what a proxy says of it counts as far as the server believes the proxy."""
    return str(request.META.get("REMOTE_ADDR") or "")[:MAX_ADDRESS_LENGTH]


def find_place(address: str) -> str:
    """An IPv4 address as it is; of an IPv6 address the first one of its /64, which one user has as a whole."""
    try:
        found = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    return str(found.ipv4_mapped or ipaddress.IPv6Network((found, 64), strict=False).network_address)


def _fetch_system_user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        # In a container it may have no name.
        return f"user {os.getuid()}"
