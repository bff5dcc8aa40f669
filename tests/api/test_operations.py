"""How queries and bodies are parsed, how answers are written, and what the OpenAPI document says of both."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from django.http import QueryDict
from pydantic import Field

from runs.api.base import describe_query, parse_body, parse_query
from runs.api.media_types import JsonRenderer
from runs.documents.base import (
    NUMBER,
    Amount,
    Answer,
    Body,
    Flag,
    FreeObject,
    Omitted,
    Positive,
    Query,
    RowNumber,
    Text,
    Whole,
)


class Search(Query):
    flag: Flag = Field(False, description="A flag.")
    order: Literal["up", "down"] = "up"
    status: list[Literal["a", "b"]] = Field(default_factory=list)
    after: RowNumber | None = None
    tokens: Annotated[int, Field(ge=0), NUMBER] | None = None


class Part(Body):
    size: Whole


class Order(Body):
    name: Text = Field(min_length=1, max_length=5)
    count: Positive | None = None
    input: FreeObject = Field(default_factory=dict)
    parts: list[Part] = Field(default_factory=list)


class Receipt(Answer):
    cost: Amount | None = Field(validation_alias="total_cost")
    at: datetime
    took: timedelta | None
    anything: Any
    usage: int | Omitted = None


class Sent:
    """A request with a body."""

    def __init__(self, data: Any) -> None:
        self.data = data


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", {}),
        ("flag=true&order=down", {"flag": True, "order": "down"}),
        ("status=a,b&status=a", {"status": ["a", "b", "a"]}),
        ("after=00012", {"after": 12}),
        ("after=" + "9" * 40, {"after": 2**63 - 1}),
    ],
)
def test_parameters_are_parsed(query: str, found: dict[str, Any]) -> None:
    assert parse_query(Search, QueryDict(query)).model_dump(exclude_unset=True) == found


def test_parameters_are_described_as_they_are_parsed() -> None:
    shapes = {one.name: (one.type, one.explode) for one in describe_query(Search)}
    assert shapes == {
        "flag": ({"type": "boolean", "default": False}, None),
        "order": ({"type": "string", "enum": ["up", "down"], "default": "up"}, None),
        "status": ({"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}, False),
        "after": ({"type": "integer", "minimum": 1}, None),
        "tokens": ({"type": "integer", "minimum": 0}, None),
    }


def test_a_body_is_parsed() -> None:
    order = parse_body(Order, Sent({"name": "Ada", "count": 2.0, "input": {"\ud800": None}, "parts": [{"size": 1}]}))  # type: ignore[arg-type]
    assert (order.name, order.count, order.input, order.parts[0].size) == ("Ada", 2, {"\ud800": None}, 1)


def test_an_answer_is_written_as_plain_json() -> None:
    at = datetime(2026, 11, 23, 12, 0, 0, 100_000, tzinfo=UTC)
    anything = {"é": "😀 \u2028 \x7f </script>", "large": 10**40, "share": float("nan")}
    values = {"total_cost": Decimal("0E-8"), "at": at, "took": timedelta(milliseconds=1500), "anything": anything}
    written = JsonRenderer().render(Receipt.model_validate(values))
    assert json.loads(written) == {
        "cost": "0.00000000",
        "at": "2026-11-23T12:00:00.100000Z",
        "took": 1.5,
        "anything": {**anything, "share": None},
    }
    assert JsonRenderer().render(None) == b""
