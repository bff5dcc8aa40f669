"""Running a flow on every line of a file, and exports."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from flows.engine.spec import AuditSpec
from runs.client.batch import MAX_BATCH_BYTES, split_inputs
from runs.models import FacetKind, Run, RunStatus
from tests.client.conftest import NO_RUNS, Reply, Terminal, answer, refuse
from tests.client.test_runs import make_local
from tests.engine.builders import make_step
from tests.runs.builders import make_version
from tests.runs.executing import drain
from tests.runs.listed_runs import make_listed_run
from tests.runs.pages.history_builders import make_page_flow, make_retried_run

STARTED = {"runs": [{"id": 7, "url": "http://x/api/v1/runs/7"}]}


def write_lines(*topics: str) -> None:
    lines = [json.dumps({"topic": topic}) for topic in topics]
    # An empty line is none, but it is counted.
    Path("inputs.jsonl").write_text("\n".join([lines[0], "", *lines[1:]]) + "\n", encoding="utf-8")


def test_each_line_becomes_a_run_with_a_label_in_common_once_under_a_key(site: Terminal) -> None:
    make_version(make_local())
    write_lines("tea", "coffee", "milk")
    for more in ((), ("--json",)):
        done = site.run("batch", "colour-theme", "inputs.jsonl", "--label", "drinks", "--idempotency-key", "k", *more)
        runs = list(Run.objects.order_by("pk"))
        assert (done.status, [run.input["topic"] for run in runs]) == (0, ["tea", "coffee", "milk"])
        ((mark, own),) = {tuple(run.labels) for run in runs}
        assert own == "drinks" and mark in done.out
    assert [(one["line"], one["run"]) for one in done.json["runs"]] == [
        (line, run.pk) for line, run in zip((1, 3, 4), runs, strict=True)
    ]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("more", [(), ("--json",), ("-o", "out.jsonl")])
def test_what_came_of_each_line_is_given_in_the_order_of_the_file(site: Terminal, more: tuple[str, ...]) -> None:
    picky = AuditSpec(name="Picky", rule="input.topic != 'tea'", message="'No tea.'")
    make_version(make_page_flow(make_step(1, compute="{'n': 1}", audits=(picky,), max_retries=0)))
    write_lines("tea", "coffee")
    site.clock.on_sleep = drain
    done = site.run("batch", "colour-theme", "inputs.jsonl", "--wait", *more)
    text = Path("out.jsonl").read_text("utf-8") if "-o" in more else done.out
    results = json.loads(text) if more == ("--json",) else [json.loads(line) for line in text.splitlines()]
    assert [(one["line"], one["status"], one["output"]) for one in results] == [
        (1, "failed", None),
        (3, "succeeded", {"n": 1}),
    ]
    assert (done.status, "1 run failed" in done.err, bool(results[0]["problem"])) == (1, True, True)


@pytest.mark.parametrize(("text", "place"), [('{"a": 1}\n{"a":\n', "inputs.jsonl, line 2: "), ("\n", "")])
def test_a_line_that_cannot_be_read_is_named_and_nothing_is_started(terminal: Terminal, text: str, place: str) -> None:
    Path("inputs.jsonl").write_text(text, encoding="utf-8")
    done = terminal.run("batch", "a", "inputs.jsonl")
    assert (done.status, done.out, terminal.asked) == (3, "", [])
    assert done.err.startswith(f"toolflow: {place}")


def test_an_input_that_does_not_fit_is_named_by_its_line(site: Terminal) -> None:
    schema = {"type": "object", "properties": {"topic": {"type": "string", "maxLength": 4}}, "required": ["topic"]}
    make_version(make_page_flow(make_step(1, compute="{'n': 1}"), input_schema=schema))
    write_lines("tea", "coffee")
    done = site.run("batch", "colour-theme", "inputs.jsonl")
    assert (done.status, "Nothing is started." in done.err, "\n  line 3, /topic: " in done.err) == (3, True, True)
    assert not Run.objects.exists()


@pytest.mark.parametrize(
    ("replies", "status"),
    [
        ([httpx2.ReadError("gone")] * 99, 3),
        ([answer(STARTED, 202), refuse(401)], 3),
        ([answer(STARTED, 202), answer(NO_RUNS), refuse(403)], 3),
        ([answer(STARTED, 202), KeyboardInterrupt()], 130),
    ],
    ids=["starting", "waiting", "reading", "interrupted"],
)
def test_runs_that_may_go_on_are_found_by_their_label(terminal: Terminal, replies: list[Reply], status: int) -> None:
    terminal.replies = list(replies)
    done = terminal.run("batch", "a", "-", "--wait", stdin="{}")
    mark = json.loads(terminal.asked[0].content)["labels"][-1]
    assert (done.status, done.out, mark in done.err, "Nothing" in done.err) == (status, "", True, False)


@pytest.mark.parametrize(("output", "count"), [("out.jsonl", 1), (".", 0)])
def test_what_cannot_be_kept_is_not_started_and_an_earlier_file_stays(
    terminal: Terminal, output: str, count: int
) -> None:
    Path("out.jsonl").write_text("earlier", encoding="utf-8")
    terminal.replies = [refuse(422)]
    assert terminal.run("batch", "a", "-", "--wait", "--output", output, stdin="{}").status == 3
    assert [path.read_text("utf-8") for path in Path().iterdir()] == ["earlier"]
    assert len(terminal.asked) == count
    assert terminal.run("batch", "a", "-", "--output", "x", stdin="{}").status == 3


@pytest.mark.parametrize(
    ("count", "size", "parts"),
    [(2_500, 10, [1_000, 1_000, 500]), (3, MAX_BATCH_BYTES // 2, [1, 1, 1]), (1, 10, [1])],
)
def test_a_request_holds_no_more_than_it_may(count: int, size: int, parts: list[int]) -> None:
    inputs = [(number, {"text": "x" * size}) for number in range(count)]
    found = list(split_inputs(inputs))
    assert [len(part) for part in found] == parts
    assert [line for part in found for line in part] == inputs


def test_runs_that_match_are_exported_as_lines_or_a_table_into_a_file_or_none(site: Terminal) -> None:
    listed = make_listed_run(make_version(), facets=[(FacetKind.LABEL, "nightly")])
    retried = make_retried_run(status=RunStatus.FAILED)
    done = site.run("export", "--label", "nightly")
    assert (done.status, json.loads(done.out)["id"]) == (0, listed.pk)
    assert site.run("export", "--label", "none", "-o", "none.jsonl").status == 0
    assert Path("none.jsonl").read_bytes() == b""
    done = site.run("export", "--status", "failed", "--attempts", "-o", "out/runs.jsonl")
    line = json.loads(Path("out/runs.jsonl").read_text("utf-8"))
    assert (done.status, done.out, line["id"], len(line["steps"][1]["attempts"])) == (0, "", retried.pk, 2)
    assert [path.name for path in Path("out").iterdir()] == ["runs.jsonl"]
    for arguments in (["-o", "runs.csv"], ["--format", "csv", "-o", "-"]):
        text = site.run("export", *arguments).out or Path("runs.csv").read_text("utf-8")
        rows = csv.DictReader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)
        assert {row["run"] for row in rows} == {str(listed.pk), str(retried.pk)}


def test_a_file_that_breaks_off_is_not_taken_for_complete(terminal: Terminal) -> None:
    class Broken(httpx2.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            yield b'{"id": 7}\n'
            raise httpx2.RemoteProtocolError("closed")

    Path("runs.jsonl").write_text("old", encoding="utf-8")
    terminal.replies = [httpx2.Response(200, headers={"Content-Type": "application/x-ndjson"}, stream=Broken())]
    done = terminal.run("export", "-o", "runs.jsonl")
    assert (done.status, len(done.err.splitlines())) == (3, 1)
    assert [path.read_text("utf-8") for path in Path().iterdir()] == ["old"]


@pytest.mark.parametrize(
    "arguments", [["--flow", "nowhere", "-o", "runs.jsonl"], ["--format", "csv", "--attempts"], ["-o", "folder"]]
)
def test_what_cannot_be_exported_leaves_nothing_behind(site: Terminal, arguments: list[str]) -> None:
    Path("folder").mkdir()
    done: Any = site.run("export", *arguments)
    assert (done.status, done.out, len(done.err.splitlines())) == (3, "", 1)
    assert [path.name for path in Path().iterdir()] == ["folder"]
