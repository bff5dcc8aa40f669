"""What the installation reads from its environment is what ``.env.example`` lists: all of it, and nothing else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings

ROOT = Path(settings.BASE_DIR)
SITE = ROOT / "toolflow_site"
PROVIDER_FIELDS = ("BASE_URL", "API_KEY", "API_KEY_FILE", "API", "HEADERS", "HEADERS_FILE")


def find_calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """The calls of functions, each with the name behind the last dot."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            yield (node.func.id if isinstance(node.func, ast.Name) else node.func.attr), node


def find_secret_readers() -> set[str]:
    """The readers that also take the name of a file: ``read_secret``, and all that call it."""
    tree = ast.parse((SITE / "environment.py").read_text(encoding="utf-8"))
    called = {
        node.name: {name for name, _ in find_calls(node)} for node in tree.body if isinstance(node, ast.FunctionDef)
    }
    found = {"read_secret"}
    while more := {name for name, others in called.items() if others & found} - found:
        found |= more
    return found


def find_read_variables() -> tuple[set[str], set[str]]:
    """The variables that the site reads, and those that may come from a file."""
    secret_readers = find_secret_readers()
    names, in_files = set(), set()
    for path in SITE.glob("*.py"):
        if path.name == "environment.py":
            continue
        for reader, call in find_calls(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == "environment"):
                continue
            if reader.startswith("read_"):
                name = ast.literal_eval(call.args[0])
                names.add(name)
                # Each provider that it lists has variables of its own.
                if reader in secret_readers - {"read_providers"}:
                    in_files.add(f"{name}_FILE")
    return names, in_files


def test_the_example_lists_each_variable_once() -> None:
    names, in_files = find_read_variables()
    assert {"TOOLFLOW_ENV_FILE", "OPENAI_API_KEY", "TOOLFLOW_SESSION_HOURS"} <= names
    assert {"DATABASE_URL_FILE", "TOOLFLOW_METRICS_TOKEN_FILE", "TOOLFLOW_SECRET_KEY_FALLBACKS_FILE"} <= in_files
    text = (ROOT / ".env.example").read_text(encoding="utf-8")
    listed = re.findall(r"^#([A-Z_]+)=", text, re.MULTILINE)
    groq = {f"TOOLFLOW_PROVIDER_GROQ_{field}" for field in PROVIDER_FIELDS}
    assert sorted(listed) == sorted(names | in_files | groq)


def test_the_guide_lists_all_secrets_that_may_lie_in_files() -> None:
    _, in_files = find_read_variables()
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
