"""Outputs of registered types: built from what came back, or an issue that says why not."""

from __future__ import annotations

import threading
from datetime import date
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, field_validator

from flows.engine.errors import SpecError
from flows.engine.history import Outcome, Severity
from flows.engine.judging import Judgement
from flows.engine.plugins import Registry
from flows.engine.strict_schema import check_strict
from flows.engine.typed_output import build_type, schema_of_type
from tests.engine.audit_parts import judge, rules


class Colour(BaseModel):
    name: str
    hex: str = Field(pattern="^#[0-9A-F]{6}$")


class Palette(BaseModel):
    colours: list[Colour]

    @field_validator("colours")
    @classmethod
    def refuse_twins(cls, colours: list[Colour]) -> list[Colour]:
        if len({colour.name for colour in colours}) < len(colours):
            raise ValueError("two colours have one name")
        return colours

    def audit(self) -> Any:
        return [f"{colour.name} is grey." for colour in self.colours if colour.name == "Ash"]


class Visit(BaseModel):
    model_config = ConfigDict(strict=True)

    day: date
    place: tuple[str, str] = ("", "")


class Tree(BaseModel):
    name: str
    children: list[Tree] = []


class Choice(BaseModel):
    value: int | Tree


class Free(BaseModel):
    notes: dict[str, str]


class Leaf(BaseModel):
    child: Leaf | Branch | None
    kind: Literal["leaf"]


class Branch(BaseModel):
    child: Leaf | Branch | None
    kind: Literal["branch"]


class TestSchemaOfType:
    @pytest.mark.parametrize("model", [Palette, Tree, Choice])
    def test_a_type_becomes_a_strict_schema(self, model: type[BaseModel]) -> None:
        assert check_strict(schema_of_type(model)) == []

    def test_a_type_that_strict_mode_can_not_express_is_refused(self) -> None:
        with pytest.raises(SpecError, match="additionalProperties"):
            schema_of_type(Free)

    def test_a_field_with_a_default_is_required_and_not_null(self) -> None:
        assert schema_of_type(Tree)["required"] == ["name", "children"]
        assert schema_of_type(Tree)["properties"]["children"]["type"] == "array"


class TestBuildType:
    def test_a_type_with_strict_fields_takes_the_json_form_of_dates_and_tuples(self) -> None:
        built, issues = build_type(Visit, {"day": "2030-01-31", "place": ["a", "b"]})
        assert (built, issues) == (Visit(day=date(2030, 1, 31), place=("a", "b")), ())

    @pytest.mark.parametrize(
        ("model", "value", "paths"),
        [
            (Palette, {"colours": [{"hex": "#000000"}]}, {"/colours/0"}),
            (Palette, {"colours": [{"name": "a", "hex": "blue"}]}, {"/colours/0/hex"}),
            (Choice, {"value": {"name": 1}}, {"/value", "/value/name"}),
            (Palette, None, {""}),
            (Palette, [], {""}),
            (Palette, {"colours": float("nan")}, {""}),
            (Palette, {"colours": object()}, {""}),
        ],
    )
    def test_what_does_not_fit_is_an_issue_at_its_place(
        self, model: type[BaseModel], value: Any, paths: set[str]
    ) -> None:
        built, issues = build_type(model, value)
        assert (built, {issue.path for issue in issues}) == (None, paths)
        assert {issue.severity for issue in issues} == {Severity.CRITICAL}


class TestRegisteredType:
    @staticmethod
    def make_registry() -> Registry:
        registry = Registry()
        registry.output_type("palette")(Palette)
        registry.audit("few")(lambda output: [f"{len(output.colours)} colours"] if len(output.colours) > 1 else None)
        return registry

    async def judge(self, *names: str, hex: str = "#1F4E5F", **fields: Any) -> Judgement:
        output = {"colours": [{"name": name, "hex": hex} for name in names]}
        options = {"output_type": "palette", "output_schema": schema_of_type(Palette), "registry": self.make_registry()}
        return await judge(output, **{**options, **fields})

    async def test_its_own_audit_runs_before_those_of_the_flow_and_gets_the_typed_output(self) -> None:
        verdict = await self.judge("Fjord", "Ash", audits=rules("python:few", severity="low"))
        assert verdict.outcome is Outcome.FAILED
        assert [(issue.audit, issue.description) for issue in verdict.issues] == [
            ("palette", "Ash is grey."),
            ("Rule 1", "2 colours"),
        ]

    async def test_each_audit_judges_the_output_as_it_came_whatever_others_change(self) -> None:
        class Greedy(Palette):
            def audit(self) -> Any:
                self.colours.clear()

        def clear(output: Palette) -> None:
            output.colours.clear()

        async def clear_later(output: Palette) -> None:
            clear(output)

        registry = Registry()
        registry.output_type("palette")(Greedy)
        registry.audit("clear")(clear)
        registry.audit("clear_later")(clear_later)
        registry.audit("count")(lambda output: [str(len(output.colours))])
        audits = rules("python:clear", "python:clear_later", "python:count", "size(output.colours) == 2")
        verdict = await self.judge("Fjord", "Ash", audits=audits, registry=registry)
        assert [issue.description for issue in verdict.issues] == ["2"]

    async def test_an_output_that_can_not_be_copied_is_audited_all_the_same(self) -> None:
        class Guarded(Palette):
            _lock: Any = PrivateAttr(default_factory=threading.Lock)

        registry = Registry()
        registry.output_type("palette")(Guarded)
        registry.audit("count")(lambda output: [str(len(output.colours))])
        verdict = await self.judge("Ash", audits=rules("python:count"), registry=registry)
        assert [issue.description for issue in verdict.issues] == ["Ash is grey.", "1"]

    async def test_a_validator_that_refuses_makes_it_invalid_with_a_critical_issue_that_names_the_field(self) -> None:
        verdict = await self.judge("Fjord", "Fjord", audits=rules("false"))
        assert verdict.outcome is Outcome.INVALID
        (issue,) = verdict.issues
        assert (issue.code, issue.severity, issue.path) == ("type_mismatch", Severity.CRITICAL, "/colours")
        assert "colours" in issue.description and "two colours have one name" in issue.description

    def test_of_many_places_50_are_told_one_by_one_and_the_rest_is_counted(self) -> None:
        class Even(BaseModel):
            numbers: list[int]

        _, issues = build_type(Even, {"numbers": ["x"] * 60})
        assert [issue.code for issue in issues] == ["type_mismatch"] * 50 + ["more_type_mismatches"]
        assert issues[-1].description == "10 more places don't fit the type."

    def test_a_union_of_models_that_contain_each_other_needs_a_discriminator(self) -> None:
        with pytest.raises(SpecError) as refusal:
            schema_of_type(Branch)
        assert {problem.path for problem in refusal.value.problems} == {
            "/$defs/Branch/properties/child",
            "/$defs/Leaf/properties/child",
        }
        built, issues = build_type(Branch, {"child": None, "kind": "branch"})
        assert (built, {issue.code for issue in issues}) == (None, {"type_mismatch"})

    def test_a_recursive_union_in_which_the_right_branch_shows_at_once_is_built(self) -> None:
        class Node(BaseModel):
            kind: Literal["node"]
            next: Annotated[Node | End, Field(discriminator="kind")] | None
            parts: Node | list[Node] | str | Colour

        class End(BaseModel):
            kind: Literal["end"]
            next: Node | None

        Node.model_rebuild()
        assert schema_of_type(Node)
        end = {"kind": "end", "next": {"kind": "node", "next": None, "parts": "none"}}
        built, issues = build_type(Node, {"kind": "node", "next": end, "parts": [end["next"]]})
        assert isinstance(built, Node) and issues == ()

    async def test_what_already_breaks_the_schema_is_told_once(self) -> None:
        verdict = await self.judge("Fjord", hex="blue")
        assert verdict.outcome is Outcome.INVALID
        assert [(issue.code, issue.path) for issue in verdict.issues] == [("schema_mismatch", "/colours/0/hex")]

    async def test_its_fingerprint_is_that_of_the_type_whether_it_could_be_built_or_not(self) -> None:
        registry = self.make_registry()
        fingerprint = registry.output_types["palette"].fingerprint
        for names in (("Fjord",), ("Fjord", "Fjord"), ("Ash",)):
            verdict = await self.judge(*names, registry=registry)
            assert verdict.plugins == {"palette": fingerprint}

    async def test_a_name_that_is_not_registered_here_is_a_critical_issue_and_never_passes_silently(self) -> None:
        verdict = await self.judge("Fjord", registry=Registry(), pass_expression="true")
        assert verdict.outcome is Outcome.INVALID
        (issue,) = verdict.issues
        assert (issue.code, issue.severity) == ("unknown_output_type", Severity.CRITICAL)
        assert issue.description == "No output type is registered as “palette” on this worker."

    async def test_a_validator_that_crashes_is_an_issue_too(self) -> None:
        class Fragile(BaseModel):
            text: str

            @field_validator("text")
            @classmethod
            def crash(cls, text: str) -> str:
                raise LookupError("no dictionary")

        registry = Registry()
        registry.output_type("fragile")(Fragile)
        verdict = await judge({"text": "Tea."}, output_type="fragile", registry=registry)
        assert verdict.outcome is Outcome.INVALID
        assert "no dictionary" in verdict.issues[0].description
