"""What operators are told is turned on by the same variables wherever ToolFlow is deployed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.site.test_deploy import SERVERS, our_services, read_unit

SETTINGS = {
    "TOOLFLOW_LOG_FORMAT", "TOOLFLOW_LOG_LEVEL", "TOOLFLOW_ACCESS_LOG", "TOOLFLOW_METRICS_TOKEN",
    "TOOLFLOW_WORKER_METRICS_PORT", "TOOLFLOW_TRACES", "TOOLFLOW_TRACE_CONTENT",
}  # fmt: skip


@pytest.mark.parametrize("service", ["web", "worker"])
def test_the_compose_file_hands_them_on_and_what_it_does_not_know_from_a_file(service: str) -> None:
    found = our_services()[service]
    assert set(found["environment"]) >= SETTINGS
    # Empty where nobody set it: then it is as if it were not there.
    assert all(found["environment"][name] == f"${{{name}:-}}" for name in SETTINGS)
    assert found["env_file"] == [{"path": "toolflow.env", "required": False}]


@pytest.mark.parametrize("path", SERVERS, ids=lambda path: path.stem)
def test_units_hand_on_all_that_stands_in_the_file_of_the_installation(path: Path) -> None:
    assert read_unit(path)["Service"]["EnvironmentFile"] == "/etc/toolflow/env"
