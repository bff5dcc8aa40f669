"""How long runs are kept: what a flow says, and what the installation says where it says nothing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from flows.models import Flow
from runs.retention.policy import Part, effective_policy
from tests.runs.retention.aged_runs import NOW


@pytest.mark.parametrize(
    ("own", "installation", "expected"),
    [
        ((None, None), (None, None), "runs for ever, outputs for ever"),
        ((None, None), (365, 90), "runs 365 days, outputs 90 days"),
        ((30, 1), (365, 90), "runs 30 days, outputs 1 day"),
        ((30, None), (365, 90), "runs 30 days, outputs for ever"),
        ((None, 7), (365, 90), "runs 365 days, outputs 7 days"),
        ((0, None), (365, 90), "runs for ever, outputs 90 days"),
        ((0, 0), (365, 90), "runs for ever, outputs for ever"),
        ((None, 0), (365, 90), "runs 365 days, outputs for ever"),
    ],
)
def test_a_flow_falls_back_on_the_installation_and_outputs_go_with_their_run_at_last(
    own: tuple[Any, Any], installation: tuple[Any, Any], expected: str, settings: Any
) -> None:
    settings.TOOLFLOW_KEEP_DAYS, settings.TOOLFLOW_KEEP_OUTPUTS_DAYS = installation
    policy = effective_policy(Flow(keep_days=own[0], keep_outputs_days=own[1]))
    assert str(policy) == expected
    days = policy.keep_days
    assert policy.limit(Part.RUNS, NOW) == (None if days is None else NOW - timedelta(days=days))
