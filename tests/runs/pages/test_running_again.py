"""Running a run again: in the browser, with which version, what the new run keeps, and by a command for a shell."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import Client
from django.urls import reverse

from flows.models import Flow
from runs.models import Priority, Run
from runs.pages.run_head import MAX_COMMAND_LENGTH as LONGEST
from runs.pages.run_head import build_curl_command
from runs.submission import submit_run
from tests.runs.builders import make_run, make_version
from tests.runs.pages.history_builders import make_page_flow
from tests.runs.pages.reading import get_page, read_words, run_address, sign_in

pytestmark = pytest.mark.django_db

ADDRESS = "/runs/new/colour-theme/"
SENT = {"view": "json", "json": '{"brand": "Nordwind"}'}
HOOK = "https://hooks.example.com/T0/key-of-ada"
NEWER = {"type": "object", "required": ["brand"], "properties": {"brand": {"type": "string"}}}


@pytest.fixture
def flow() -> Flow:
    return make_version(make_page_flow()).flow


def make_ended(flow: Flow, **fields: Any) -> Run:
    run = submit_run(flow=flow, input={"brand": "Nordwind"}, **fields)
    assert run.request_cancel()
    return run


def send(client: Client, status: int, **fields: Any) -> str:
    answer: HttpResponse = client.post(ADDRESS, {**SENT, **fields})  # type: ignore[assignment]  # the test client adds to it
    assert answer.status_code == status
    return answer.content.decode()


def start_again(client: Client, run: Run, **fields: Any) -> Run:
    """Send the form of ``run``; gives the run that this starts."""
    send(client, 302, **{"from": run.pk}, **fields)
    return Run.objects.latest("pk")


class TestForm:
    def test_what_the_run_was_given_beyond_the_flow_is_filled_in(self, operator: Client, flow: Flow) -> None:
        run = make_ended(flow, priority=Priority.LOW, time_limit=90, labels=["nightly", "customer 42"])
        assert f'href="{ADDRESS}?from={run.pk}"' in get_page(operator, run_address(run))
        page = get_page(operator, f"{ADDRESS}?from={run.pk}")
        options = dict(re.findall(r'name="(\w+)" id="option-\w+" value="([^"]*)"', page))
        assert options == {"labels": "customer 42, nightly", "token_budget": "", "cost_budget": "", "time_limit": "90"}
        assert 'value="low" selected' in page and "Nordwind" in page

    @pytest.mark.parametrize("number", ["{other}", "999", "x", "-1", "9" * 30])
    def test_a_run_that_is_none_of_this_flow_gets_a_sentence(self, operator: Client, flow: Flow, number: str) -> None:
        other = make_run(make_version(make_page_flow(name="other")), input={"secret": "Tea"})
        page = get_page(operator, f"{ADDRESS}?from={number.format(other=other.pk)}")
        assert "message-warning" in page and "Tea" not in page

    def test_the_input_of_a_run_is_not_shown_to_who_may_not_see_runs(self, client: Client, flow: Flow) -> None:
        run = make_ended(flow)
        assert "Nordwind" not in get_page(sign_in(client, "add_run"), f"{ADDRESS}?from={run.pk}")


class TestVersions:
    @pytest.fixture
    def earlier(self, flow: Flow) -> Run:
        """A run of version 1 that was cancelled; the live version is 2."""
        run = make_ended(flow)
        make_version(make_page_flow(input_schema=NEWER))
        return run

    def test_the_form_says_which_version_runs_and_runs_that_one(self, operator: Client, earlier: Run) -> None:
        for query, number in (("", 2), ("&version=1", 1)):
            page = get_page(operator, f"{ADDRESS}?from={earlier.pk}{query}")
            assert f"<strong>version {number}</strong>" in page
            assert ('name="version" value="1"' in page) == (number == 1)
        assert start_again(operator, earlier).version.number == 2
        assert start_again(operator, earlier, version="1").version.number == 1

    def test_changing_the_version_keeps_what_was_typed(self, operator: Client, earlier: Run) -> None:
        fields = {"view": "form", "input/brand": "Typed", "from": earlier.pk, "labels": "mine"}
        page = send(operator, 200, **fields, take="1")
        assert '<input type="hidden" name="version" value="1">' in page
        assert "Typed" in page and 'value="mine"' in page
        page = send(operator, 200, json='{"brand": "Typed"}', version="1", take="2", **{"from": earlier.pk})
        assert 'name="version"' not in page and "Typed" in page
        assert Run.objects.count() == 1

    @pytest.mark.parametrize("number", ["9", "x", "-1", "9" * 30, "٣"])
    def test_a_version_that_there_is_not_gets_a_sentence_and_nothing_else_runs_instead(
        self, operator: Client, flow: Flow, number: str
    ) -> None:
        for page in (get_page(operator, f"{ADDRESS}?version={number}"), send(operator, 200, version=number)):
            assert "message-warning" in page and number[:20] in page
        assert not Run.objects.exists()

    def test_where_no_version_is_live_that_of_the_run_is_offered_and_runs(self, operator: Client, flow: Flow) -> None:
        run = make_ended(flow)
        Flow.objects.update(live_version=None)
        page = get_page(operator, run_address(run))
        assert f'href="{ADDRESS}?from={run.pk}&amp;version=1"' in page and 'id="again"' not in page
        assert "Nordwind" in get_page(operator, f"{ADDRESS}?from={run.pk}&version=1")
        again = start_again(operator, run, version="1")
        assert (again.version, again.again_of) == (run.version, run.pk)
        for query in ("", "version=9", f"from={run.pk}&version=9"):
            assert operator.get(f"{ADDRESS}?{query}").status_code == 409

    def test_a_flow_in_the_archive_is_not_run_again(self, operator: Client, earlier: Run) -> None:
        Flow.objects.update(is_archived=True)
        assert f'href="{ADDRESS}' not in get_page(operator, run_address(earlier))
        for query in ("", "&version=1"):
            assert operator.get(f"{ADDRESS}?from={earlier.pk}{query}").status_code == 409


class TestKeeping:
    @pytest.mark.parametrize(
        ("given", "names"),
        [
            ({"metadata": {"order": 4711}, "webhook_url": HOOK}, "metadata and webhook"),
            ({"metadata": {"order": 4711}}, "metadata"),
            ({"webhook_url": HOOK}, "webhook"),
        ],
    )
    def test_the_form_says_what_the_new_run_keeps_and_it_does(
        self, operator: Client, flow: Flow, given: dict[str, Any], names: str
    ) -> None:
        run = make_ended(flow, **given)
        page = get_page(operator, f"{ADDRESS}?from={run.pk}")
        assert f"Keep the {names} of run #{run.pk}" in read_words(page) and "key-of-ada" not in page
        kept, left = start_again(operator, run, keep="on"), start_again(operator, run)
        assert (kept.metadata, kept.webhook_url) == (run.metadata, run.webhook_url)
        assert (left.metadata, left.webhook_url, left.again_of) == ({}, "", run.pk)

    def test_what_can_not_be_kept_any_more_is_named_and_keeps_no_user_from_starting(
        self, operator: Client, flow: Flow
    ) -> None:
        run = make_ended(flow)
        Run.objects.update(webhook_url="https://hooks.example.com:25/T0", metadata={"x": "y" * 20_000})
        page = get_page(operator, f"{ADDRESS}?from={run.pk}")
        assert page.count('class="message message-warning"') == 2 and 'name="keep"' not in page
        again = start_again(operator, run, keep="on")
        assert (again.metadata, again.webhook_url) == ({}, "")


class TestNamingTheRunBefore:
    def test_the_new_run_leads_to_the_one_it_repeats_while_that_is_there(self, operator: Client, flow: Flow) -> None:
        run = make_ended(flow)
        again = start_again(operator, run)
        page = get_page(operator, run_address(again))
        assert f'Re-run of <a href="/runs/{run.pk}/">' in page
        assert f'href="/runs/compare/?a={run.pk}&amp;b={again.pk}"' in page
        Run.objects.filter(pk=run.pk).delete()
        page = get_page(operator, run_address(again))
        assert f"Re-run of #{run.pk}, which was deleted" in read_words(page) and f'href="/runs/{run.pk}/"' not in page


API = "https://toolflow.example/api/v1/runs"
SHELLS = [shell for shell in ("sh", "bash", "dash", "zsh") if shutil.which(shell)]


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a ``curl`` that writes down its arguments, each ended by NUL."""
    folder = tmp_path_factory.mktemp("bin")
    curl = folder / "curl"
    curl.write_text('#!/bin/sh\nprintf "%s\\0" "$@" > "$WRITES_TO"\n')
    curl.chmod(curl.stat().st_mode | stat.S_IXUSR)
    return folder


class TestCommand:
    """The command that starts the run over the API: what a shell makes of it."""

    @staticmethod
    def run_command(stub: Path, shell: str, input: Any) -> Any:
        """The input that reaches the API."""
        command = build_curl_command(API, "colour-theme", 3, input)
        assert command is not None and command.isascii()
        written = stub / "arguments"
        path = f"{stub}{os.pathsep}{os.environ['PATH']}"
        environment = {"PATH": path, "WRITES_TO": str(written), "TOOLFLOW_TOKEN": "t0k"}
        # Interactive, as where people paste it: there “!” means something in some shells.
        arguments = [shell, *(["-i"] if shell == "bash" else [])]
        subprocess.run(arguments, input=f"{command}\n", env=environment, text=True, check=True, capture_output=True)
        *rest, body, end = written.read_text().split("\0")
        headers = ["-H", "Authorization: Bearer t0k", "-H", "Content-Type: application/json"]
        assert (rest, end) == (["-X", "POST", API, *headers, "--data"], "")
        document = json.loads(body)
        assert (document["flow"], document["version"]) == ("colour-theme", 3)
        return document["input"]

    @pytest.mark.parametrize("shell", SHELLS)
    @pytest.mark.parametrize(
        "input",
        [
            {},
            {"quote": 'it\'s "so" `date` $HOME $(date) \\ !! !x ; & | > < * ? # ~ {a,b}'},
            {"lines": "one\ntwo\r\n\tthree\u2028four", "end": "\\"},
            {"letters": "ä€😀\u202e\u0000\x1b[31m\x7f", "half": "\ud83d"},
            {"@file": "@/etc/passwd", "deep": [1, 2.5, None, True, {"!": "'"}]},
        ],
        ids=["empty", "quotes", "lines", "letters", "file"],
    )
    def test_every_shell_hands_on_the_input_exactly(self, stub: Path, shell: str, input: Any) -> None:
        assert self.run_command(stub, shell, input) == input

    def test_the_page_has_one_that_the_api_takes_and_that_starts_the_version_of_the_run(self, operator: Client) -> None:
        run = make_run(make_version(make_page_flow()), input={"text": "<b>it's</b>"})
        make_version(make_page_flow(title="Second"))
        page = get_page(operator, run_address(run))
        assert f"curl -X POST http://testserver{reverse('api:list_runs')} " in page
        assert "&lt;b&gt;it\\u0027s&lt;/b&gt;" in page
        body = page.partition("--data &#x27;")[2].partition("&#x27;</pre>")[0]
        for code, sign in (("&quot;", '"'), ("&lt;", "<"), ("&gt;", ">")):
            body = body.replace(code, sign)
        answer = operator.post(reverse("api:list_runs"), body, content_type="application/json")
        assert (answer.status_code, answer.json()["version"]) == (202, 1)

    def test_what_no_terminal_takes_is_not_offered(self) -> None:
        assert build_curl_command(API, "colour-theme", 3, {"text": "x" * LONGEST}) is None
