"""The command that runs a flow on every line of a file, and gives what came of each."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any
from uuid import uuid4

import typer

from runs.client.errors import SUCCEEDED, ClientError, UnreachableError
from runs.client.inputs import dump_json, read_lines
from runs.client.many_runs import naming_export, tell_outcomes, wait_for_label
from runs.client.options import AS_JSON, find_server
from runs.client.printing import format_plural, paint, print_json, print_line, write_text
from runs.client.progress import RARELY, Progress
from runs.client.server import Server

MOST_RUNS = 1_000
"""Runs that one request starts, all or none."""
MOST_BYTES = 5_000_000
"""Bytes of JSON that the inputs of one request may have together; servers take 10 MB unless they are told otherwise."""

Line = tuple[int, dict[str, Any]]
"""The number of a line and the input in it."""


def run_batch(
    context: typer.Context,
    flow: Annotated[str, typer.Argument(metavar="FLOW", help="The name of the flow, as in its address.")],
    file: Annotated[str, typer.Argument(metavar="FILE", help="An input in each line, as JSON; - for standard input.")],
    version: Annotated[int | None, typer.Option(min=1, help="A version’s number; the live one if left out.")] = None,
    label: Annotated[list[str] | None, typer.Option(metavar="TEXT", help="A label of all; may be repeated.")] = None,
    priority: Annotated[str | None, typer.Option(help="high, normal or low.")] = None,
    token_budget: Annotated[int | None, typer.Option(help="Tokens that each run may use.")] = None,
    cost_budget: Annotated[str | None, typer.Option(metavar="USD", help="What each run may cost.")] = None,
    time_limit: Annotated[int | None, typer.Option(metavar="SECONDS", help="How long each run may take.")] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Under one key the runs are started once, within 24 hours.")
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", "-w", help="Wait for the end of all, and give their outputs.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="With --wait: where outputs go, as JSON Lines."),
    ] = None,
    as_json: AS_JSON = False,
) -> int:
    """Run a flow on every line of a file in JSON Lines.

    With --wait there is a line of JSON for each line of the file, in its order, with the run and its last output; the
    exit status is the gravest: 0 all succeeded, 1 some failed, 2 some errored or were cancelled.
    """
    if output is not None and not wait:
        raise ClientError("--output is for what comes of the runs; it takes --wait.")
    lines = list(read_lines(file))
    if not lines:
        raise ClientError("There is no input in the file: it should have a JSON object in each line.")
    server = find_server(context)
    key = idempotency_key or str(uuid4())
    # All of them are found by it, also by whoever stops waiting. Under the same key it is the same.
    mark = f"batch-{hashlib.sha256(key.encode()).hexdigest()[:10]}"
    terms: dict[str, Any] = {
        "version": version,
        "labels": [*(label or ()), mark],
        "priority": priority,
        "token_budget": token_budget,
        "cost_budget": cost_budget,
        "time_limit": time_limit,
    }
    body = {"flow": flow} | {name: value for name, value in terms.items() if value is not None}
    if output is not None:
        # First: runs whose results can't be kept need not be paid for.
        _require_writable(output)
    started = _start(server, body, lines, key, mark)
    if as_json and not wait:
        runs = [{"line": line, "run": run["id"], "url": run["url"]} for line, run in started]
        print_json({"label": mark, "runs": runs})
    else:
        said = f"{format_plural(len(started), 'run')} of “{flow}”: "
        print_line(said, paint("queued"), f", with the label {mark}", is_error=wait)
    if not wait:
        return SUCCEEDED
    wait_for_label(server, mark, len(started))
    with naming_export(mark, "The runs have ended"):
        results = _read_results(server, mark, started)
        _write(results, output, as_json=as_json)
    return tell_outcomes(result["status"] for result in results)


def _start(server: Server, body: dict[str, Any], lines: list[Line], key: str, mark: str) -> list[tuple[int, Any]]:
    """Start a run for each line. Gives each line's number with the run, in their order. Raises ``ClientError``."""
    started: list[tuple[int, Any]] = []
    with Progress(pause=RARELY) as progress:
        for number, part in enumerate(_split(lines), start=1):
            order = {**body, "runs": [{"input": input} for _, input in part]}
            try:
                answer = server.send("POST", "runs/bulk", json=order, headers={"Idempotency-Key": f"{key}-{number}"})
            except ClientError as error:
                raise _blame_lines(error, part, len(started), mark) from None
            runs = server.read(answer.content)["runs"]
            if len(runs) != len(part):
                raise ClientError(f"The server named {format_plural(len(runs), 'run')} for {len(part):,} inputs.")
            started += [(line, run) for (line, _), run in zip(part, runs, strict=True)]
            progress.tell(f"{len(started):,} of {format_plural(len(lines), 'run')} are queued")
    return started


def _split(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """The lines in parts that one request may hold."""
    part: list[Line] = []
    size = 0
    for number, input in lines:
        length = len(dump_json(input).encode())
        if part and (len(part) == MOST_RUNS or size + length > MOST_BYTES):
            yield part
            part, size = [], 0
        part.append((number, input))
        size += length
    if part:
        yield part


def _blame_lines(error: ClientError, part: list[Line], queued: int, mark: str) -> ClientError:
    """The error, with the lines of the file in place of the places in the request."""

    def name(found: re.Match[str]) -> str:
        place = found[2] if found[2].startswith(":") else f", {found[2]}"
        return f"line {part[int(found[1])][0]}{place}"

    details = [re.sub(r"^/runs/([0-9]+)(?:/input)?(.*)", name, line, count=1) for line in error.details]
    before = (
        f" {format_plural(queued, 'run')} of the lines before are queued, with the label “{mark}”."
        if queued
        else " Nothing is started."
    )
    if isinstance(error, UnreachableError):
        # Its answer may have got lost.
        before = f" Runs that are queued all the same have the label “{mark}”."
    return ClientError(error.sentence + before, details)


def _read_results(server: Server, mark: str, started: list[tuple[int, Any]]) -> list[dict[str, Any]]:
    """What came of each line, in their order. Raises ``ClientError``.

    The outputs of all runs are taken out at once: an export, which the audit trail tells of like any other. Lists have
    no outputs, and to read a thousand runs one by one would be the same export, of which nobody is told.
    """
    ended: dict[int, dict[str, Any]] = {}
    query = {"label": mark, "format": "jsonl", "attempts": "all"}
    with server.download("runs/export", kind="application/x-ndjson", query=query) as parts:
        for text in _join_lines(parts):
            run = server.read(text)
            ended[run["id"]] = run_result(run)
    return [{"line": line, **ended[run["id"]]} for line, run in started if run["id"] in ended]


def run_result(run: dict[str, Any]) -> dict[str, Any]:
    """What is told of a run that has ended."""
    has_ended_well = run["status"] == "succeeded"
    return {
        "run": run["id"],
        "status": run["status"],
        "output": run["steps"][-1]["attempts"][-1]["output"] if has_ended_well else None,
        "problem": None if has_ended_well else run["end_sentence"],
    }


def _join_lines(parts: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for part in parts:
        *whole, rest = (rest + part).split(b"\n")
        yield from whole
    if rest:
        yield rest


def _require_writable(output: Path) -> None:
    """Raises ``ClientError`` if nothing can be written there. What is there stays."""
    if output.is_fifo():
        # Its reader would take the end of the attempt for the end of the results.
        return
    is_new = not (output.exists() or output.is_symlink())
    try:
        output.open("ab").close()
        if is_new:
            output.unlink()
    except OSError as error:
        raise _explain_unwritable(output, error) from None


def _explain_unwritable(output: Path, error: OSError) -> ClientError:
    return ClientError(f"{output} can’t be written: {error.strerror}.")


def _write(results: list[dict[str, Any]], output: Path | None, *, as_json: bool) -> None:
    if output is not None:
        try:
            output.write_text("".join(f"{dump_json(result)}\n" for result in results), encoding="utf-8")
        except OSError as error:
            raise _explain_unwritable(output, error) from None
        print_line(f"{format_plural(len(results), 'line')} in {output}", is_error=True)
    elif as_json:
        print_json(results)
    else:
        for result in results:
            write_text(json.dumps(result) + "\n")
