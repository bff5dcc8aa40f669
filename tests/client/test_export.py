"""Taking runs out from a terminal: into a file or another program, whole or not at all."""

from __future__ import annotations

import csv
import io
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from runs.models import FacetKind, RunStatus
from tests.client.conftest import Terminal
from tests.runs.builders import make_run, make_version
from tests.runs.listed_runs import make_listed_run
from tests.runs.pages.history_builders import make_retried_run


@pytest.fixture
def broken(tmp_path: Path) -> Iterator[Terminal]:
    """The terminal of somebody whose server breaks off in the middle of a file."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/x-ndjson")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b'a\r\n{"id": 7}\n\r\n')
            self.close_connection = True

        def log_message(self, *arguments: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield Terminal(tmp_path, TOOLFLOW_URL=f"http://127.0.0.1:{server.server_port}", TOOLFLOW_TOKEN="tf_0123")
    server.shutdown()
    server.server_close()


def test_runs_that_match_go_to_standard_output(terminal: Terminal) -> None:
    version = make_version()
    runs = [make_listed_run(version, facets=[(FacetKind.LABEL, "nightly")]) for _ in range(3)]
    make_run(version)
    done = terminal.run("export", "--label", "nightly")
    assert done.status == 0
    assert [json.loads(line)["id"] for line in done.out.splitlines()] == [run.pk for run in reversed(runs)]
    assert done.err.startswith("3 runs, ")


def test_they_go_into_a_file_with_their_attempts(terminal: Terminal) -> None:
    run = make_retried_run(status=RunStatus.FAILED)
    done = terminal.run("export", "--attempts", "-o", "out/runs.jsonl")
    (line,) = (terminal.folder / "out" / "runs.jsonl").read_text("utf-8").splitlines()
    assert (done.status, done.out, json.loads(line)["id"]) == (0, "", run.pk)
    assert len(json.loads(line)["steps"][1]["attempts"]) == 2
    assert done.err.startswith("1 run, ") and done.err.endswith(" in out/runs.jsonl\n")
    assert [path.name for path in (terminal.folder / "out").iterdir()] == ["runs.jsonl"]


def test_a_table_is_chosen_by_name_or_by_word(terminal: Terminal) -> None:
    run = make_run()
    for arguments in (["-o", "runs.csv"], ["--format", "csv"]):
        done = terminal.run("export", *arguments)
        text = done.out or (terminal.folder / "runs.csv").read_text("utf-8")
        (row,) = csv.DictReader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)
        assert (done.status, row["run"]) == (0, str(run.pk))


def test_a_file_that_breaks_off_is_not_taken_for_whole(broken: Terminal) -> None:
    (broken.folder / "runs.jsonl").write_text("old", encoding="utf-8")
    done = broken.run("export", "-o", "runs.jsonl")
    assert (done.status, "broke off before the end" in done.err, len(done.err.splitlines())) == (3, True, 1)
    assert (broken.folder / "runs.jsonl").read_text(encoding="utf-8") == "old"
    assert (broken.folder / "runs.jsonl.part").read_text(encoding="utf-8") == '{"id": 7}\n'


def test_what_can_not_be_is_told_in_a_sentence(terminal: Terminal) -> None:
    (terminal.folder / "folder").mkdir()
    make_run()
    for arguments, sentence in (
        (["--flow", "nowhere", "-o", "runs.jsonl"], "There is no flow “nowhere”."),
        (["--format", "csv", "--attempts"], "CSV has one row for each run; attempts come with JSON Lines."),
        (["-o", "folder"], "folder can’t be written: Is a directory."),
    ):
        done = terminal.run("export", *arguments)
        assert (done.status, done.out, done.err) == (3, "", f"toolflow: {sentence}\n")
    assert [path.name for path in terminal.folder.iterdir()] == ["folder"]


def test_no_runs_are_an_empty_file(terminal: Terminal) -> None:
    done = terminal.run("export", "-o", "runs.jsonl")
    assert (done.status, done.err) == (0, "0 runs, 0 bytes in runs.jsonl\n")
    assert (terminal.folder / "runs.jsonl").read_bytes() == b""
