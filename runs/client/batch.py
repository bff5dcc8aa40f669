"""Files of runs: start a run for each line of one, and export runs into one."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import uuid4

import typer

from runs.client import options, terminal
from runs.client.runs import find_output, report_outcomes, wait_for_label
from runs.client.server import SUCCEEDED, ClientError, Server, UnavailableError

MAX_BATCH_RUNS = 1_000
"""Runs that one request starts, all or none."""
MAX_BATCH_BYTES = 5_000_000
"""Bytes of inputs in one request; the server takes 10 MB unless it is set otherwise."""
MEDIA_TYPES = {"jsonl": "application/x-ndjson", "csv": "text/csv"}
OUTPUT = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where results go; standard output if left out.")
]
Lines = list[tuple[int, dict[str, Any]]]
"""Numbers of lines, each with its input or its run."""


@options.with_options("body", options.RUN_OPTIONS)
def run_batch(
    context: typer.Context,
    flow: options.FLOW,
    file: Annotated[str, typer.Argument(metavar="FILE", help="One JSON input per line; - for standard input.")],
    *,
    wait: options.WAIT = False,
    output: OUTPUT = None,
    as_json: options.AS_JSON = False,
    body: dict[str, Any],
) -> int:
    """Run a flow on every line of a file in JSON Lines.

    With --wait there is a line of JSON for each line of the file, in its order, with the run and its last output; the
    exit status is 0 if all succeeded, 1 if some failed, 2 if some errored or were cancelled.
    """
    if output is not None and not wait:
        raise ClientError("--output is for the outputs of the runs; add --wait.")
    inputs = _read_inputs(file)
    server = options.connect(context)
    key = body.pop("idempotency_key", None) or str(uuid4())
    # All runs are found by it. With the same key it is the same, and only what is missing is started.
    label = f"batch-{hashlib.sha256(key.encode()).hexdigest()[:10]}"
    body |= {"flow": flow, "labels": [*body.get("labels", ()), label]}
    # The output is opened first: runs whose results can't be kept need not be paid for.
    with _open_output(output) as put:
        started = _start_batch(server, body, inputs, key)
        title = f"{terminal.format_count(len(started), 'run')} of “{flow}”: queued, with the label {label}"
        if not wait:
            runs = [{"line": line, "run": run["id"], "url": run["url"]} for line, run in started]
            terminal.print_result({"label": label, "runs": runs}, title, as_json=as_json)
            return SUCCEEDED
        terminal.print_line(title, is_error=True)
        wait_for_label(server, label, len(started))
        results = _fetch_results(server, label, started)
        if as_json and output is None:
            terminal.print_json(results)
        else:
            for result in results:
                # A pipe that is closed must not hide how the runs ended.
                (terminal.write if output is None else put)(terminal.dump_json(result))
    return report_outcomes(result["status"] for result in results)


def _read_inputs(file: str) -> Lines:
    text, name = options.read_text(file.removeprefix("@"))
    lines = enumerate(text.split("\n"), start=1)
    inputs = [(number, options.parse_object(line, f"{name}, line {number}")) for number, line in lines if line.strip()]
    if not inputs:
        raise ClientError("The file has no inputs: write one JSON object per line.")
    return inputs


def _start_batch(server: Server, body: dict[str, Any], inputs: Lines, key: str) -> Lines:
    """Start a run for each line. Gives the runs with the numbers of their lines. Raises ``ClientError``."""
    started: Lines = []
    with terminal.show_progress() as show:
        for number, part in enumerate(split_inputs(inputs), start=1):
            runs = [{"input": input} for _, input in part]
            try:
                answer = server.post("runs/bulk", key=f"{key}-{number}", **body, runs=runs)
            except ClientError as error:
                # If the answer got lost, the runs of this part may have been started.
                is_none = not (started or isinstance(error, UnavailableError))
                label = f"Runs that were started have the label “{body['labels'][-1]}”."
                message = f"{error.message} {'Nothing is started.' if is_none else label}"
                raise ClientError(message, [_name_line(detail, part) for detail in error.details]) from None
            started += [(line, run) for (line, _), run in zip(part, answer["runs"], strict=True)]
            show(f"{len(started):,} of {len(inputs):,} runs are queued", len(started), len(inputs))
    return started


def split_inputs(inputs: Lines) -> Iterator[Lines]:
    """The inputs in parts that one request may hold."""
    part: Lines = []
    size = 0
    for number, input in inputs:
        length = len(json.dumps(input))
        if part and (len(part) == MAX_BATCH_RUNS or size + length > MAX_BATCH_BYTES):
            yield part
            part, size = [], 0
        part.append((number, input))
        size += length
    yield part


def _name_line(detail: str, part: Lines) -> str:
    """A detail with the line of the file in place of a pointer into the request (``/runs/7/input/topic: …``)."""
    found = re.match(r"/runs/([0-9]+)(?:/input)?([^:]*): ", detail)
    if found is None:
        return detail
    line, _ = part[int(found[1])]
    return f"line {line}{found[2] and ', '}{found[2]}: {detail[found.end() :]}"


def _fetch_results(server: Server, label: str, started: Lines) -> list[dict[str, Any]]:
    """What became of each line, in their order: lists have no outputs, so it is an export, which the audit log has."""
    results = {}
    query = {"label": label, "format": "jsonl", "attempts": "all"}
    with server.download("runs/export", accept=MEDIA_TYPES["jsonl"], **query) as lines:
        for run in map(json.loads, lines):
            has_succeeded = run["status"] == "succeeded"
            results[run["id"]] = {
                "run": run["id"],
                "status": run["status"],
                "output": find_output(run) if has_succeeded else None,
                "problem": None if has_succeeded else run["end_sentence"],
            }
    return [{"line": line, **results[run["id"]]} for line, run in started if run["id"] in results]


@options.with_options("filters", options.FILTERS)
def export_runs(
    context: typer.Context,
    *,
    format: Annotated[
        Literal["jsonl", "csv"] | None,
        typer.Option("--format", help="By the ending of the file’s name if left out, else jsonl."),
    ] = None,
    attempts: Annotated[
        bool, typer.Option("--attempts", help="With all steps, outputs, issues and usage; jsonl only.")
    ] = False,
    output: OUTPUT = None,
    filters: dict[str, Any],
) -> None:
    """Write all runs that match into a file, which is there once it is complete.

    The newest come first, each a line of JSON or a row of CSV.
    """
    path = None if output == Path("-") else output
    kind = format or ("csv" if path and path.suffix.lower() == ".csv" else "jsonl")
    server = options.connect(context)
    query = {**options.apply_view(server, filters), "format": kind, "attempts": "all" if attempts else None}
    count = 0
    with (
        _open_output(path) as put,
        server.download("runs/export", accept=MEDIA_TYPES[kind], **query) as lines,
        terminal.show_progress() as show,
    ):
        for count, line in enumerate(lines, start=1):
            put(line.decode())
            # Between lines on a terminal a bar would be in the way.
            if path is not None:
                show(terminal.format_count(count, "line"), count, None)
    terminal.print_line(terminal.format_count(count, "line"), f" in {path}" if path else "", is_error=True)


@contextmanager
def _open_output(path: Path | None) -> Iterator[Callable[[str], object]]:
    """Give what writes text into a file, or to standard output without what a terminal would obey.

    A file gets its name once it is complete. Raises ``ClientError`` if it can't be written.
    """
    if path is None:
        yield lambda text: sys.stdout.write(terminal.clean(text) if sys.stdout.isatty() else text)
        return
    part = path.with_name(f"{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("w", encoding="utf-8", newline="") as file:
            yield file.write
        part.replace(path)
    except OSError as error:
        raise ClientError(f"{path} can’t be written: {error.strerror}.") from None
    finally:
        part.unlink(missing_ok=True)
