"""Documents are written as JSON that says just what is in them."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from django.utils.translation import gettext_lazy

from runs.api.rendering import DocumentRenderer
from runs.models import RunStatus


def make_deep(levels: int) -> Any:
    return [make_deep(levels - 1)] if levels else "bottom"


@pytest.mark.parametrize(
    "document",
    [
        {"items": [], "next": None, "is_it": True, "amount": 0.1, "é": "😀 \u2028 \x7f \x00 </script>"},
        {"large": 10**40, "small": -1e-300, "negative": -(10**25)},
        make_deep(100),
        make_deep(400),
        "text",
        [],
    ],
)
def test_what_is_written_reads_as_what_it_was(document: Any) -> None:
    assert json.loads(DocumentRenderer().render(document)) == document


def test_what_json_has_no_word_for_is_written_as_text_and_no_number_as_null() -> None:
    document = {"status": RunStatus.QUEUED, "word": gettext_lazy("Yes"), "cost": Decimal("0.10"), "share": float("nan")}
    written = DocumentRenderer().render(document)
    assert json.loads(written) == {"status": "queued", "word": "Yes", "cost": "0.10", "share": None}


def test_nothing_is_no_bytes_and_who_asks_for_indents_gets_them() -> None:
    assert DocumentRenderer().render(None) == b""
    assert DocumentRenderer().render({"a": 1}, "application/json; indent=2") == b'{\n  "a": 1\n}'
