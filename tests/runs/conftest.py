"""What tests of runs share."""

from __future__ import annotations

from typing import Any

import pytest

from runs.bulk_actions import working
from tests.engine.model_server import ModelServer


@pytest.fixture
def provider(model_server: ModelServer, settings: Any) -> ModelServer:
    """The simulated model over TCP as the installation's provider."""
    settings.TOOLFLOW_PROVIDER = "openai"
    settings.TOOLFLOW_OPENAI_BASE_URL = model_server.base_url
    settings.TOOLFLOW_OPENAI_API_KEY = "right-key"
    return model_server


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has patience for more than one batch, of two runs."""
    monkeypatch.setattr(working, "BATCH", 2)
    monkeypatch.setattr(working, "LOOK", 2)
    monkeypatch.setattr("runs.bulk_actions.requesting.REQUEST_PATIENCE", 0)
    monkeypatch.setattr("runs.bulk_actions.tasks.PATIENCE", 0)
