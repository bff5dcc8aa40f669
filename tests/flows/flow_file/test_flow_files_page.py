"""What docs/flow-files.md says is so: its example is imported, its rules of quoting are tried."""

from __future__ import annotations

import pytest
import yaml

from flows.flow_file import FlowFileError, parse_document, parse_flow
from flows.models import Flow
from tests.flows.loading import load_flow
from tests.test_docs import find_blocks

PAGE = "docs/flow-files.md"


@pytest.mark.django_db
def test_the_example_can_be_imported_and_means_the_same_to_every_yaml_parser() -> None:
    ((_, text),) = find_blocks(PAGE, "yaml")
    spec = parse_flow(text)
    assert load_flow(document=spec.to_document()).digest == spec.digest
    assert Flow.objects.runnable().get().title == "Answers to letters"
    assert parse_document(text) == yaml.safe_load(text)


@pytest.mark.parametrize(
    "text",
    ["!output.ok", "'a' + output.text", "[1, 2].filter(x, x > 1)", "{'a': 1}", "ok ? 1 : 2", "12", "true", "1e3", "*a",
     "&a", "@a", "%a", "`a"],
)  # fmt: skip
def test_text_that_the_page_wants_quoted_is_refused_without(text: str) -> None:
    flow = "name: tea\nsteps:\n  - name: Pour\n    compute: '{}'\n    description: "
    assert parse_flow(f'{flow}"{text}"').steps[0].description == text
    with pytest.raises(FlowFileError, match=r"(?i)quotes|must be|valid string"):
        parse_flow(flow + text)
