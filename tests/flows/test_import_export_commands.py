"""``manage.py export_flow`` and ``import_flow``: options, words and errors."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command

from flows.examples import load_examples
from flows.flow_file import SCHEMA_PATH, parse_flow, render_flow
from flows.models import Flow, FlowVersion
from tests.engine.builders import make_flow
from tests.flows.loading import load_flow

pytestmark = pytest.mark.django_db


class Terminal:
    """What a command says, on either of its streams."""

    def __init__(self) -> None:
        self.out = self.err = ""

    def run(self, command: str, *arguments: Any) -> str:
        out, err = io.StringIO(), io.StringIO()
        try:
            call_command(command, *map(str, arguments), stdout=out, stderr=err)
        finally:
            self.out, self.err = out.getvalue(), err.getvalue()
        return self.out

    def fail(self, command: str, *arguments: Any) -> str:
        """Run what must fail with exit status 1; gives the sentence."""
        with pytest.raises(CommandError) as caught:
            self.run(command, *arguments)
        assert caught.value.returncode == 1
        return str(caught.value)


@pytest.fixture
def terminal() -> Terminal:
    return Terminal()


@pytest.fixture
def make_file(tmp_path: Path) -> Callable[..., Path]:
    """Write a flow of one step to a file."""

    def make(name: str = "tea", **fields: Any) -> Path:
        path = tmp_path / f"{name}.yaml"
        path.write_text(render_flow(make_flow(**fields).model_copy(update={"name": name})), encoding="utf-8")
        return path

    return make


def test_all_flows_come_out_with_their_schema_but_not_archived_ones(terminal: Terminal, tmp_path: Path) -> None:
    load_examples()
    Flow.objects.create(name="never-published", title="Never")
    Flow.objects.filter(name="colour-theme").update(is_archived=True)
    folder = tmp_path / "new" / "folder"
    folder.mkdir(parents=True)
    (folder / "invoice-extraction.yaml").write_text("what was there")
    assert f"{folder}/invoice-extraction.yaml: version 1" in terminal.run("export_flow", "--all", folder)
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["flow.schema.json", "invoice-extraction.yaml", "support-ticket-triage.yaml"]
    assert "never-published: left out" in terminal.err
    assert (folder / "flow.schema.json").read_bytes() == SCHEMA_PATH.read_bytes()
    assert terminal.run("import_flow", *folder.glob("*.yaml")).count("unchanged, version 1") == 2


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["example", "--all", "x"],
        ["tea"],
        ["example", "--version", "7"],
        ["draft"],
        ["example", "--output", "/no/such/place.yaml"],
        ["--all", "/dev/null/x"],
    ],
)
def test_what_can_not_be_exported_is_refused(terminal: Terminal, arguments: list[str]) -> None:
    load_flow(document=make_flow().to_document())
    Flow.objects.create(name="draft", title="Draft")
    terminal.fail("export_flow", *arguments)
    assert terminal.out == ""


def test_importing_makes_a_flow_then_versions_then_nothing(terminal: Terminal, make_file: Callable[..., Path]) -> None:
    user = User.objects.create(username="ada")
    for title, options, check, done in (
        ("", ["--note", "First", "--user", "ada"], "would be a new flow, version 1", "new flow, version 1, live"),
        ("", [], "unchanged, version 1", "unchanged, version 1"),
        ("Tea", [], "would get version 2; version 1 is live", "new version 2; version 1 is live"),
        ("Tea", ["--make-live"], "unchanged, version 2, which would be made live", "unchanged, version 2, made live"),
        ("Cup", ["--make-live"], "would get version 3, which would be made live", "new version 3, made live"),
    ):
        file, before = make_file(title=title), list(Flow.objects.values())
        assert terminal.run("import_flow", "--check", file, *options) == f"tea: {check}\n"
        assert list(Flow.objects.values()) == before
        assert terminal.run("import_flow", file, *options) == f"tea: {done}\n"
    first, third = FlowVersion.objects.get(number=1), FlowVersion.objects.get(number=3)
    assert (first.note, first.created_by, Flow.objects.get().live_version) == ("First", user, third)
    terminal.run("import_flow", make_file(title="Pot"))
    latest = FlowVersion.objects.get(number=4)
    for options, version in (([], latest), (["--version", "1"], first), (["--live"], third)):
        assert parse_flow(terminal.run("export_flow", "tea", *options)).digest == version.digest


def test_a_file_comes_in_from_the_standard_input(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\ufeff" + render_flow(make_flow(title="Tea 🍵"))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    terminal.run("import_flow", "-")
    assert Flow.objects.get().title == "Tea 🍵"


def test_problems_of_all_files_are_reported_and_nothing_is_stored(
    terminal: Terminal, make_file: Callable[..., Path], tmp_path: Path
) -> None:
    good, twice, broken, missing = (tmp_path / f"{name}.yaml" for name in ("tea", "twice", "broken", "missing"))
    twice.write_bytes(make_file("tea").read_bytes())
    broken.write_text('name: tea\n"\\e[31mred": 1\nsteps: []\n')
    arguments = [good, broken, missing, tmp_path, twice]
    assert terminal.fail("import_flow", *arguments) == "4 files have errors. Nothing was imported."
    starts = [
        f"{broken}:",
        # A terminal would obey what the file holds.
        "  Line 2, column 1: /\\x1b[31mred: ",
        "  Line 3, column 1: /steps: ",
        f"{missing}:",
        "  The file can't be read: No such file or directory.",
        f"{tmp_path}:",
        "  The file can't be read: Is a directory.",
        f"{twice}:",
        f"  The flow “tea” is also in {good}.",
    ]
    lines = [line for line in terminal.err.splitlines() if line]
    assert [line[: len(start)] for line, start in zip(lines, starts, strict=True)] == starts
    assert not Flow.objects.exists()


@pytest.mark.parametrize("arguments", [["--user", "nobody"], ["--note", "x" * 501]])
def test_what_can_not_be_imported_is_refused(
    terminal: Terminal, make_file: Callable[..., Path], arguments: list[str]
) -> None:
    terminal.fail("import_flow", make_file(), *arguments)
    assert not Flow.objects.exists()
