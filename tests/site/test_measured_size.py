"""What ``make size`` counts: tokens, and files that import each other."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

FILES = {
    "a.py": "def load():\n    from b import name\n",
    "b.py": "import c\n",
    "c.py": "import a\nimport d\n",
    "d.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import a\n",
}


@pytest.fixture(scope="module")
def size() -> dict[str, Any]:
    return runpy.run_path(str(Path(settings.BASE_DIR) / "scripts/measure_size.py"))


def test_tokens_are_those_of_code(size: dict[str, Any]) -> None:
    code = 'x = "text"\nprint(x)\n'
    assert size["count_tokens"](code) == 7
    assert size["count_tokens"](f'"""Docstring."""\n\n{code}  # comment\n') == 7


def test_imports_in_functions_close_a_circle_and_those_for_types_do_not(size: dict[str, Any], tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    size["find_circles"].__globals__["ROOT"] = tmp_path
    assert size["find_circles"](FILES) == [["a", "b", "c"]]


def test_what_is_larger_than_its_limit_is_named(size: dict[str, Any]) -> None:
    limits = {"code": {"files": 2, "lines": 100}}
    assert size["find_excesses"]({"code": {"files": 2, "lines": 100}}, limits) == []
    assert size["find_excesses"]({"code": {"files": 2, "lines": 101}}, limits) == [
        "code: 101 lines, and 100 is the limit"
    ]
