"""Stored versions keep their digests: a document means the same flow for ever, and is stored in one form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flows.engine import FlowSpec
from tests.contract.golden import check_golden, read_golden
from tests.contract.site import YAML, Api, select_rows

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "flows" / "examples").glob("*.yaml"))


def test_documents_keep_their_digests_and_their_stored_form() -> None:
    found = []
    for case in read_golden("golden/documents.yaml"):
        spec = FlowSpec.from_document(case["document"])
        stored = spec.to_document()
        assert FlowSpec.from_document(stored).digest == spec.digest
        is_same = list(_flatten(stored)) == list(_flatten(case["document"]))
        found.append(
            {"document": case["document"], "digest": spec.digest} | ({} if is_same else {"normalised": stored})
        )
    check_golden("golden/documents.yaml", found)


def _flatten(value: Any, path: str = "") -> Any:
    """The leaves of a document in their order, with their places and types."""
    if isinstance(value, dict) and value:
        for name, part in value.items():
            yield from _flatten(part, f"{path}/{name}")
    elif isinstance(value, list) and value:
        for index, part in enumerate(value):
            yield from _flatten(part, f"{path}/{index}")
    else:
        yield path, type(value).__name__, value


@pytest.mark.django_db
def test_example_flows_are_stored_with_the_same_digests() -> None:
    api = Api()
    for path in EXAMPLES:
        api.fetch("POST", "flows", path.read_text("utf-8"), kind=YAML)
    rows = select_rows(
        "SELECT f.name, v.number, v.digest FROM flows_flowversion v JOIN flows_flow f ON f.id = v.flow_id ORDER BY 1"
    )
    live = [api.fetch("GET", f"flows/{row['name']}")["live"] for row in rows]
    assert [one["digest"] for one in live] == [row["digest"] for row in rows]
    assert [FlowSpec.from_document(one["document"]).digest for one in live] == [row["digest"] for row in rows]
    check_golden("golden/example_digests.yaml", {row["name"]: row["digest"] for row in rows})
