"""The page of plug-ins, and the marks on flows that lack one."""

from __future__ import annotations

from typing import Any

import pytest
from django.template.loader import render_to_string
from django.test import Client
from pydantic import BaseModel

from flows import checks
from flows.admin.plugin_page import USES_SHOWN, mark_missing
from flows.engine.plugins import load_plugins, registry
from flows.engine.spec import AuditSpec
from flows.examples import load_examples
from flows.models import Flow
from flows.plugin_use import find_missing_names
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


def test_everything_is_told_of_what_is_registered(editor: Client) -> None:
    text = read(editor)
    fingerprint = registry.audits["wcag_contrast"].fingerprint[:8]
    assert (
        f"wcag_contrast async (output) flows.examples.plugins.audit_contrast · fingerprint {fingerprint} "
        "Colours that can't be told from what they stand on. Each finding carries the ratio. Not used by any flow."
    ) in text
    assert "colour_suite flows.examples.plugins.ColourSuite" in text
    assert '"additionalProperties": false' in text


def test_where_flows_use_it_leads_to_the_field_and_with_all_there_nothing_is_flagged(editor: Client) -> None:
    load_examples()
    flow = Flow.objects.get(name="colour-theme")
    page = editor.get(URL).content.decode()
    assert f'href="/admin/flows/flow/{flow.pk}/change/#/steps/2/output_type">Colour theme</a>' in page
    text = read(editor)
    assert "Colour theme: step 3 “Full suite”, output type · live version 1" in text
    assert "not registered" not in text


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


def test_a_name_that_nobody_registers_stands_at_the_top_with_its_flows(
    editor: Client, django_assert_max_num_queries: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_version(make_flow(make_step(1, audits=(GHOST,))))
    text = read(editor)
    assert text.index("Used by flows, but not registered") < text.index("Output types")
    assert "Audit “ghost” Example: step 1 “Step 1”, audit “Polite”, rule · live version 1" in text
    for number in range(USES_SHOWN + 2):
        make_version(make_flow(make_step(1, audits=(GHOST,))).model_copy(update={"name": f"flow-{number}"}))
    with django_assert_max_num_queries(6):  # session, user, and four of what flows use
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
