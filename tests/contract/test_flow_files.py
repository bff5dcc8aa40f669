"""Flow files: what their text means, and at which line mistakes are reported."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.contract.golden import check_golden, read_golden
from tests.contract.site import YAML, Api

pytestmark = pytest.mark.django_db


def test_scalars_and_broken_files_mean_what_they_meant() -> None:
    api = Api()
    table = read_golden("golden/flow_files.yaml")
    scalars = []
    for text, *_ in table["scalars"]:
        file = (
            f"name: scalar\ninput_schema:\n  type: object\n  default: {text}\nsteps:\n- {{name: S, compute: input}}\n"
        )
        errors = api.find_errors(file, kind=YAML)
        scalars.append([text] if errors else [text, _store(api, file)["input_schema"]["default"]])
    broken = [{"file": case["file"], "found": _find_lines(api, case["file"])} for case in table["broken"]]
    check_golden("golden/flow_files.yaml", {"scalars": scalars, "broken": broken})


def _store(api: Api, file: str) -> dict[str, Any]:
    stored = api.fetch("PUT", f"flows/{re.findall('name: ([a-z-]+)', file)[0]}", file, kind=YAML)
    document: dict[str, Any] = stored["latest"]["document"]
    return document


def _find_lines(api: Api, file: str) -> list[str]:
    errors = api.find_errors(file, kind=YAML)
    assert errors
    return list(dict.fromkeys(_find_line(error) for error in errors))


def _find_line(error: dict[str, str]) -> str:
    line = re.match(r"Line (\d+), column \d+", error["detail"])
    return f"{line[1] if line else '-'} {error['pointer']}".strip()
