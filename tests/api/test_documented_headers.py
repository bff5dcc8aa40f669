"""Headers of answers: the document names all that say something of this API."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.http import HttpResponse

from runs.api import idempotency
from runs.api.documentation import build_schema
from tests.api.asking import Script, make_token, make_user
from tests.api.test_access_matrix import FLOW, ORDER, PAGES, TABLE, World

pytestmark = pytest.mark.django_db

GENERAL = {
    "allow",
    "cache-control",
    "content-disposition",
    "content-length",
    "content-security-policy",
    "content-type",
    "cross-origin-opener-policy",
    "cross-origin-resource-policy",
    "permissions-policy",
    "referrer-policy",
    "vary",
    "x-accel-buffering",
    "x-content-type-options",
    "x-frame-options",
    "x-request-id",
}
"""What every web server may send, and says nothing of this API."""

IN_NONE = {"", "schema"} | PAGES
"""Addresses that are no operations of the document."""


def find_unnamed(address: str, method: str, answer: HttpResponse) -> Iterator[str]:
    """The headers of an answer that the document doesn't name; or that it names no such answer at all."""
    schema = build_schema()
    path = "/" + re.sub(r"<(\w+)>", r"{\1}", address)
    known = schema["paths"][path][method.lower()]["responses"].get(str(answer.status_code))
    if known is None:
        yield f"{method} {address} answers {answer.status_code}"
        return
    if "$ref" in known:
        known = schema["components"]["responses"][known["$ref"].rpartition("/")[2]]
    sent = {name.lower() for name in answer.headers}
    for name in sorted(sent - GENERAL - {name.lower() for name in known["headers"]}):
        yield f"{method} {address} answers {answer.status_code} with {name}"


def test_every_header_of_an_answer_stands_in_the_document(groups: None, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    script = Script(make_token(make_user("chief", "Editor", "Administrator")))
    stranger = Script()
    missing: list[str] = []
    seen: set[tuple[str, int]] = set()
    for address, methods in TABLE.items():
        if address in IN_NONE:
            continue
        for method, ask in methods.items():
            if method == "HEAD":
                continue
            path = world.fill(address + ask.query)
            answers = [stranger.ask(method, path), script.ask(method, f"{path.partition('?')[0]}?colour=red")]
            # Twice: what is there already, or was answered before, is told in other words.
            headers = {"Idempotency_Key": f"{method} {address}"} if method == "POST" else {}
            answers += [script.ask(method, path, ask.body, **headers) for _ in range(2)]
            if tag := answers[-1].get("ETag"):
                answers.append(script.ask(method, path, If_None_Match=tag))
            for answer in answers:
                missing += find_unnamed(address, method, answer)
                seen |= {(name.lower(), answer.status_code) for name in answer.headers}
    # What only a certain request is answered with.
    special = [
        ("flows/<name>", "PUT", script.put("flows/colour-theme", FLOW, If_Match='"other"')),
        ("runs", "GET", script.get("runs?limit=1")),
        ("runs", "POST", script.post("runs", ORDER, Prefer="wait=0")),
        ("runs", "POST", script.post("runs", ORDER, Content_Encoding="gzip")),
        ("runs", "POST", script.post("runs", ORDER, Content_Type="text/plain")),
    ]

    def be_busy(request: Any, key: str) -> None:
        raise idempotency.build_in_use_problem()

    monkeypatch.setattr(idempotency, "_lock", be_busy)
    special.append(("runs", "POST", script.post("runs", ORDER, Idempotency_Key="busy")))
    with pytest.MonkeyPatch.context() as strict:
        strict.setattr("django.conf.settings.TOOLFLOW_API_STRANGERS_PER_MINUTE", 0)
        special.append(("runs", "GET", stranger.get("runs")))
    for address, method, answer in special:
        missing += find_unnamed(address, method, answer)
        seen |= {(name.lower(), answer.status_code) for name in answer.headers}
    assert not missing, "\n".join(missing)
    expected: Any = {
        ("idempotency-replayed", 201),
        ("idempotency-replayed", 202),
        ("etag", 304),
        ("etag", 412),
        ("link", 200),
        ("retry-after", 409),
        ("retry-after", 429),
        ("accept-encoding", 415),
    }
    assert expected <= seen, expected - seen
