"""What docs/flow-files.md says is so: its example is imported, its rules of quoting are tried."""

from __future__ import annotations

import pytest
import yaml

from flows.flow_file import FlowFileError, read_document, read_flow, write_flow
from flows.models import Flow
from flows.portability import load_flow
from tests.test_docs import find_blocks, read_page

PAGE = "docs/flow-files.md"


def read_example() -> str:
    ((_, text),) = find_blocks(PAGE, "yaml")
    return text


@pytest.mark.django_db
def test_the_example_can_be_imported_and_is_the_same_when_it_comes_out_again() -> None:
    spec = read_flow(read_example())
    version = load_flow(document=spec.to_document())
    assert version.digest == spec.digest == read_flow(write_flow(version.flow_spec)).digest
    assert Flow.objects.runnable().get().title == "Answers to letters"


def test_the_example_means_the_same_to_every_yaml_parser() -> None:
    assert read_document(read_example()) == yaml.safe_load(read_example())


@pytest.mark.parametrize(
    ("text", "is_told"),
    [("!output.ok", True), ("'a' + output.text", True), ("[1, 2].filter(x, x > 1)", True), ("{'a': 1}", True),
     ("ok ? 1 : 2", True), ("12", True), ("true", True), ("1e3", True), ("*a", True), ("&a", True), ("@a", True),
     ("%a", True), ("`a", True), ("Issue # 5", False)],
)  # fmt: skip
def test_text_that_the_page_wants_quoted_is_not_that_text_without(text: str, is_told: bool) -> None:
    flow = "name: tea\nsteps:\n  - name: Pour\n    compute: '{}'\n    description: "
    assert read_flow(f'{flow}"{text}"').steps[0].description == text
    if is_told:
        with pytest.raises(FlowFileError, match=r"(?i)quotes|must be|valid string"):
            read_flow(flow + text)
    else:
        assert read_flow(flow + text).steps[0].description == "Issue"


@pytest.mark.parametrize("limit", ["larger than 1 MB", "more than 50,000 values", "deeper than 100 levels"])
def test_the_page_has_the_limits_that_hold(limit: str) -> None:
    assert limit in " ".join(read_page(PAGE).split())
