"""Plug-ins: registering, loading and telling one state of their source from another."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from flows.engine.errors import PluginError
from flows.engine.plugin_calls import call_function
from flows.engine.plugins import ENTRY_POINT_GROUP, PythonFunction, Registry, load_plugins
from flows.engine.plugins import registry as shared_registry

WriteModule = Callable[[str, str], str]


@pytest.fixture
def write_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WriteModule]:
    """Writes a module that can be imported, and gives its name. What it registers is gone after the test."""
    for kind in ("output_types", "audits", "functions"):
        monkeypatch.setattr(shared_registry, kind, {})
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)

    def write(name: str, source: str) -> str:
        (tmp_path / f"{name}.py").write_text(source)
        return name

    yield write
    for name in set(sys.modules) - before:
        if (file := getattr(sys.modules[name], "__file__", None)) and Path(file).is_relative_to(tmp_path):
            del sys.modules[name]


class Report(BaseModel):
    title: str


class TestRegistering:
    @pytest.mark.parametrize("kind", ["audit", "function", "output_type"])
    def test_a_name_that_is_taken_is_refused_and_both_owners_are_named(self, kind: str) -> None:
        class Other(BaseModel):
            title: str

        def first() -> None: ...
        def second() -> None: ...

        one, two = (Report, Other) if kind == "output_type" else (first, second)
        decorate: Any = getattr(Registry(), kind)("report")
        decorate(one)
        with pytest.raises(PluginError, match="“report” is registered twice") as caught:
            decorate(two)
        assert all(f"{owner.__module__}.{owner.__qualname__}" in str(caught.value) for owner in (one, two))

    @pytest.mark.parametrize("kind", ["audit", "function", "output_type"])
    @pytest.mark.parametrize("name", [lambda output: True, "", "x" * 101])
    def test_a_decorator_without_a_name_is_refused_and_not_taken_for_one(self, kind: str, name: Any) -> None:
        with pytest.raises(PluginError) as caught:
            getattr(Registry(), kind)(name)
        assert str(caught.value).startswith(f'Write @{kind}("name")')

    @pytest.mark.parametrize(
        ("function", "given", "result"),
        [
            (lambda b, *, a, c=3: [a, b, c], {"a": 1, "b": 2, "d": 4}, [1, 2, 3]),
            (lambda **everything: everything, {"a": 1, "b": 2}, {"a": 1, "b": 2}),
            (lambda a: a["list"].append(2), {"a": {"list": [1]}}, None),
        ],
    )
    async def test_a_function_gets_copies_of_the_variables_that_it_names(
        self, function: Any, given: dict[str, Any], result: Any
    ) -> None:
        before = repr(given)
        assert await call_function("f", PythonFunction("f", function), given, timeout=60) == result
        assert repr(given) == before


SOURCE = """
from pydantic import BaseModel
from flows.engine.plugins import audit, function, output_type

@audit("polite")
def check(output):
    return "please" in output["text"]

@function("tidy")
async def tidy(value):
    return value

@output_type("report")
class Report(BaseModel):
    title: str
    def audit(self):
        return self.title != ""
"""


class TestFingerprints:
    def load(self, write_module: WriteModule, name: str, source: str) -> dict[str, str]:
        kinds: list[dict[str, Any]] = [shared_registry.audits, shared_registry.functions, shared_registry.output_types]
        for kind in kinds:
            kind.clear()
        load_plugins([write_module(name, source)])
        return {name: entry.fingerprint for kind in kinds for name, entry in kind.items()}

    @pytest.mark.parametrize(
        ("old", "new", "changed"),
        [
            ("\nfrom pydantic", "# moved\n\nfrom pydantic", set()),
            ('"please" in', '"thanks" in', {"polite"}),
            ("    return value", "    return dict(value)", {"tidy"}),
            ("title: str", "title: str | None", {"report"}),
            ('self.title != ""', 'self.title != "x"', {"report"}),
        ],
    )
    def test_a_change_of_its_source_changes_it_and_no_other(
        self, write_module: WriteModule, old: str, new: str, changed: set[str]
    ) -> None:
        before = self.load(write_module, "plugins_before", SOURCE)
        after = self.load(write_module, "plugins_after", SOURCE.replace(old, new))
        assert {name for name in before if before[name] != after[name]} == changed
        assert before.keys() == {"polite", "tidy", "report"}


class TestLoading:
    @pytest.mark.parametrize(
        ("source", "words"),
        [
            (None, "No module named 'broken_plugins'"),
            ("def check(:", "invalid syntax"),
            ("raise SystemExit(3)", "3"),
            (
                "from flows.engine.plugins import audit as a\n@a('same')\ndef one(): ...\n@a('same')\ndef two(): ...",
                "“same” is registered twice: by broken_plugins.one and by broken_plugins.two.",
            ),
        ],
        ids=["missing", "syntax", "exit", "twice"],
    )
    def test_one_that_cannot_be_imported_is_named_with_the_reason(
        self, write_module: WriteModule, source: str | None, words: str
    ) -> None:
        if source is not None:
            write_module("broken_plugins", source)
        with pytest.raises(PluginError, match="Plug-in module “broken_plugins” can't be imported: ") as caught:
            load_plugins(["broken_plugins"])
        assert words in str(caught.value)

    def test_packages_can_name_theirs_as_entry_points(self, write_module: WriteModule, tmp_path: Path) -> None:
        write_module("packaged_plugins", SOURCE)
        self.install(tmp_path, "packaged = packaged_plugins")
        load_plugins([])
        assert shared_registry.audits.keys() == {"polite"}
        self.install(tmp_path, "packaged = nowhere_to_be_found:plugins")
        with pytest.raises(PluginError, match=r"Plug-in “packaged” .* No module named 'nowhere_to_be_found'"):
            load_plugins([])

    @staticmethod
    def install(place: Path, entry_point: str) -> None:
        info = place / "packaged_plugins-1.0.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: packaged-plugins\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{ENTRY_POINT_GROUP}]\n{entry_point}\n")
