"""Limits of the provider, shared by all drains on all hosts: calls in flight, requests and tokens a minute.

``rules`` are what staff set, ``ledger`` is the arithmetic, ``stores`` are where it is kept, and ``gate`` is what stands
before the calls of a drain.
"""

from __future__ import annotations

from django.conf import settings

from runs.limits.gate import SharedGate
from runs.limits.rules import load_rules
from runs.limits.stores import Ask, DatabaseStore, FallbackStore, RedisStore, Store

__all__ = ["SharedGate", "create_gate"]


def create_gate(*, owner: str, ask: Ask) -> SharedGate:
    """The gate of the drain that is named ``owner``; to be made on its event loop, and read by ``refresh()``.

    ``ask`` does a function on the drain's database thread.
    """
    store: Store = DatabaseStore(ask)
    if redis := settings.Q_CLUSTER.get("redis"):
        store = FallbackStore(RedisStore(redis, key=f"{settings.Q_CLUSTER['name']}:limits"), store)
    return SharedGate(owner=owner, store=store, read_rules=lambda: ask(load_rules))
