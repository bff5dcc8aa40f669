"""``manage.py check``: flows whose live version uses plug-ins that are not there."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import call_command
from django.db import connection

from flows.checks import MAX_FLOWS, check_plugin_names
from flows.engine.spec import AuditSpec, FlowSpec
from flows.models import Flow
from tests.engine.builders import make_flow, make_step
from tests.runs.builders import make_version


def lacking(name: str = "example") -> FlowSpec:
    """A flow that names an audit and a function that nobody registers."""
    audit = AuditSpec(name="Polite", rule="python:ghost_audit")
    steps = (make_step(1, audits=(audit,)), make_step(2, compute="python:ghost_function"))
    return FlowSpec(name=name, title=name.capitalize(), steps=steps)


def warnings() -> list[str]:
    return [warning.msg for warning in check_plugin_names(databases=["default"])]


@pytest.mark.django_db
class TestMissingNames:
    def test_a_live_version_that_lacks_plug_ins_is_named_with_them(self) -> None:
        version = make_version(lacking())
        (sentence,) = warnings()
        assert sentence == (
            f"Flow “Example” (example): its live version {version.number} uses the audit “ghost_audit” (step 1), "
            "the function “ghost_function” (step 2), which no plug-in registers."
        )

    def test_the_command_says_so_too_when_it_may_ask_the_database(self) -> None:
        make_version(lacking())
        err = StringIO()
        call_command("check", databases=["default"], stderr=err)
        assert "flows.W001" in err.getvalue()
        assert "HINT: Name the module that registers it in TOOLFLOW_PLUGINS" in err.getvalue()

    def test_without_a_database_nothing_is_asked(self, django_assert_num_queries) -> None:  # type: ignore[no-untyped-def]
        make_version(lacking())
        with django_assert_num_queries(0):
            assert check_plugin_names(databases=None) == []
            assert check_plugin_names(databases=["other"]) == []

    def test_only_the_live_version_of_flows_in_use_counts(self) -> None:
        make_version(lacking())
        make_version(make_flow())
        assert warnings() == [], "the later version does without"
        make_version(lacking("archived"))
        Flow.objects.filter(name="archived").update(is_archived=True)
        assert warnings() == []

    def test_of_many_flows_the_number_is_told(self) -> None:
        for number in range(MAX_FLOWS + 2):
            make_version(lacking(f"flow-{number:02}"))
        assert len(warnings()) == MAX_FLOWS + 1
        assert warnings()[-1] == "2 more flows use names that no plug-in registers."

    def test_one_query_is_enough_for_all_flows(self, django_assert_num_queries) -> None:  # type: ignore[no-untyped-def]
        for number in range(3):
            make_version(lacking(f"flow-{number}"))
        with django_assert_num_queries(3):  # a savepoint around it
            warnings()


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
