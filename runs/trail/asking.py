"""Who asks: the request that this thread or task answers, as the trail needs it."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from django.contrib.auth.models import AbstractBaseUser
from django.http import HttpRequest

from runs.models import ApiToken
from runs.request_id import current_request, read_request_id
from runs.trail.acting import read_actor, read_task_actor

LONGEST_ADDRESS = 45

_is_silent: ContextVar[bool] = ContextVar("trail_is_silent", default=False)


@dataclass(frozen=True, slots=True)
class Asking:
    """Whoever asks; commands and tasks have a ``name`` at most."""

    user: AbstractBaseUser | None = None
    name: str = ""
    """Who does it where no request does."""
    token_name: str = ""
    address: str = ""
    request_id: str = ""


def read_asking() -> Asking:
    """Who asks now."""
    request = current_request.get()
    if request is None:
        return Asking(name=read_actor(), request_id=read_request_id() or "")
    name = read_task_actor()
    # Within a request, what is done in another name is not done by whoever is signed in.
    user = None if name else getattr(request, "user", None)
    # Django REST framework puts what it found out onto the request, too.
    token = getattr(request, "auth", None)
    return Asking(
        user=user if user is not None and user.is_authenticated else None,
        name=name,
        token_name=token.name if isinstance(token, ApiToken) else "",
        address=find_address(request),
        request_id=read_request_id() or "",
    )


def find_address(request: HttpRequest) -> str:
    """The address that a request comes from; what a proxy says of it counts as far as the server believes the proxy."""
    return str(request.META.get("REMOTE_ADDR") or "")[:LONGEST_ADDRESS]


def find_place(address: str) -> str:
    """An address of IPv4 as it is; of IPv6 the first one of its network: whoever has one there has all of them."""
    try:
        found = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    return str(found.ipv4_mapped or ipaddress.IPv6Network((found, 64), strict=False).network_address)


@contextmanager
def told_already() -> Iterator[None]:
    """Leave no entries for what happens in this block: one entry tells of all of it."""
    token = _is_silent.set(True)
    try:
        yield
    finally:
        _is_silent.reset(token)


def is_told_already() -> bool:
    """Whether this is in such a block."""
    return _is_silent.get()
