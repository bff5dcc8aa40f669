"""What PostgreSQL did to answer a statement."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from django.db import connection


def explain_nodes(sql: str) -> Iterator[Any]:
    """The nodes of the plan by which PostgreSQL answers a statement, with what each of them read."""
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql.replace('%', '%%')}")
        (answer,) = cursor.fetchone()
    yield from _list_nodes((answer if isinstance(answer, list) else json.loads(answer))[0]["Plan"])


def count_read(node: Any) -> int:
    """Rows that a node read, those that it left out among them."""
    read: int = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
    return read


def _list_nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _list_nodes(child)
