"""The page about limits says what the code does."""

from __future__ import annotations

import pytest

from runs.limits import gate
from runs.limits.ledger import HOLDING_SECONDS
from runs.limits.rules import Bucket, Limit, Resource
from runs.models import RateLimit
from tests.test_docs import read_page, read_table


@pytest.mark.parametrize(
    "text",
    [
        f"it waits for up to {gate.MAX_WAIT.seconds} seconds",
        Limit(1, "gpt-5-mini", requests_per_minute=60).describe(Resource.REQUESTS),
        f"else {gate.DEFAULT_COMPLETION_TOKENS})",
        f"count for at most {HOLDING_SECONDS:.0f} seconds more",
        f"would let {Bucket.for_minute(500).rate:.1f} calls begin each second",
        f"the 200,000 tokens only {Bucket.for_minute(200_000).rate / 1_500:.1f}",
    ],
)
def test_the_page_about_limits_has_the_figures_that_hold(text: str) -> None:
    assert text in " ".join(read_page("docs/limits.md").split())


def test_the_page_about_limits_has_every_field_of_the_form() -> None:
    documented = [row[0] for row in read_table("docs/limits.md", "## Limits of the provider")]
    fields = [field.verbose_name for field in RateLimit._meta.fields if not field.primary_key]
    assert [name.lower() for name in documented] == fields
