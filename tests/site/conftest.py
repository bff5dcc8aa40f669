"""What tests of the installation share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.databases import make_once
from tests.site.test_settings import start_command

PRODUCTION = {
    "TOOLFLOW_ENV": "production",
    "TOOLFLOW_SECRET_KEY": "Zq3-Tb8_Kv1xWm6RjYp0DsLf7UhNcGe9AoXi2BtQw5EyVuMk4Hr",
    "TOOLFLOW_PROVIDER": "simulated",
    "TOOLFLOW_ALLOWED_HOSTS": "flows.example.com",
    "TOOLFLOW_TRUSTED_PROXIES": "127.0.0.1",
}
"""An environment with which production goes on."""


@pytest.fixture(scope="session")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with collected static files."""

    def collect(folder: Path) -> Path:
        place = folder / "static"
        variables = {**PRODUCTION, "TOOLFLOW_STATIC_ROOT": str(place)}
        done = start_command("collectstatic", "--noinput", "-v0", data_dir=folder / "var", **variables)
        assert done.returncode == 0, done.stderr
        return place

    return make_once("collected-static-files", collect, tmp_path_factory)
