"""Plug-ins of flows: their page, where they are used, which are missing, and the start of a new one."""

from __future__ import annotations

import os
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connection
from django.template.loader import render_to_string
from django.test import Client
from pydantic import BaseModel

from flows import checks
from flows.admin.plugin_page import USES_SHOWN, mark_missing
from flows.checks import check_plugin_names
from flows.engine.plugins import load_plugins, registry
from flows.engine.spec import AuditSpec, FlowSpec
from flows.models import Flow
from flows.plugin_use import AUDIT, FUNCTION, OUTPUT_TYPE, fetch_flow_uses, find_missing_names, list_uses
from tests.engine.builders import make_flow, make_step
from tests.flows.editor_page import PageReader
from tests.runs.builders import make_version

URL = "/admin/flows/flow/plugins/"
GHOST = AuditSpec(name="Polite", rule="python:ghost")

load_plugins(["flows.examples.plugins"])


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is gone after it."""
    for kind in ("output_types", "audits", "functions"):
        monkeypatch.setattr(registry, kind, dict(getattr(registry, kind)))


def read(client: Client) -> str:
    response = client.get(URL)
    assert response.status_code == 200
    return " ".join(PageReader(response.content.decode()).text.split())


def test_everything_is_reported_of_what_is_registered(editor: Client) -> None:
    text = read(editor)
    fingerprint = registry.audits["wcag_contrast"].fingerprint[:8]
    assert (
        f"wcag_contrast async (output) flows.examples.plugins.audit_contrast · fingerprint {fingerprint} "
        "Colours that can't be distinguished from their background. Each finding carries the ratio. "
        "Not used by any flow."
    ) in text
    assert "colour_suite flows.examples.plugins.ColourSuite" in text
    assert '"additionalProperties": false' in text


def test_a_docstring_is_text_and_a_type_that_strict_mode_can_not_express_says_why(
    editor: Client, own_registry: None
) -> None:
    @registry.audit("<i>polite</i>")
    def check(output: Any, limit: int = 3, **variables: Any) -> bool:
        """Asks for ``please`` <script>alert(1)</script>"""
        return bool(output)

    @registry.output_type("counts")
    class Counts(BaseModel):
        words: dict[str, int]

    page = editor.get(URL).content.decode()
    assert "Asks for <code>please</code> &lt;script&gt;" in page
    assert "&lt;i&gt;polite&lt;/i&gt;" in page
    assert "(output, limit=3, **variables)" in page
    assert "Can’t be used: /properties/words" in read(editor)
    assert "usually documented" not in page, "the docstring of pydantic's own base class is not its own"


def test_a_name_that_is_not_registered_is_at_the_top_with_its_flows(
    editor: Client, django_assert_max_num_queries: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_version(make_flow(make_step(1, audits=(GHOST,))))
    text = read(editor)
    assert text.index("Used by flows, but not registered") < text.index("Output types")
    assert "Audit “ghost” Example: step 1 “Step 1”, audit “Polite”, rule · live version 1" in text
    for number in range(USES_SHOWN + 2):
        make_version(make_flow(make_step(1, audits=(GHOST,))).model_copy(update={"name": f"flow-{number}"}))
    with django_assert_max_num_queries(3):  # session, user, and what flows use
        assert "3 more" in read(editor)
    error = "Plug-in module “acme” can't be imported: No module named 'acme'"
    monkeypatch.setattr(checks, "plugin_errors", [error])
    assert f"Not loaded {error}" in read(editor)


def test_the_list_of_flows_and_the_editor_mark_them(db: None) -> None:
    spec = make_flow(make_step(1, audits=(GHOST,)))
    lacking = make_version(spec).flow
    assert "Missing: the audit “ghost”" in str(mark_missing(lacking))
    assert mark_missing(make_version().flow) is mark_missing(Flow(title="New")) is None
    html = render_to_string("admin/flows/flow/missing_plugins.html", {"missing_plugins": find_missing_names(spec)})
    assert '<a href="#/steps/0/audits/0/rule">Step 1 “Step 1”, audit “Polite”, rule</a>: the audit “ghost”' in html
    assert render_to_string("admin/flows/flow/missing_plugins.html", {"missing_plugins": []}).strip() == ""


FLOW = make_flow(
    make_step(
        1,
        output_type="letter",
        audits=(
            AuditSpec(name="Long", rule="size(output.text) > 3", message="'python: is no name here'"),
            AuditSpec(name="Polite", rule="python:polite", message="python:say_why", path="'/text'"),
        ),
    ),
    make_step(2, compute="python:count", pass_expression="python:all_well"),
)


def test_every_field_that_names_a_plug_in_is_listed_with_its_place() -> None:
    assert [(use.kind, use.name, use.place, use.anchor) for use in list_uses(FLOW)] == [
        (OUTPUT_TYPE, "letter", "step 1 “Step 1”, output type", "/steps/0/output_type"),
        (AUDIT, "polite", "step 1 “Step 1”, audit “Polite”, rule", "/steps/0/audits/1/rule"),
        (FUNCTION, "say_why", "step 1 “Step 1”, audit “Polite”, message", "/steps/0/audits/1/message"),
        (FUNCTION, "count", "step 2 “Step 2”, compute", "/steps/1/compute"),
        (FUNCTION, "all_well", "step 2 “Step 2”, pass expression", "/steps/1/pass_expression"),
    ]
    assert list(list_uses(FLOW.to_document())) == list(list_uses(FLOW))


@pytest.mark.django_db
class TestFlows:
    def test_the_live_version_and_the_latest_are_distinguished(self) -> None:
        make_version(make_flow(make_step(1, compute="python:ancient")))
        live = make_flow(make_step(1, compute="python:both"), make_step(2, compute="python:old"))
        latest = make_flow(make_step(1, compute="python:both"), make_step(3, name="Third", compute="python:new"))
        version = make_version(live)
        flow = make_version(latest).flow
        flow.make_live(version)
        assert [(one.use.name, one.is_live, one.is_latest) for one in fetch_flow_uses()] == [
            ("both", True, True),
            ("old", True, False),
            ("new", False, True),
        ]
        assert flow.live_version is not None
        assert [use.name for use in find_missing_names(flow.live_version)] == ["both", "old"]


def lacking(name: str = "example") -> FlowSpec:
    """A flow that names an audit and a function that are not registered."""
    audit = AuditSpec(name="Polite", rule="python:ghost_audit")
    steps = (make_step(1, audits=(audit,)), make_step(2, compute="python:ghost_function"))
    return FlowSpec(name=name, title=name.capitalize(), steps=steps)


@pytest.mark.django_db
def test_live_versions_that_lack_plug_ins_are_named_with_them(django_assert_num_queries: Any) -> None:
    make_version(lacking())
    for databases in (None, ["other"]):
        with django_assert_num_queries(0):
            assert check_plugin_names(databases=databases) == []
    with django_assert_num_queries(3):  # one, and a savepoint around it
        (warning,) = check_plugin_names(databases=["default"])
    assert "(example)" in warning.msg
    assert "the audit “ghost_audit” (step 1), the function “ghost_function” (step 2)" in warning.msg
    err = StringIO()
    call_command("check", databases=["default"], stderr=err)
    assert "flows.W001" in err.getvalue()


@pytest.mark.django_db(transaction=True)
def test_a_database_without_tables_breaks_no_check() -> None:
    with connection.schema_editor() as editor:
        editor.execute("ALTER TABLE flows_flowversion RENAME TO elsewhere")
    try:
        assert check_plugin_names(databases=["default"]) == []
        assert Flow.objects.count() == 0, "the connection goes on working"
    finally:
        with connection.schema_editor() as editor:
            editor.execute("ALTER TABLE elsewhere RENAME TO flows_flowversion")


def start_plugin(name: str, directory: Path) -> str:
    out = StringIO()
    call_command("start_plugin", name, directory=directory, stdout=out)
    return out.getvalue()


def run_tests(folder: Path) -> str:
    """What pytest says in the shell of a user who has ToolFlow, and no settings of Django."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("DJANGO", "PYTEST"))}
    # The plug-ins of pytest that happen to be installed here take longer to load than these tests to run.
    environment |= {"PYTHONPATH": str(settings.BASE_DIR), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "test_acme_invoices.py"]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    return done.stdout + done.stderr


def test_the_written_tests_pass_without_django_until_the_plug_in_is_broken(tmp_path: Path) -> None:
    start_plugin("acme_invoices", tmp_path)
    module, test = tmp_path / "acme_invoices.py", tmp_path / "test_acme_invoices.py"
    test.write_text(f"{test.read_text()}\n\ndef test_no_django() -> None:\n    assert 'django' not in sys.modules\n")
    test.write_text(f"import sys\n{test.read_text()}")
    assert "5 passed" in run_tests(tmp_path)
    module.write_text(module.read_text().replace("<= MAX_TITLE", "< 0"))
    assert "1 failed, 4 passed" in run_tests(tmp_path)


@pytest.mark.parametrize("present", ["acme_invoices.py", "test_acme_invoices.py"])
def test_nothing_is_overwritten(tmp_path: Path, present: str) -> None:
    (tmp_path / present).write_text("mine")
    with pytest.raises(CommandError, match="already exists"):
        start_plugin("acme_invoices", tmp_path)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize(
    "name",
    ["3invoices", "acme-invoices", "../acme", "prüfung", "class", "", "a" * 61, "json", "sys", "flows", "__main__"],
)
def test_names_that_can_not_be_imported_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(CommandError, match=r"name of a module|at most 60|already"):
        start_plugin(name, tmp_path)
    assert list(tmp_path.iterdir()) == []
