"""Running a flow on every line of a file, cancelling and re-running many runs, and exports."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from flows.engine.spec import AuditSpec
from runs.client.many_runs import MAX_BATCH_BYTES, split_inputs
from runs.models import BulkAction, FacetKind, Run, RunStatus
from tests.client.conftest import Reply, Terminal, answer, refuse
from tests.client.test_runs import NEVER, make_local
from tests.engine.builders import NOON, make_step
from tests.runs.builders import make_run, make_version
from tests.runs.executing import drain
from tests.runs.listed_runs import make_listed_run
from tests.runs.pages.history_builders import make_page_flow, make_retried_run

PICKY = AuditSpec(name="Picky", rule="input.topic != 'tea'", message="'No tea.'")
NO_RUNS: dict[str, Any] = {"items": [], "next": None}
STARTED = {"runs": [{"id": 7, "url": "http://x/api/v1/runs/7"}]}
NDJSON = {"Content-Type": "application/x-ndjson"}


def make_ended(count: int, status: str = RunStatus.FAILED, **fields: Any) -> list[int]:
    """Numbers of ended runs, the oldest first."""
    version = make_version(make_local(**fields))
    ended = {"ended_at": NOON, "started_at": NOON - timedelta(seconds=9)}
    return [make_run(version, status=status, labels=["tea"], **ended).pk for _ in range(count)]


def write_lines(*topics: str) -> None:
    lines = [json.dumps({"topic": topic}) for topic in topics]
    # An empty line is none, but it is counted.
    Path("inputs.jsonl").write_text("\n".join([lines[0], "", *lines[1:]]) + "\n", encoding="utf-8")


class TestBatch:
    def test_each_line_becomes_a_run_with_a_label_in_common_once_under_a_key(self, site: Terminal) -> None:
        make_version(make_local())
        write_lines("tea", "coffee", "milk")
        for more in ((), ("--json",)):
            key = ("--label", "drinks", "--idempotency-key", "k")
            done = site.run("batch", "colour-theme", "inputs.jsonl", *key, *more)
            runs = list(Run.objects.order_by("pk"))
            assert (done.status, [run.input["topic"] for run in runs]) == (0, ["tea", "coffee", "milk"])
            ((mark, own),) = {tuple(run.labels) for run in runs}
            assert own == "drinks" and mark in done.out
        assert [(one["line"], one["run"]) for one in done.json["runs"]] == [
            (line, run.pk) for line, run in zip((1, 3, 4), runs, strict=True)
        ]

    @pytest.mark.django_db(transaction=True)
    @pytest.mark.parametrize("more", [(), ("--json",), ("-o", "out.jsonl")])
    def test_what_came_of_each_line_is_given_in_the_order_of_the_file(
        self, site: Terminal, more: tuple[str, ...]
    ) -> None:
        make_version(make_page_flow(make_step(1, compute="{'n': 1}", audits=(PICKY,), max_retries=0)))
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

    @pytest.mark.parametrize(
        ("text", "place"),
        [('{"topic": "tea"}\n{"topic": \n', "inputs.jsonl, line 2: "), ("[1]\n", "inputs.jsonl, line 1: "), ("\n", "")],
    )
    def test_a_line_that_can_t_be_read_is_named_and_nothing_is_started(
        self, terminal: Terminal, text: str, place: str
    ) -> None:
        Path("inputs.jsonl").write_text(text, encoding="utf-8")
        done = terminal.run("batch", "a", "inputs.jsonl")
        assert (done.status, done.out, terminal.asked) == (3, "", [])
        assert done.err.startswith(f"toolflow: {place}")

    def test_an_input_that_does_not_fit_is_named_by_its_line(self, site: Terminal) -> None:
        schema = {"type": "object", "properties": {"topic": {"type": "string", "maxLength": 4}}, "required": ["topic"]}
        make_version(make_page_flow(make_step(1, compute="{'n': 1}"), input_schema=schema))
        write_lines("tea", "coffee")
        done = site.run("batch", "colour-theme", "inputs.jsonl")
        assert (done.status, "Nothing is started." in done.err, "\n  line 3, /topic: " in done.err) == (3, True, True)
        assert "\n  line 2: " in site.run("batch", "colour-theme", "-", stdin='{"topic": "tea"}\n{}').err
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
    def test_runs_that_may_go_on_are_found_by_their_label(
        self, terminal: Terminal, replies: list[Reply], status: int
    ) -> None:
        terminal.replies = list(replies)
        done = terminal.run("batch", "a", "-", "--wait", stdin="{}")
        mark = json.loads(terminal.asked[0].content)["labels"][-1]
        assert (done.status, done.out, mark in done.err, "Nothing" in done.err) == (status, "", True, False)

    @pytest.mark.parametrize("earlier", [None, "of yesterday"])
    @pytest.mark.parametrize(("output", "count"), [("out.jsonl", 1), (".", 0)])
    def test_nothing_is_written_and_nothing_is_started_in_vain(
        self, terminal: Terminal, earlier: str | None, output: str, count: int
    ) -> None:
        if earlier:
            Path("out.jsonl").write_text(earlier, encoding="utf-8")
        terminal.replies = [refuse(422)]
        assert terminal.run("batch", "a", "-", "--wait", "--output", output, stdin="{}").status == 3
        assert [path.read_text("utf-8") for path in Path().iterdir()] == ([earlier] if earlier else [])
        assert len(terminal.asked) == count
        assert terminal.run("batch", "a", "-", "--output", "x", stdin="{}").status == 3

    @pytest.mark.parametrize(
        ("count", "size", "parts"),
        [(2_500, 10, [1_000, 1_000, 500]), (3, MAX_BATCH_BYTES // 2, [1, 1, 1]), (1, 10, [1])],
    )
    def test_a_request_holds_no_more_than_it_may(self, count: int, size: int, parts: list[int]) -> None:
        inputs = [(number, {"text": "x" * size}) for number in range(count)]
        found = list(split_inputs(inputs))
        assert [len(part) for part in found] == parts
        assert [line for part in found for line in part] == inputs


class TestOneByOne:
    def test_runs_are_cancelled_and_one_that_can_t_be_keeps_no_other_from_it(self, site: Terminal) -> None:
        (ended,) = make_ended(1)
        first, second = make_run().pk, make_run().pk
        done = site.run("cancel", str(first), str(ended), str(second))
        assert (done.status, done.out) == (1, f"Run {first} is cancelled.\nRun {second} is cancelled.\n")
        assert done.err.startswith(f"toolflow: run {ended}: ")
        assert [run["id"] for run in site.run("cancel", str(first), "4711", "--json").json] == [first]
        none = site.run("cancel", str(ended), "4711", "--json")
        assert (none.status, none.json, len(none.err.splitlines())) == (3, [], 2)

    def test_runs_are_run_again_each(self, site: Terminal) -> None:
        first, second = make_ended(2)
        done = site.run("rerun", str(first), "4711", str(second))
        begun = list(Run.objects.filter(pk__gt=second).order_by("pk"))
        assert done.out.splitlines() == [f"Run {run.pk} of “colour-theme”, version 1: queued" for run in begun]
        assert (done.status, "run 4711: There is no run 4711." in done.err) == (1, True)
        assert [(run.input, run.labels) for run in begun] == [({"topic": "tea"}, ["tea"])] * 2
        found = site.run("rerun", str(first), "--live", "--input", '{"topic": "milk"}', "--json").json
        assert Run.objects.get(pk=found["id"]).input == {"topic": "milk"}

    @pytest.mark.django_db(transaction=True)
    @pytest.mark.parametrize(("audits", "status"), [((), 0), ((NEVER,), 1)])
    def test_how_the_new_runs_ended_is_the_exit_status(self, site: Terminal, audits: Any, status: int) -> None:
        numbers = map(str, make_ended(2, audits=audits, max_retries=0))
        site.clock.on_sleep = drain
        for chosen in (numbers, ["--flow", "colour-theme", "--most", "1", "--yes"]):
            assert site.run("rerun", *chosen, "--wait").status == status

    def test_the_rest_is_not_tried_where_the_server_is_away(self, terminal: Terminal) -> None:
        cancelled = {"id": 7, "status": "cancelled"}
        terminal.replies = [answer(cancelled, 202), httpx2.ConnectError("refused")]
        done = terminal.run("cancel", "7", "8", "9", "10", "--json")
        assert (done.status, done.json, len(terminal.asked)) == (1, [cancelled], 2)
        assert done.err.splitlines()[-1] == "Not tried: 2 more."


class TestAllThatMatch:
    def test_nothing_is_done_without_a_yes(self, site: Terminal) -> None:
        run = make_run()
        silent = site.run("cancel", "--flow", "example")
        refused, agreed = (site.run("cancel", "--flow", "example", types=text) for text in ("n\n", "y\n"))
        assert [done.status for done in (silent, refused, agreed)] == [3, 3, 0]
        for done in (silent, refused, agreed):
            assert f"Cancel 1 run (the newest: {run.pk})?" in done.err
        assert BulkAction.objects.count() == 1
        assert Run.objects.get().status == "cancelled"

    def test_runs_that_match_are_cancelled_and_no_others(self, site: Terminal) -> None:
        version = make_version()
        for _ in range(2):
            make_listed_run(version, status="queued", facets=[(FacetKind.LABEL, "nightly")])
        other = make_run(version)
        done = site.run("cancel", "--label", "nightly", "--yes")
        assert (done.status, "done, 2 runs cancelled" in done.out) == (0, True)
        assert list(Run.objects.exclude(status="cancelled")) == [other]

    def test_up_to_a_number_is_run_again(self, site: Terminal) -> None:
        newest = make_ended(3)[-1]
        done = site.run("rerun", "--status", "failed,queued", "--most", "2", "--json", types="y\n")
        assert (done.status, done.json["done"], "Run again 2 runs (the newest: " in done.err) == (0, 2, True)
        assert Run.objects.filter(pk__gt=newest).count() == 2

    @pytest.mark.parametrize(
        "arguments", [["cancel", "--status", "failed"], ["cancel", "--all"], ["rerun", "--label", "nosuch"]]
    )
    def test_where_none_matches_nothing_is_done(self, site: Terminal, arguments: list[str]) -> None:
        make_ended(1)
        done = site.run(*arguments, "--yes", "--json")
        assert (done.status, done.json["count"], BulkAction.objects.count()) == (0, 0, 0)

    def test_a_filter_that_is_not_valid_is_refused(self, site: Terminal) -> None:
        done = site.run("cancel", "--status", "lost", "--yes")
        assert (done.status, done.out, "“lost”" in done.err) == (3, "", True), done.err

    @pytest.mark.parametrize(
        "arguments",
        [
            ["cancel"],
            ["cancel", "7", "--flow", "a"],
            ["rerun", "--flow", "a", "--all"],
            ["rerun", "--flow", "a", "--input", "{}"],
            ["rerun", "7", "--most", "2"],
        ],
    )
    def test_what_can_t_be_meant_is_refused(self, terminal: Terminal, arguments: list[str]) -> None:
        done = terminal.run(*arguments)
        assert (done.status, done.out, terminal.asked) == (3, "", [])

    @pytest.mark.parametrize(
        ("status", "failed", "wait", "exit_status"),
        [("done", 1, (), 1), ("stopped", 0, (), 2), ("working", 0, (), 0), ("done", 0, ("--wait",), 0)],
    )
    def test_how_far_it_is_and_what_was_left_out_is_shown(
        self, terminal: Terminal, status: str, failed: int, wait: tuple[str, ...], exit_status: int
    ) -> None:
        action = {"id": 5, "kind": "cancel", "status": status, "done": 1, "skipped": 0, "failed": failed}
        action |= {"problem": "", "label": None, "percent": 50, "page_url": "http://x/runs/bulk/5/"}
        action |= {"notes": [{"run": 7, "failed": True, "sentence": "Its flow is archived."}]}
        listed = answer({"items": [{"id": 9, "status": "queued"}], "next": None})
        begun = {**action, "status": "working"} if wait else action
        terminal.replies = [listed, answer(begun, 202), answer(action)]
        done = terminal.run("cancel", "--all", "--yes", *wait)
        assert (done.status, "Run 7: Its flow is archived." in done.err) == (exit_status, True)
        assert done.out.startswith(f"Bulk action 5: {status}, 1 run cancelled")
        assert ("/runs/bulk/5/" in done.err) == (status == "working")


class TestExport:
    def test_runs_that_match_go_to_standard_output(self, site: Terminal) -> None:
        version = make_version()
        exported = [make_listed_run(version, facets=[(FacetKind.LABEL, "nightly")]).pk for _ in range(3)]
        make_run(version)
        done = site.run("export", "--label", "nightly")
        assert (done.status, [json.loads(line)["id"] for line in done.out.splitlines()]) == (0, exported[::-1])

    def test_they_go_into_a_file_with_their_attempts(self, site: Terminal) -> None:
        run = make_retried_run(status=RunStatus.FAILED)
        done = site.run("export", "--attempts", "-o", "out/runs.jsonl")
        (line,) = Path("out/runs.jsonl").read_text("utf-8").splitlines()
        assert (done.status, done.out, json.loads(line)["id"]) == (0, "", run.pk)
        assert len(json.loads(line)["steps"][1]["attempts"]) == 2
        assert [path.name for path in Path("out").iterdir()] == ["runs.jsonl"]

    @pytest.mark.parametrize("arguments", [["-o", "runs.csv"], ["--format", "csv", "-o", "-"]])
    def test_a_table_is_chosen_by_name_or_by_word(self, site: Terminal, arguments: list[str]) -> None:
        run = make_run()
        done = site.run("export", *arguments)
        text = done.out or Path("runs.csv").read_text("utf-8")
        (row,) = csv.DictReader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)
        assert (done.status, row["run"]) == (0, str(run.pk))

    def test_a_file_that_breaks_off_is_not_taken_for_complete(self, terminal: Terminal) -> None:
        class Broken(httpx2.SyncByteStream):
            def __iter__(self) -> Iterator[bytes]:
                yield b'{"id": 7}\n'
                raise httpx2.RemoteProtocolError("closed")

        Path("runs.jsonl").write_text("old", encoding="utf-8")
        terminal.replies = [httpx2.Response(200, headers=NDJSON, stream=Broken())]
        done = terminal.run("export", "-o", "runs.jsonl")
        assert (done.status, len(done.err.splitlines())) == (3, 1)
        assert Path("runs.jsonl").read_text(encoding="utf-8") == "old"
        assert Path("runs.jsonl.part").read_text(encoding="utf-8") == '{"id": 7}\n'

    @pytest.mark.parametrize(
        "arguments", [["--flow", "nowhere", "-o", "runs.jsonl"], ["--format", "csv", "--attempts"], ["-o", "folder"]]
    )
    def test_what_can_t_be_exported_leaves_nothing_behind(self, site: Terminal, arguments: list[str]) -> None:
        Path("folder").mkdir()
        done = site.run("export", *arguments)
        assert (done.status, done.out, len(done.err.splitlines())) == (3, "", 1)
        assert [path.name for path in Path().iterdir()] == ["folder"]

    def test_no_runs_are_an_empty_file(self, site: Terminal) -> None:
        assert site.run("export", "-o", "runs.jsonl").status == 0
        assert Path("runs.jsonl").read_bytes() == b""
