"""Every code block of README and the guides is run or read by a test; what can't be says why in the table below."""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest
import yaml
from standardwebhooks import Webhook

from flows.flow_file import parse_flow
from tests.doc_shell import find_parser
from tests.site.test_settings import make_environment
from tests.test_docs import PAGES, ROOT, find_blocks

FENCE = re.compile(r"^ *```(?P<info>[^\n]*)\n(?P<code>.*?)^ *```$", re.MULTILINE | re.DOTALL)

RUN = "tests/test_doc_commands.py"
READ = "tests/test_doc_blocks.py"
DOCS = "tests/test_docs.py"
GUIDE = "tests/api/test_guide.py"
SERVER = "tests/api/test_guide_server.py"

TREATMENT = {
    ("README.md", "sh"): RUN,
    ("README.md", "ini"): READ,
    ("README.md", "python"): DOCS,
    ("README.md", "text"): "a picture of the parts",
    ("CONTRIBUTING.md", "sh"): RUN,
    ("docs/api.md", "sh"): GUIDE,
    ("docs/api.md", "sh toolflow"): GUIDE,
    ("docs/api.md", "sh on the server"): SERVER,
    ("docs/api.md", "sh another terminal"): SERVER,
    ("docs/api.md", "sh on an ASGI server"): "the live server of tests is none; tests/api/test_events.py asks one",
    ("docs/api.md", "sh as an administrator"): GUIDE,
    ("docs/api.md", "sh once"): "installs packages from an index; tests/site/test_packaging.py holds what is installed",
    ("docs/api.md", "python"): GUIDE,
    ("docs/api.md", "python receiver"): GUIDE,
    ("docs/api.md", "sh receiver"): SERVER,
    ("docs/audit-trail.md", "sh"): RUN,
    ("docs/backup.md", "sh"): RUN,
    ("docs/backup.md", "sh postgres dump"): RUN,
    ("docs/backup.md", "sh postgres restore"): RUN,
    ("docs/backup.md", "sh as root"): RUN,
    ("docs/concepts.md", "text"): DOCS,
    ("docs/deploy.md", "sh as root"): RUN,
    ("docs/deploy.md", "text"): "a picture of the parts",
    ("docs/expressions.md", "json"): DOCS,
    ("docs/expressions.md", "cel"): DOCS,
    ("docs/flow-files.md", "yaml"): "tests/flows/flow_file/test_flow_files_page.py",
    ("docs/flow-files.md", "text"): "sentences of the importer, which tests/flows/flow_file holds",
    ("docs/flow-files.md", "sh"): RUN,
    ("docs/models.md", "ini"): READ,
    ("docs/observability.md", "json"): READ,
    ("docs/observability.md", "yaml"): READ,
    ("docs/observability.md", "text"): "a picture of a trace, whose names tests/runs/tracing holds",
    ("docs/performance.md", "bash"): RUN,
    ("docs/permissions.md", "sh"): RUN,
    ("docs/permissions.md", "ini"): READ,
    ("docs/plugins.md", "sh"): RUN,
    ("docs/plugins.md", "ini"): READ,
    ("docs/plugins.md", "text"): "what a check says, which tests/flows/test_checks.py holds",
    ("docs/plugins.md", "python"): DOCS,
    ("docs/redaction.md", "yaml"): READ,
    ("docs/retention.md", "bash"): RUN,
    ("docs/run-history.md", "sh"): RUN,
    ("docs/running.md", "sh"): RUN,
    ("docs/scaling.md", "console"): RUN,
    ("docs/scaling.md", "text"): "a picture of the hosts",
    ("docs/statistics.md", "console"): RUN,
    ("docs/webhooks.md", "json"): READ,
    ("docs/webhooks.md", "python"): READ,
    ("docs/webhooks.md", "sh"): RUN,
    ("docs/webhooks.md", "ini"): READ,
}
"""By page and what stands behind the fence: the test that runs or reads such blocks, or why none does."""


class Block(NamedTuple):
    """A fenced block of a page."""

    page: str
    info: str
    code: str


def list_blocks() -> list[Block]:
    """The blocks of all pages, in order."""
    pages = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", ROOT / "CHANGELOG.md"]
    return [
        Block(page.relative_to(ROOT).as_posix(), match["info"].strip(), match["code"])
        for page in pages
        for match in FENCE.finditer(page.read_text(encoding="utf-8"))
    ]


BLOCKS = list_blocks()


def choose(*languages: str) -> list[Any]:
    """The blocks in these languages, as parameters of a test."""
    chosen = [block for block in BLOCKS if block.info.partition(" ")[0] in languages]
    return [pytest.param(block, id=f"{Path(block.page).stem}-{number}") for number, block in enumerate(chosen)]


def test_every_block_is_run_or_read_or_says_why_not() -> None:
    # What stands behind “cel” is the field that the expression is for.
    found = {(block.page, "cel" if block.info.startswith("cel ") else block.info) for block in BLOCKS}
    assert found == set(TREATMENT)
    for (page, info), treatment in TREATMENT.items():
        assert info, f"{page} has a block without a language"
        if treatment.startswith("tests/") and " " not in treatment:
            names = (ROOT / treatment).read_text(encoding="utf-8")
            # The guide’s second test takes the name of the page from the first.
            assert page in names or treatment == SERVER, f"{treatment} says nothing of {page}"


@pytest.mark.parametrize("block", choose("text"))
def test_what_is_not_run_is_no_command(block: Block) -> None:
    commands = r"^[$#]? ?(?:\.venv/bin/|python|manage\.py|toolflow-|pip |make |curl |cp |sudo |docker |systemctl )"
    assert re.findall(commands, block.code, re.MULTILINE) == []


@pytest.mark.parametrize("block", choose("sh", "bash"))
def test_a_shell_can_read_it(block: Block) -> None:
    done = subprocess.run(["bash", "-n", "-c", block.code], capture_output=True, check=False, text=True, timeout=20)
    assert done.stderr == ""


@pytest.mark.parametrize("block", choose("python"))
def test_python_can_read_it(block: Block) -> None:
    compile(block.code, block.page, "exec")


@pytest.mark.parametrize("block", choose("json"))
def test_json_can_be_read(block: Block) -> None:
    assert isinstance(json.loads(block.code), dict)


def test_rules_of_redaction_are_part_of_a_flow() -> None:
    ((_, code),) = find_blocks("docs/redaction.md", "yaml")
    spec = parse_flow(f"name: letter\n{code}steps:\n  - name: Copy\n    compute: input\n")
    assert list(spec.redact) == yaml.safe_load(code)["redact"]


def test_the_scraper_is_told_what_prometheus_reads() -> None:
    ((_, code),) = find_blocks("docs/observability.md", "yaml")
    for job in yaml.safe_load(code)["scrape_configs"]:
        assert set(job) == {"job_name", "authorization", "static_configs"}
        assert set(job["authorization"]) == {"credentials"}


def test_the_line_of_the_log_has_the_fields_of_the_table() -> None:
    ((_, code),) = find_blocks("docs/observability.md", "json")
    line = json.loads(code)
    page = (ROOT / "docs/observability.md").read_text(encoding="utf-8")
    (row,) = re.findall(r"^\| `attempt\.ended` \|(.*)\|$", page, re.MULTILINE)
    always = ["time", "level", "logger", "event", "message", "run", "step", "attempt"]
    assert list(line) == [*always, *re.findall(r"`(\w+)`", row)]


def test_the_message_of_a_webhook_is_believed_as_the_page_says() -> None:
    ((_, body),) = find_blocks("docs/webhooks.md", "json")
    ((_, code),) = find_blocks("docs/webhooks.md", "python")
    secret, at = "whsec_" + "QUJD" * 8, datetime.now(UTC)
    headers = {
        "webhook-id": "msg-1",
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": Webhook(secret).sign("msg-1", at, body),
    }
    found: dict[str, Any] = {"secret": secret, "body": body, "headers": headers}
    exec(compile(code, "webhooks.md", "exec"), found)  # noqa: S102  # the page’s own code is what is tried
    assert found["message"] == json.loads(body)


@pytest.mark.parametrize("block", choose("ini"))
def test_settings_are_accepted_as_they_stand(block: Block, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("from-a-file")
    values = dict(line.split("=", 1) for line in block.code.splitlines())
    values = {name: str(secret) if name.endswith("_FILE") else value for name, value in values.items()}
    with mock.patch.dict(os.environ, make_environment(tmp_path, values), clear=True):
        runpy.run_path(str(ROOT / "toolflow_site/settings.py"))


def list_inline_commands() -> list[Any]:
    """What pages say of ``manage.py`` in their sentences and tables: page, command and the rest."""
    command = re.compile(r"(?:\S*python )?(?:manage\.py|toolflow-admin)\s+(\w+)(.*)", re.DOTALL)
    spans = [
        (page.name, span) for page in PAGES for span in re.findall(r"`([^`]+)`", FENCE.sub("", page.read_text("utf-8")))
    ]
    found = [(page, *match.groups()) for page, span in spans if (match := command.fullmatch(span))]
    return [pytest.param(*each, id=f"{each[0]}-{each[1]}") for each in sorted(set(found))]


@pytest.mark.parametrize(("guide", "command", "rest"), list_inline_commands())
def test_a_command_in_a_sentence_has_the_options_that_it_names(guide: str, command: str, rest: str) -> None:
    options = {word.partition("=")[0] for word in shlex.split(rest) if word.startswith("--")}
    known = find_parser(command)._option_string_actions
    assert options <= set(known), f"{guide} names options that manage.py {command} does not have"
