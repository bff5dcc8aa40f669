"""``manage.py export_flow`` and ``import_flow``: files out, files in."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command

from flows.engine.spec import FlowSpec
from flows.examples import load_documents, load_examples
from flows.flow_file import SCHEMA_PATH, read_flow, write_flow
from flows.models import Flow, FlowVersion
from flows.portability import load_flow
from tests.engine.builders import make_flow

pytestmark = [pytest.mark.django_db, pytest.mark.any_database]


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
        path.write_text(write_flow(make_flow(**fields).model_copy(update={"name": name})), encoding="utf-8")
        return path

    return make


def list_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# ---------------------------------------------------------------------------------------------------------------
# Out


def test_a_flow_is_printed_in_its_latest_version_a_chosen_one_or_the_live_one(terminal: Terminal) -> None:
    for title in ("First", "Second", "Third"):
        version = load_flow(document=make_flow(title=title).to_document())
        if title == "Second":
            version.flow.make_live(version)
    assert read_flow(terminal.run("export_flow", "example")).title == "Third"
    assert read_flow(terminal.run("export_flow", "example", "--version", 1)).title == "First"
    assert read_flow(terminal.run("export_flow", "example", "--live")).title == "Second"


def test_a_file_is_written_whole_and_takes_the_place_of_what_was_there(terminal: Terminal, tmp_path: Path) -> None:
    load_flow(document=make_flow().to_document())
    path = tmp_path / "flow.yaml"
    path.write_text("old")
    path.chmod(0o600)
    assert terminal.run("export_flow", "example", "--output", path) == ""
    assert terminal.err == f"{path}: example, version 1\n"
    assert read_flow(path.read_bytes()).name == "example"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list_names(tmp_path) == ["flow.yaml"]


def test_all_flows_come_out_with_their_schema_but_not_archived_ones(terminal: Terminal, tmp_path: Path) -> None:
    load_examples()
    Flow.objects.create(name="never-published", title="Never")
    Flow.objects.filter(name="colour-theme").update(is_archived=True)
    folder = tmp_path / "new" / "folder"
    told = terminal.run("export_flow", "--all", folder)
    assert list_names(folder) == ["flow.schema.json", "invoice-extraction.yaml", "support-ticket-triage.yaml"]
    assert f"{folder}/invoice-extraction.yaml: version 1" in told
    assert "never-published: left out, no version was published yet" in terminal.err
    assert (folder / "flow.schema.json").read_bytes() == SCHEMA_PATH.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "Name either a flow, or a directory with --all."),
        (["example", "--all", "x"], "Name either a flow, or a directory with --all."),
        (["--all", "x", "--version", "1"], "--all takes no --version and no --output."),
        (["tea"], "There is no flow “tea”. Flows: draft, example."),
        (["example", "--version", "7"], "“example” has no version 7. Versions: 1."),
        (["draft"], "“draft” has no version yet: nothing was published."),
        (["draft", "--live"], "No version of “draft” is live."),
        (["example", "--output", "/"], "Can't write /: it is a directory. Name a file in it."),
        (["example", "--output", "/no/such/place.yaml"], "Can't write /no/such/place.yaml: No such file or directory."),
        (["--all", "/dev/null/x"], "Can't make the directory /dev/null/x: Not a directory."),
    ],
)
def test_what_can_t_be_exported_is_told(terminal: Terminal, arguments: list[str], sentence: str) -> None:
    load_flow(document=make_flow().to_document())
    Flow.objects.create(name="draft", title="Draft")
    assert terminal.fail("export_flow", *arguments) == sentence


# ---------------------------------------------------------------------------------------------------------------
# In


def test_importing_makes_a_flow_then_versions_then_nothing(terminal: Terminal, make_file: Callable[..., Path]) -> None:
    user = User.objects.create(username="ada")
    assert (
        terminal.run("import_flow", make_file(), "--note", "First", "--user", "ada")
        == "tea: new flow, version 1, live\n"
    )
    assert terminal.run("import_flow", make_file()) == "tea: unchanged, version 1\n"
    assert terminal.run("import_flow", make_file(title="Tea")) == "tea: new version 2; version 1 is live\n"
    assert (
        terminal.run("import_flow", make_file(title="Tea"), "--make-live") == "tea: unchanged, version 2, made live\n"
    )
    assert terminal.run("import_flow", make_file(title="Cup"), "--make-live") == "tea: new version 3, made live\n"
    first = FlowVersion.objects.get(number=1)
    assert (first.note, first.created_by) == ("First", user)
    assert Flow.objects.get().live_version == FlowVersion.objects.get(number=3)


def test_a_check_says_the_same_and_stores_nothing(terminal: Terminal, make_file: Callable[..., Path]) -> None:
    assert terminal.run("import_flow", "--check", make_file()) == "tea: would be a new flow, version 1\n"
    assert not Flow.objects.exists()
    terminal.run("import_flow", make_file())
    before = list(Flow.objects.values())
    assert terminal.run("import_flow", "--check", make_file()) == "tea: unchanged, version 1\n"
    changed = make_file(title="Tea")
    assert terminal.run("import_flow", "--check", changed) == "tea: would get version 2; version 1 is live\n"
    assert terminal.run("import_flow", "--check", "--make-live", changed) == (
        "tea: would get version 2, which would be made live\n"
    )
    assert list(Flow.objects.values()) == before


def test_a_file_comes_in_from_the_standard_input(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\ufeff" + write_flow(make_flow(title="Tea 🍵"))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    terminal.run("import_flow", "-")
    assert Flow.objects.get().title == "Tea 🍵"


def test_problems_of_all_files_are_reported_and_nothing_is_stored(
    terminal: Terminal, make_file: Callable[..., Path], tmp_path: Path
) -> None:
    good, twice = make_file("tea"), tmp_path / "twice.yaml"
    twice.write_bytes(good.read_bytes())
    bad = make_file("cup")
    bad.write_text(bad.read_text().replace("tool_name: tool_1", "toolname: tool_1\n  max_retries: -1"))
    broken, missing = tmp_path / "broken.yaml", tmp_path / "missing.yaml"
    broken.write_text("name: 'tea")
    arguments = [good, bad, broken, missing, tmp_path, twice]
    assert terminal.fail("import_flow", *arguments) == "5 files have errors. Nothing was imported."
    lines = [line for line in terminal.err.splitlines() if line]
    starts = [
        f"{bad}:",
        "  Line 8, column 3: /steps/0/toolname: Unknown field “toolname”. Did you mean “tool_name”?",
        "  Line 9, column 3: /steps/0/max_retries: ",
        f"{broken}:",
        "  Line 1, column 11: This is no YAML: found unexpected end of stream",
        f"{missing}:",
        "  The file can't be read: No such file or directory.",
        f"{tmp_path}:",
        "  The file can't be read: Is a directory.",
        f"{twice}:",
        f"  The flow “tea” is also in {good}. Leave one of them out.",
    ]
    assert [line[: len(start)] for line, start in zip(lines, starts, strict=True)] == starts
    assert not Flow.objects.exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--user", "nobody"], "There is no user “nobody”."),
        (["--note", "x" * 501], "The note has 501 characters; at most 500 are stored."),
    ],
)
def test_what_can_t_be_imported_is_told(
    terminal: Terminal, make_file: Callable[..., Path], arguments: list[str], sentence: str
) -> None:
    assert terminal.fail("import_flow", make_file(), *arguments) == sentence
    assert not Flow.objects.exists()


def test_what_a_file_holds_gives_a_terminal_no_orders(terminal: Terminal, tmp_path: Path) -> None:
    path = tmp_path / "flow.yaml"
    path.write_text('name: tea\n"\\e[31mred": 1\nsteps: []\n')
    terminal.fail("import_flow", path)
    assert "\x1b" not in terminal.err and "\\x1b[31mred" in terminal.err


def test_the_examples_come_in_from_their_own_files(terminal: Terminal, tmp_path: Path) -> None:
    files = []
    for name, document in load_documents().items():
        files.append(tmp_path / f"{name}.yaml")
        files[-1].write_text(write_flow(FlowSpec.from_document(document)), encoding="utf-8")
    terminal.run("import_flow", *files)
    # The frozen schema of a type was not in the file, and is the same all the same.
    assert load_examples() == []
    assert terminal.run("import_flow", *files).count("unchanged, version 1") == 3
