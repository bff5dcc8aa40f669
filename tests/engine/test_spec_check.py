"""What is refused, warned about and frozen when a flow is saved; ``tests/contract/golden/bad_flows.yaml`` has more."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import BaseModel

from flows.engine.errors import SpecError
from flows.engine.expression_paths import find_field_warnings
from flows.engine.plugins import Registry
from flows.engine.spec import AuditSpec, FlowSpec, ModelSettings
from flows.engine.spec_check import (
    MAX_PATH_WARNINGS,
    check_spec,
    find_warnings,
    freeze_schemas,
    prepare_spec,
    read_document,
)
from flows.engine.typed_output import schema_of_type
from tests.contract.random_cases import make_case
from tests.engine.builders import INVOICE, TEXT_SCHEMA, closed, make_flow, make_step


class Report(BaseModel):
    title: str
    pages: int


class Scores(BaseModel):
    by_name: dict[str, int]


def make_registry() -> Registry:
    registry = Registry()
    registry.output_type("report")(Report)
    registry.output_type("scores")(Scores)
    registry.audit("polite")(lambda output, input, steps: True)
    registry.audit("greedy")(lambda output, previous, limit=3: True)
    registry.function("greedy")(lambda issues, output, input: True)
    registry.function("tidy")(lambda value: value)
    return registry


def check(*steps: Any, **fields: Any) -> dict[str, str]:
    """The problems of a flow, by their pointers."""
    found: dict[str, str] = {}
    for problem in check_spec(make_flow(*steps, **fields), make_registry()):
        found[problem.path] = f"{found.get(problem.path, '')}{problem.message}"
    return found


def audit(name: str = "Length", rule: str = "true", **fields: Any) -> AuditSpec:
    return AuditSpec(name=name, rule=rule, **fields)


class TestProblems:
    @pytest.mark.parametrize(
        ("rule", "expression", "reported"),
        [
            ("python:tidy", "python:polite", ("No function is registered", "No audit is registered as “tidy”.")),
            ("python:greedy", "python:greedy", ("Available: issues, output.", "the parameter “previous”")),
        ],
    )
    def test_audits_and_functions_are_kept_apart_and_get_only_what_is_on_offer(
        self, rule: str, expression: str, reported: tuple[str, str]
    ) -> None:
        problems = check(make_step(audits=(audit(rule=rule),), pass_expression=expression))
        assert list(problems) == ["/steps/0/pass_expression", "/steps/0/audits/0/rule"]
        assert all(words in message for words, message in zip(reported, problems.values(), strict=True))

    @pytest.mark.parametrize("field", ["output_schema", "input_schema"])
    @pytest.mark.parametrize("kind", ["deep", "circular", "NaN", "object", "NUL"])
    def test_whatever_stands_in_a_schema_is_reported_and_never_a_crash(self, field: str, kind: str) -> None:
        schema: dict[str, Any] = {**TEXT_SCHEMA, "properties": {"text": {"type": "string"}}}
        text = schema["properties"]["text"]
        if kind == "deep":
            for _ in range(300):
                schema = {**schema, "properties": {"text": schema}}
        elif kind == "circular":
            schema["properties"]["text"] = schema
        else:
            text["const"] = {"NaN": float("nan"), "object": object(), "NUL": "a\0"}[kind]
        if field == "output_schema":
            assert check(make_step(output_schema=schema)).keys() == {"/steps/0/output_schema"}
        else:
            assert check(input_schema=schema).keys() == {"/input_schema"}

    def test_all_problems_of_a_flow_come_together_one_line_each(self) -> None:
        steps = (
            make_step(1, include_results=(1,)),
            make_step(2, output_schema={"type": "array"}),
            make_step(3, output_type="scores", output_schema=None),
        )
        with pytest.raises(SpecError) as caught:
            prepare_spec(make_flow(*steps), registry=make_registry(), defaults=ModelSettings(model="gpt-4.1"))
        problems = {problem.path: problem.message for problem in caught.value.problems}
        assert problems.keys() >= {"/steps/0/include_results/0", "/steps/1/output_schema/type", "/steps/2/output_type"}
        assert problems["/steps/2/output_type"].startswith("The type “scores”, /properties/by_name")
        assert str(caught.value).count("\n") == len(caught.value.problems) - 1


class TestFreezing:
    def test_the_schema_of_a_registered_type_is_written_into_its_step_and_stays(self) -> None:
        flow = make_flow(make_step(output_type="report", output_schema=None))
        frozen = freeze_schemas(flow, make_registry())
        assert frozen.step(1).output_schema == schema_of_type(Report)
        assert flow.step(1).output_schema is None, "the flow itself stays as it was"

        class Changed(BaseModel):
            headline: str

        later = Registry()
        later.output_type("report")(Changed)
        prepared = prepare_spec(frozen, registry=later, defaults=ModelSettings(model="m"))
        assert prepared.step(1).output_schema == frozen.step(1).output_schema

    def test_a_prepared_flow_is_frozen_and_every_model_step_knows_its_model(self) -> None:
        step = make_step(1, output_type="report", output_schema=None, model=None)
        flow = make_flow(step, make_step(2, compute="{}"), model="gpt-4.1")
        defaults = ModelSettings(model="default", temperature=0.5)
        first, second = prepare_spec(flow, registry=make_registry(), defaults=defaults).steps
        assert first.output_schema == schema_of_type(Report)
        assert (first.model, first.temperature, second.model) == ("gpt-4.1", 0.5, None)

    def test_the_digest_is_that_of_the_document_also_after_its_schema_was_changed(self) -> None:
        schema: dict[str, Any] = closed()
        spec = make_flow(make_step(output_schema=schema))
        before = spec.digest
        schema["properties"]["text"] = {"type": "string"}
        assert before != spec.digest == FlowSpec.from_document(spec.to_document()).digest


NUMBER = {"type": ["number", "null"]}
NODE = closed(value=NUMBER, children={"type": "array", "items": {"$ref": "#/$defs/node"}})
TREE: dict[str, Any] = {
    **closed(
        root={"$ref": "#/$defs/node"},
        choice={"anyOf": [closed(left=NUMBER), closed(right=NUMBER), {"type": "null"}]},
        labels={"type": ["object", "null"], "additionalProperties": {"type": "string"}},
        anything={},
    ),
    "$defs": {"node": NODE},
}


class TestWarnings:
    """Paths of expressions that lead nowhere by the schemas: what gets a warning, and what never does."""

    @staticmethod
    def warn(text: str, output: Any = INVOICE, *, field: str = "rule", **more: Any) -> list[str]:
        """The warnings about an expression of step 3 over an open input, an invoice of step 1 and a tree of step 2."""
        schemas = {0: {"type": "object", "properties": {"customer": {}}}, 1: INVOICE, 2: TREE, 3: output}
        return [warning.message for warning in find_field_warnings(field, text, step=3, schemas=schemas, **more)]

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("output.totl > 1.0", "“output” has no property “totl”. Did you mean “total”?"),
            ("output['totl'] > 1.0", "“totl”"),
            ("output.lines[0].amuont", "“output.lines[0]” has no property “amuont”."),
            ("{'a': [output.zzz]}", "It has supplier, total, lines."),
            ("output.lines.all(line, line.amuont > 0.0)", "“line” has no property “amuont”."),
            ("output.supplier.name", "string"),
            ("output.lines.amount", "output.lines[0]"),
            ("input.custmer", "“customer”?"),
            ("steps[2].output.root.children[0].children[1].valu", "“value”?"),
            ("steps[2].output.choice.middle", "It has left, right."),
            ("steps[1].result", "It has name, output, issues, passed."),
            ("steps.output", "“steps” is a list"),
            ("steps[3].output", "only steps[0] to steps[2]"),
        ],
    )
    def test_a_property_that_cannot_be_there_gets_one(self, text: str, words: str) -> None:
        (message,) = self.warn(text)
        assert words in message

    @pytest.mark.parametrize(
        "text",
        [
            "output.total + output.lines[0].amount > 1.0 && output.supplier.size() > 3",
            "has(output.totl) && output.totl > 1.0",
            "'totl' in output ? output['totl'] : output.total",
            "'output.totl' == \"output.totl\" // output.totl",
            "output.lines.map(l, l.amount) == [1.0] && [{'b': 1}].map(l, l.b) == [1]",
            "{'totl': 1}.totl == 1 && input.whatever",
            "steps[2].output.labels.whatever == steps[2].output.anything.at.all",
            "steps[2].output.choice.left == 1.0 || steps[2].output.choice.right == 1.0",
            "steps[size(steps) - 1].output.whatever && steps[1].issues[0].whatever",
            "steps.filter(s, s.passed).map(s, s.output.whatever)",
        ],
    )
    def test_what_may_be_there_never_gets_one(self, text: str) -> None:
        assert self.warn(text) == []

    @pytest.mark.parametrize(
        "schema",
        [None, {**INVOICE, "additionalProperties": True}, {"type": ["object", 7]}, {"$ref": "#"}, {"anyOf": [7]}, {}],
    )
    def test_a_schema_that_is_open_or_still_being_written_gives_none(self, schema: Any) -> None:
        assert self.warn("output.x.y[0].z == output.x[1] && output.totl == 1", schema) == []

    def test_of_many_the_first_are_shown_and_the_rest_counted(self) -> None:
        audits = [{"name": f"a{number}", "rule": "output.nothing == 1"} for number in range(MAX_PATH_WARNINGS + 3)]
        warnings = find_warnings(make_flow(make_step(output_schema=TEXT_SCHEMA, audits=audits)))
        assert (len(warnings), warnings[-1].message.startswith("3 more")) == (MAX_PATH_WARNINGS + 1, True)


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
def test_all_spoiled_fields_are_reported_and_what_is_wrong_with_the_others_too(
    number: int, data: st.DataObject
) -> None:
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
    reported = [problem.path for problem in problems]
    assert [reported.count(pointer) for pointer in spoiled] == [1] * len(spoiled), "nothing else is said of them"
    assert json.dumps(document) == before, "the document stays as it is"
    if {"", "/steps"}.isdisjoint(of_its_own):
        assert spec is not None and f"/steps/{len(document['steps']) - 1}/compute" in reported
        # Nothing is reported of a sound part because another one is spoiled.
        parts = {pointer.rpartition("/")[0] for pointer in spoiled}
        _, without = read(json.loads(unspoiled))
        new = {path for path in {*reported} - without.keys() - spoiled if path.rpartition("/")[0] not in parts}
        assert not {path for path in new if path.startswith("/steps")}, new


@pytest.mark.parametrize("document", [None, 7, "x", [], {}, {"steps": 1}, {"steps": []}, {"steps": [{}] * 51}])
def test_what_has_no_steps_is_no_flow(document: Any) -> None:
    spec, reported = read(document)
    assert spec is None and reported


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
        spec, reported = read(one)
        assert spec is not None or reported
