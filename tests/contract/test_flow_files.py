"""Flow files: what their text means, at which line mistakes are reported, and that what was written reads the same."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from io import StringIO
from typing import Any

import pytest
import yaml
from django.core.management import CommandError, call_command

from tests.contract.golden import check_golden, read_golden
from tests.contract.site import YAML, Api
from tests.contract.test_documents import EXAMPLES

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
    check_golden("golden/flow_files.yaml", {"texts": table["texts"], "scalars": scalars, "broken": broken})


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


def _build_tricky_flow() -> dict[str, Any]:
    texts = read_golden("golden/flow_files.yaml")["texts"]
    values = [
        *texts,
        "x" * 300,
        "a " * 200,
        0,
        -1,
        1.0,
        1e22,
        1.5e-7,
        12345678901234567890,
        True,
        None,
        [],
        {},
        {"yes": [{}], "": [[]]},
    ]
    names = texts[:50]
    return {
        "name": "tricky",
        "description": "\n".join(texts),
        "input_schema": {"type": "object", "examples": values, "properties": {text: {} for text in texts}},
        "steps": [{"name": f"{index}", "compute": "input", "system_message": text} for index, text in enumerate(names)],
    }


def test_written_files_read_the_same_here_and_elsewhere() -> None:
    api = Api()
    api.fetch("POST", "flows", _build_tricky_flow())
    for path in EXAMPLES:
        api.fetch("POST", "flows", path.read_text("utf-8"), kind=YAML)
    for name in ("tricky", *(path.stem for path in EXAMPLES)):
        latest = api.fetch("GET", f"flows/{name}")["latest"]
        text = _export(name)
        checked = api.fetch("POST", "flows/validate", text, kind=YAML)
        assert (checked["digest"], checked["would_make_version"]) == (latest["digest"], None)
        # Parsers of YAML 1.1 read no plain word of ours as something else.
        assert json.dumps(yaml.safe_load(text)) == json.dumps(latest["document"])
        as_json = json.dumps(latest["document"], indent=1)
        assert api.fetch("POST", "flows/validate", as_json, kind=YAML)["digest"] == latest["digest"]


def _export(*arguments: str) -> str:
    out = StringIO()
    call_command("export_flow", *arguments, stdout=out, stderr=StringIO())
    return out.getvalue()


def test_files_are_imported_all_or_none(tmp_path: Any) -> None:
    Api()
    good, changed, bad = (tmp_path / f"{name}.yaml" for name in ("good", "changed", "bad"))
    good.write_text("name: good\nsteps:\n- {name: S, compute: input}\n")
    bad.write_text("name: bad\nsteps:\n- {name: S, compute: nosuch}\n")
    with pytest.raises(CommandError) as refused:
        call_command("import_flow", good, bad, stderr=StringIO())
    assert refused.value.returncode == 1
    with pytest.raises(CommandError):
        _export("good")
    call_command("import_flow", good, stdout=StringIO())
    document = yaml.safe_load(_export("good"))
    later = deepcopy(document) | {"title": "Later"}
    changed.write_text(json.dumps(later))
    call_command("import_flow", changed, "--check", stdout=StringIO())
    assert yaml.safe_load(_export("good")) == document
    call_command("import_flow", changed, stdout=StringIO())
    assert yaml.safe_load(_export("good")) == later
    assert yaml.safe_load(_export("good", "--live")) == yaml.safe_load(_export("good", "--version", "1")) == document
    call_command("import_flow", changed, "--make-live", stdout=StringIO())
    assert yaml.safe_load(_export("good", "--live")) == later
