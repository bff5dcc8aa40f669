"""What tests of the contract share."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def no_provider(settings: Any) -> None:
    """A provider of models that can't be reached."""
    settings.TOOLFLOW_PROVIDER = "openai"
    settings.TOOLFLOW_OPENAI_BASE_URL = "http://127.0.0.1:1/v1"
    settings.TOOLFLOW_OPENAI_API_KEY = "key"
