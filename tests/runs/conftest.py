"""What tests of runs share."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.model_server import ModelServer


@pytest.fixture
def provider(model_server: ModelServer, settings: Any) -> ModelServer:
    """The simulated model over TCP as the installation's provider."""
    settings.TOOLFLOW_PROVIDER = "openai"
    settings.TOOLFLOW_OPENAI_BASE_URL = model_server.base_url
    settings.TOOLFLOW_OPENAI_API_KEY = "right-key"
    return model_server
