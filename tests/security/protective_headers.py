"""The headers that protect people, which every answer has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
EXPECTED = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def find_missing(answer: Any, policy: str = POLICY) -> Iterator[str]:
    """What an answer lacks."""
    if set(answer.headers.get("Content-Security-Policy", "").split("; ")) != set(policy.split("; ")):
        yield f"Content-Security-Policy: {answer.headers.get('Content-Security-Policy')}"
    yield from (
        f"{name}: {answer.headers.get(name)}" for name in EXPECTED if answer.headers.get(name) != EXPECTED[name]
    )
    if "camera=()" not in answer.headers.get("Permissions-Policy", ""):
        yield f"Permissions-Policy: {answer.headers.get('Permissions-Policy')}"
    if "Cache-Control" not in answer.headers:
        yield "Cache-Control"
    # Other sites read nothing of ours.
    yield from (name for name in answer.headers if name.lower().startswith("access-control-"))
