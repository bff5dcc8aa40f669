"""Documents that may hold anything: all that is wrong is told at once, and nothing that is not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from flows.engine.plugins import Registry
from flows.engine.spec import FlowSpec
from flows.engine.spec_check import check_spec, read_document
from tests.contract.random_cases import make_case

SPOILED = {
    "flow": {"title": 5, "name": "A b", "token_budget": "x", "cost_budget": True, "redact": 7, "model": "", "a/b": 1},
    "step": {
        "name": "",
        "max_retries": -1,
        "tool_name": "a b",
        "include_results": "x",
        "output_schema": 3,
        "compute": 5,
        "stop_on_failure": "no",
        "input_expression": "",
        "temperature": 9,
        "": 0,
        "colour": None,
    },
    "audit": {"name": 1, "rule": [], "severity": "odd", "fail_at": 1, "message": "", "~": None},
}
"""Values that no field of that name takes, and fields that there are not."""


def read(document: Any) -> tuple[FlowSpec | None, dict[str, str]]:
    spec, problems = read_document(document, lambda spec: check_spec(spec, Registry()))
    return spec, {problem.path: problem.message for problem in problems}


def list_parts(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    """The flow, its steps and their audits, each with its kind and pointer."""
    parts = [("flow", "", document)]
    for index, step in enumerate(document["steps"]):
        parts.append(("step", f"/steps/{index}", step))
        audits = enumerate(step.get("audits", ()))
        parts += [("audit", f"/steps/{index}/audits/{position}", audit) for position, audit in audits]
    return parts


def escape(field: str) -> str:
    return field.replace("~", "~0").replace("/", "~1")


@given(number=st.integers(0, 5000), data=st.data())
def test_all_spoiled_fields_are_told_and_what_is_wrong_with_the_others_too(number: int, data: st.DataObject) -> None:
    document = make_case(7, number)["spec"]
    _, of_its_own = read(document)
    assume(isinstance(document["steps"], list))
    document["steps"].append({"name": "Last of all", "compute": "nobody"})
    unspoiled = json.dumps(document)
    places = {
        f"{pointer}/{escape(field)}": (part, field, bad)
        for kind, pointer, part in list_parts(document)
        for field, bad in SPOILED[kind].items()
        if not pointer.startswith(f"/steps/{len(document['steps']) - 1}")
    }
    spoiled = data.draw(st.sets(st.sampled_from(sorted(places)), min_size=1, max_size=6))
    for pointer in spoiled:
        part, field, bad = places[pointer]
        part[field] = bad
    before = json.dumps(document)
    spec, problems = read_document(document, lambda spec: check_spec(spec, Registry()))
    told = [problem.path for problem in problems]
    assert [told.count(pointer) for pointer in spoiled] == [1] * len(spoiled), "nothing else is said of them"
    assert json.dumps(document) == before, "the document stays as it is"
    if {"", "/steps"}.isdisjoint(of_its_own):
        assert spec is not None and f"/steps/{len(document['steps']) - 1}/compute" in told
        # Nothing is told of a sound part because another one is spoiled.
        parts = {pointer.rpartition("/")[0] for pointer in spoiled}
        _, without = read(json.loads(unspoiled))
        new = {path for path in {*told} - without.keys() - spoiled if path.rpartition("/")[0] not in parts}
        assert not {path for path in new if path.startswith("/steps")}, new


@pytest.mark.parametrize("document", [None, 7, "x", [], {}, {"steps": 1}, {"steps": []}, {"steps": [{}] * 51}])
def test_what_has_no_steps_is_no_flow(document: Any) -> None:
    spec, told = read(document)
    assert spec is None and told


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "steps", "audits", "rule", "output_schema", "compute", "", "/", "0"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(anything, anything, anything)
def test_nothing_raises(document: Any, steps: Any, audits: Any) -> None:
    for one in (document, {"name": "a", "steps": steps}, {"steps": [steps, {"name": "b", "audits": audits}]}):
        spec, told = read(one)
        assert spec is not None or told
