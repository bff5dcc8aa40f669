"""Running a flow on every line of a file from a terminal."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from flows.engine.spec import AuditSpec
from runs.client import batch
from runs.models import Run
from tests.client.conftest import Done, Terminal
from tests.client.stand_in import NO_RUNS, Reply, answer_json, answer_problem
from tests.client.test_runs import make_local
from tests.engine.builders import make_step
from tests.runs.builders import make_version
from tests.runs.executing import drain
from tests.runs.pages.history_builders import make_page_flow
from tests.waiting import wait_until

ENDED = (200, {"Content-Type": "application/x-ndjson"}, b'{"id": 7, "status": "errored", "end_sentence": "No."}\n')
PICKY = AuditSpec(name="Picky", rule="input.topic != 'tea'", message="'No tea.'")


def write_lines(terminal: Terminal, *topics: str) -> None:
    lines = [json.dumps({"topic": topic}) for topic in topics]
    # An empty line is none, but it is counted.
    (terminal.folder / "inputs.jsonl").write_text("\n".join([lines[0], "", *lines[1:]]) + "\n", encoding="utf-8")


def run_batch(terminal: Terminal, count: int, *more: str) -> Done:
    """What a command leaves behind that waits for so many runs."""
    process = terminal.begin("batch", "colour-theme", "inputs.jsonl", "--wait", *more)
    wait_until(
        lambda: Run.objects.count() == count or process.poll() is not None, within=60, what="the runs have begun"
    )
    drain()
    return terminal.end(process)


def test_each_line_becomes_a_run_with_a_label_in_common(terminal: Terminal) -> None:
    make_version(make_local())
    write_lines(terminal, "tea", "coffee", "milk")
    done = terminal.run("batch", "colour-theme", "inputs.jsonl", "--label", "drinks")
    runs = list(Run.objects.order_by("pk"))
    assert [run.input["topic"] for run in runs] == ["tea", "coffee", "milk"]
    labels = {tuple(run.labels) for run in runs}
    ((mark, own),) = labels
    assert (done.status, own) == (0, "drinks")
    assert done.out == f"3 runs of “colour-theme”: queued, with the label {mark}\n"
    told = terminal.run("batch", "colour-theme", "-", "--json", stdin='{"topic": "water"}').json
    assert [(one["line"], one["run"]) for one in told["runs"]] == [(1, Run.objects.latest("pk").pk)]


def test_what_came_of_each_line_is_given_in_the_order_of_the_file(terminal: Terminal) -> None:
    make_version(make_page_flow(make_step(1, compute="{'n': 1}", audits=(PICKY,), max_retries=0)))
    write_lines(terminal, "tea", "coffee")
    done = run_batch(terminal, 2)
    results = [json.loads(line) for line in done.out.splitlines()]
    assert [(one["line"], one["status"], one["output"]) for one in results] == [
        (1, "failed", None),
        (3, "succeeded", {"n": 1}),
    ]
    assert results[0]["problem"] and results[1]["problem"] is None
    assert done.status == 1
    assert "1 run failed\n1 run succeeded\n" in done.err


def test_outputs_go_into_a_file(terminal: Terminal) -> None:
    make_version(make_local())
    write_lines(terminal, "tea", "coffee")
    done = run_batch(terminal, 2, "-o", "outputs.jsonl")
    lines = (terminal.folder / "outputs.jsonl").read_text(encoding="utf-8").splitlines()
    assert (done.status, done.out) == (0, "")
    assert [json.loads(line)["output"] for line in lines] == [{"n": 2}, {"n": 2}]


def test_under_one_key_they_are_started_once(terminal: Terminal) -> None:
    make_version(make_local())
    write_lines(terminal, "tea", "coffee")
    told = [terminal.run("batch", "colour-theme", "inputs.jsonl", "--idempotency-key", "k") for _ in range(2)]
    assert (told[0].status, told[0].out) == (0, told[1].out)
    assert Run.objects.count() == 2


def test_a_line_that_can_t_be_read_is_named_and_nothing_is_started(terminal: Terminal) -> None:
    make_version(make_local())
    for text, sentence in (
        ('{"topic": "tea"}\n{"topic": \n', "inputs.jsonl, line 2: "),
        ("[1]\n", "inputs.jsonl, line 1: "),
        ("\n", "There is no input in the file: "),
    ):
        (terminal.folder / "inputs.jsonl").write_text(text, encoding="utf-8")
        done = terminal.run("batch", "colour-theme", "inputs.jsonl")
        assert (done.status, done.out) == (3, "")
        assert done.err.startswith(f"toolflow: {sentence}")
    assert not Run.objects.exists()


def test_characters_that_can_t_be_stored_are_told_by_their_line(stand_in: Callable[..., Terminal]) -> None:
    terminal = stand_in()
    done = terminal.run("batch", "a", "-", stdin='{"topic": "tea"}\n{"topic": ["x", "\\ud800"]}')
    assert (done.status, terminal.asked) == (3, [])
    assert done.err.startswith("toolflow: Standard input, line 2 has characters")


def test_an_input_that_does_not_fit_is_told_by_its_line(terminal: Terminal) -> None:
    schema = {"type": "object", "properties": {"topic": {"type": "string", "maxLength": 4}}, "required": ["topic"]}
    make_version(make_page_flow(make_step(1, compute="{'n': 1}"), input_schema=schema))
    write_lines(terminal, "tea", "coffee")
    done = terminal.run("batch", "colour-theme", "inputs.jsonl")
    assert done.status == 3
    first, second = done.err.splitlines()
    assert first == "toolflow: The body has a mistake. Nothing is started."
    assert second.startswith("  line 3, /topic: ")
    done = terminal.run("batch", "colour-theme", "-", stdin='{"topic": "tea"}\n{}')
    assert done.err.splitlines()[1:] == ["  line 2: `topic` is missing."]
    assert not Run.objects.exists()


def test_outputs_need_an_end(terminal: Terminal) -> None:
    done = terminal.run("batch", "colour-theme", "-", "--output", "x")
    assert (done.status, done.err) == (3, "toolflow: --output is for what comes of the runs; it takes --wait.\n")


def test_runs_that_are_not_all_named_are_told(stand_in: Callable[..., Terminal]) -> None:
    done = stand_in(answer_json({"runs": []}, 202)).run("batch", "a", "-", stdin="{}\n{}")
    assert (done.status, done.err) == (3, "toolflow: The server named 0 runs for 2 inputs.\n")


def test_it_is_not_said_that_nothing_is_started_where_nobody_knows(stand_in: Callable[..., Terminal]) -> None:
    terminal = stand_in(*[answer_problem(504, Retry_After="0")] * 4)
    done = terminal.run("batch", "a", "-", stdin="{}")
    mark = json.loads(terminal.asked[0].body)["labels"][-1]
    assert done.err == f"toolflow: This is 504. Runs that are queued all the same have the label “{mark}”.\n"


@pytest.mark.parametrize(
    ("replies", "more", "sentence"),
    [
        ([answer_problem(401)], (), "This is 401. The runs go on"),
        ([NO_RUNS, answer_problem(403)], (), "This is 403. The runs have ended"),
        (
            [NO_RUNS, ENDED],
            ("--output", "/dev/full"),
            "/dev/full can’t be written: No space left on device. The runs have ended",
        ),
    ],
    ids=["waiting", "reading", "writing"],
)
def test_results_that_can_not_be_had_are_not_lost(
    stand_in: Callable[..., Terminal], replies: list[Reply], more: tuple[str, ...], sentence: str
) -> None:
    started = answer_json({"runs": [{"id": 7, "url": "http://x/api/v1/runs/7"}]}, 202)
    terminal = stand_in(started, *replies)
    done = terminal.run("batch", "a", "-", "--wait", *more, stdin="{}")
    mark = json.loads(terminal.asked[0].body)["labels"][-1]
    assert (done.status, done.out) == (3, "")
    assert done.err.splitlines() == [
        f"1 run of “a”: queued, with the label {mark}",
        f"toolflow: {sentence}; “toolflow export --label {mark} --attempts” gives what came of them.",
    ]


@pytest.mark.parametrize(
    ("output", "reason"), [("nowhere/themes.jsonl", "No such file or directory"), (".", "Is a directory")]
)
def test_nothing_is_started_whose_results_can_not_be_kept(
    stand_in: Callable[..., Terminal], output: str, reason: str
) -> None:
    terminal = stand_in()
    done = terminal.run("batch", "a", "-", "--wait", "--output", output, stdin="{}")
    assert (done.status, done.err, terminal.asked) == (3, f"toolflow: {output} can’t be written: {reason}.\n", [])


@pytest.mark.parametrize("earlier", [None, "of yesterday"])
def test_a_batch_that_is_refused_leaves_the_output_as_it_was(
    stand_in: Callable[..., Terminal], earlier: str | None
) -> None:
    terminal = stand_in(answer_problem(422))
    output = terminal.folder / "themes.jsonl"
    if earlier:
        output.write_text(earlier, encoding="utf-8")
    assert terminal.run("batch", "a", "-", "--wait", "--output", "themes.jsonl", stdin="{}").status == 3
    assert (output.read_text(encoding="utf-8") if output.exists() else None) == earlier


@pytest.mark.parametrize(
    ("count", "size", "parts"), [(2_500, 10, [1_000, 1_000, 500]), (3, batch.MOST_BYTES // 2, [1, 1, 1]), (1, 10, [1])]
)
def test_a_request_holds_no_more_than_it_may(count: int, size: int, parts: list[int]) -> None:
    lines = [(number, {"text": "x" * size}) for number in range(count)]
    found = list(batch._split(lines))
    assert [len(part) for part in found] == parts
    assert [line for part in found for line in part] == lines
