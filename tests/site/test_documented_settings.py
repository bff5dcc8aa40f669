"""What the installation reads from its environment is what ``.env.example`` lists: all of it, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

from django.conf import settings

from tests.contract.collecting import collect
from tests.test_docs import OF_AUTOMATORS

ROOT = Path(settings.BASE_DIR)


def list_asked() -> set[str]:
    """The variables that the settings ask for, with those of a provider called “groq”."""
    return {name.replace("<NAME>", "GROQ") for name in collect("settings")} - OF_AUTOMATORS


def test_the_example_lists_each_variable_once() -> None:
    text = (ROOT / ".env.example").read_text(encoding="utf-8")
    asked = list_asked()
    assert {"TOOLFLOW_ENV_FILE", "OPENAI_API_KEY", "TOOLFLOW_SECRET_KEY_FALLBACKS_FILE"} <= asked
    assert sorted(re.findall(r"^#([A-Z_]+)=", text, re.MULTILINE)) == sorted(asked)


def test_the_guide_lists_all_secrets_that_may_lie_in_files() -> None:
    in_files = {name for name in list_asked() if name.endswith("_FILE") and "GROQ" not in name} - {"TOOLFLOW_ENV_FILE"}
    section = (ROOT / "docs/deploy.md").read_text(encoding="utf-8").partition("\n## Secrets\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"`(\w+_FILE)`", section)) == in_files


def test_nothing_else_asks_the_environment() -> None:
    """Only ``environment.py`` does, and the command for automators, on machines of their own."""
    asking = sorted(
        path.relative_to(ROOT).as_posix()
        for package in ("flows", "runs", "toolflow_site")
        for path in (ROOT / package).rglob("*.py")
        if re.search(r"environ\.get\(|environ\[|getenv\(", path.read_text(encoding="utf-8"))
    )
    assert asking == ["runs/client/options.py", "toolflow_site/environment.py"]
