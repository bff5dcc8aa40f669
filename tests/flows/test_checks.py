"""``manage.py check``: flows whose live version uses plug-ins that are not there."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection

from flows.checks import MAX_FLOWS, check_plugin_names
from flows.engine.spec import AuditSpec, FlowSpec
from flows.models import Flow
from tests.engine.builders import make_flow, make_step
from tests.runs.builders import make_version


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


@pytest.mark.django_db
def test_of_flows_in_use_some_are_named_and_the_others_counted() -> None:
    for name in ("example", "archived", *(f"flow-{number:02}" for number in range(MAX_FLOWS + 2))):
        make_version(lacking(name))
    make_version(make_flow())
    Flow.objects.filter(name="archived").update(is_archived=True)
    warnings = [warning.msg for warning in check_plugin_names(databases=["default"])]
    assert len(warnings) == MAX_FLOWS + 1 and warnings[-1].startswith("2 more flows")


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
