"""How long runs are kept: what a flow says, and what the installation says where it says nothing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from flows.forms import FlowForm
from flows.models import Flow
from runs.retention.policy import Part, Policy, read_policy
from tests.runs.retention.aged_runs import NOW


@pytest.mark.parametrize(
    ("own", "installation", "expected"),
    [
        ((None, None), (None, None), "runs for ever, outputs for ever"),
        ((None, None), (365, 90), "runs 365 days, outputs 90 days"),
        ((30, None), (None, None), "runs 30 days, outputs for ever"),
        ((30, 1), (365, 90), "runs 30 days, outputs 1 day"),
        ((30, None), (365, 90), "runs 30 days, outputs for ever"),
        ((None, 7), (365, 90), "runs 365 days, outputs 7 days"),
        ((30, 30), (None, None), "runs 30 days, outputs for ever"),
        ((0, None), (365, 90), "runs for ever, outputs 90 days"),
        ((0, 0), (365, 90), "runs for ever, outputs for ever"),
        ((None, 0), (365, 90), "runs 365 days, outputs for ever"),
    ],
)
def test_a_flow_falls_back_on_the_installation_and_outputs_go_with_their_run_at_last(
    own: tuple[Any, Any], installation: tuple[Any, Any], expected: str, settings: Any
) -> None:
    settings.TOOLFLOW_KEEP_DAYS, settings.TOOLFLOW_KEEP_OUTPUTS_DAYS = installation
    assert str(read_policy(Flow(keep_days=own[0], keep_outputs_days=own[1]))) == expected


def test_days_are_counted_back_from_now() -> None:
    policy = read_policy(Flow(keep_days=30, keep_outputs_days=7))
    assert policy.limit(Part.RUNS, NOW) == NOW - timedelta(days=30)
    assert policy.limit(Part.OUTPUTS, NOW) == NOW - timedelta(days=7)


def test_more_days_than_there_ever_were_keep_for_ever() -> None:
    assert Policy(10_000_000, None).limit(Part.RUNS, NOW) is None


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("runs", "outputs", "problem"),
    [
        ("30", "31", "Outputs can’t be kept longer than their runs: give 30 days or fewer, or nothing."),
        ("-1", "", "Ensure this value is greater than or equal to 0."),
        ("0", "31", ""),
        ("30", "0", ""),
        ("", "36501", "Ensure this value is less than or equal to 36500."),
        ("30", "30", ""),
        ("30", "", ""),
        ("", "30", ""),
    ],
)
def test_the_editor_refuses_what_makes_no_sense(runs: str, outputs: str, problem: str) -> None:
    form = FlowForm({"keep_days": runs, "keep_outputs_days": outputs})
    found = [*form.errors.get("keep_days", []), *form.errors.get("keep_outputs_days", [])]
    assert found == ([problem] if problem else [])
