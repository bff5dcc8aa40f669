"""Addresses that many pages have dozens of times."""

from __future__ import annotations

from functools import lru_cache

from django.urls import get_script_prefix, reverse


def find_address(name: str, *values: str) -> str:
    """The address that ``reverse`` gives, found once: for names alone or with fixed ``values``, never for one run's."""
    return _find_address(get_script_prefix(), name, values)


@lru_cache(maxsize=500)
def _find_address(prefix: str, name: str, values: tuple[str, ...]) -> str:
    """``prefix`` is where the site stands, which an address begins with."""
    return reverse(name, args=values)
