"""What an installed package needs that lies beside the packages in a checkout: it is in the wheel, and found there."""

from __future__ import annotations

import os
import runpy
import shutil
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from django.conf import settings

from tests.site.test_settings import make_environment

ROOT = Path(settings.BASE_DIR)


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """What ``setup.py`` lays into a wheel, as files."""
    # Builds bring their own; virtual environments of newer Pythons have none.
    setuptools = pytest.importorskip("setuptools")
    setup = runpy.run_path(str(ROOT / "setup.py"), run_name="setup")
    command = setup["BuildWithParts"](setuptools.Distribution({"name": "toolflow", "packages": []}))
    command.build_lib = str(tmp_path / "site-packages")
    command.ensure_finalized()
    command.editable_mode = False
    command.run()
    assert set(command.get_outputs()) == {str(path) for path in (tmp_path / "site-packages").rglob("*.*")}
    return tmp_path / "site-packages"


def test_every_template_static_file_and_guide_is_in_the_wheel(built: Path) -> None:
    for name in ("templates", "static", "docs"):
        parts = {path.relative_to(ROOT / name) for path in (ROOT / name).rglob("*") if path.is_file()}
        packed = built / "toolflow_site" / name
        assert {path.relative_to(packed) for path in packed.rglob("*") if path.is_file()} == parts
    schema = built / "flows/flow_file/flow.schema.json"
    assert schema.read_bytes() == (ROOT / "docs/flow.schema.json").read_bytes()


def test_an_installed_package_finds_its_parts_and_keeps_what_is_its_own_where_it_is_started(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(ROOT / "toolflow_site/settings.py", built / "toolflow_site")
    started = tmp_path / "started"
    started.mkdir()
    monkeypatch.chdir(started)
    environment = make_environment(tmp_path, {"TOOLFLOW_DATA_DIR": "", "TOOLFLOW_ENV_FILE": ""})
    (started / ".env").write_text("TOOLFLOW_MODEL=from-the-folder\n")
    with mock.patch.dict(os.environ, environment, clear=True):
        found: dict[str, Any] = runpy.run_path(str(built / "toolflow_site/settings.py"))
    assert found["TEMPLATES"][0]["DIRS"] == [built / "toolflow_site/templates"]
    assert found["STATICFILES_DIRS"] == [built / "toolflow_site/static"]
    assert found["GUIDES_DIR"] == built / "toolflow_site/docs"
    assert found["TOOLFLOW_DATA_DIR"] == started / "var"
    assert found["TOOLFLOW_MODEL"] == "from-the-folder"


def test_the_commands_of_the_package_lead_somewhere() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    assert set(scripts) == {"toolflow", "toolflow-manage"}
    for place in scripts.values():
        module, _, name = place.partition(":")
        assert callable(getattr(import_module(module), name))
