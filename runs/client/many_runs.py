"""Commands about many runs: start a file of them, cancel them, run them again and export them."""

from __future__ import annotations

import hashlib
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import uuid4

import typer

from runs.client.options import (
    ALL,
    AS_JSON,
    FILTERS,
    FLOW,
    RUN_IDS,
    RUN_OPTIONS,
    WAIT,
    YES,
    connect,
    parse_object,
    read_object,
    read_text,
    with_options,
)
from runs.client.runs import finish_run, print_started, wait_for_run
from runs.client.server import ERRORED, FAILED, REFUSED, RUN_EXITS, SUCCEEDED, ClientError, Server, UnavailableError
from runs.client.terminal import (
    clean,
    dump_json,
    format_cost,
    format_count,
    print_error,
    print_json,
    print_line,
    print_on_interrupt,
    show_progress,
    write,
)

MAX_BATCH_RUNS = 1_000
"""Runs that one request starts, all or none."""
MAX_BATCH_BYTES = 5_000_000
"""Bytes of inputs in one request; the server takes 10 MB unless it is set otherwise."""
MAX_COUNTED = 1_000
"""Runs that are counted for a question and for progress."""
POLL_INTERVAL = 1.0
"""Seconds between two looks at many runs."""
CANCEL, RERUN = "cancel", "run_again"
"""Kinds of bulk actions."""
UNFINISHED = ("waiting", "working")
"""Statuses of a bulk action that has not ended."""
MEDIA_TYPES = {"jsonl": "application/x-ndjson", "csv": "text/csv"}

OUTPUT = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where results go; standard output if left out.")
]
Lines = list[tuple[int, dict[str, Any]]]
"""Numbers of lines, each with its input or its run."""


@with_options("options", RUN_OPTIONS)
def run_batch(
    context: typer.Context,
    flow: FLOW,
    file: Annotated[str, typer.Argument(metavar="FILE", help="An input in each line, as JSON; - for standard input.")],
    *,
    wait: WAIT = False,
    output: OUTPUT = None,
    as_json: AS_JSON = False,
    options: dict[str, Any],
) -> int:
    """Run a flow on every line of a file in JSON Lines.

    With --wait there is a line of JSON for each line of the file, in its order, with the run and its last output; the
    exit status is 0 if all succeeded, 1 if some failed, 2 if some errored or were cancelled.
    """
    if output is not None and not wait:
        raise ClientError("--output is for the outputs of the runs; add --wait.")
    inputs = _read_inputs(file)
    server = connect(context)
    key = options.pop("idempotency_key", None) or str(uuid4())
    # All runs are found by it. The same key gives the same.
    label = f"batch-{hashlib.sha256(key.encode()).hexdigest()[:10]}"
    options["labels"] = [*options.get("labels", ()), label]
    # The output is opened first: runs whose results can't be kept need not be paid for.
    with _open_output(output) as put:
        started = _start_batch(server, {"flow": flow, **options}, inputs, key)
        if as_json and not wait:
            runs = [{"line": line, "run": run["id"], "url": run["url"]} for line, run in started]
            print_json({"label": label, "runs": runs})
        else:
            count = format_count(len(started), "run")
            print_line(f"{count} of “{flow}”: queued, with the label {label}", is_error=wait)
        if not wait:
            return SUCCEEDED
        print_line(f"“toolflow export --label {label} --attempts” gets what came of them later.", is_error=True)
        _wait_for_label(server, label, len(started))
        results = _fetch_results(server, label, started)
        if as_json and output is None:
            print_json(results)
        else:
            for result in results:
                # A pipe that is closed must not hide how the runs ended.
                (write if output is None else put)(dump_json(result))
    return _report_outcomes(result["status"] for result in results)


def _read_inputs(file: str) -> Lines:
    text, name = read_text(file.removeprefix("@"))
    lines = enumerate(text.split("\n"), start=1)
    inputs = [(number, parse_object(line, f"{name}, line {number}")) for number, line in lines if line.strip()]
    if not inputs:
        raise ClientError("There is no input in the file: it should have a JSON object in each line.")
    return inputs


def _start_batch(server: Server, body: dict[str, Any], inputs: Lines, key: str) -> Lines:
    """Start a run for each line. Gives the runs with the numbers of their lines. Raises ``ClientError``."""
    started: Lines = []
    with show_progress() as show:
        for number, part in enumerate(split_inputs(inputs), start=1):
            runs = [{"input": input} for _, input in part]
            try:
                answer = server.post("runs/bulk", key=f"{key}-{number}", **body, runs=runs)
            except ClientError as error:
                # If the answer got lost, the runs of this part may have been started.
                is_none = not (started or isinstance(error, UnavailableError))
                label = f"Runs that were started have the label “{body['labels'][-1]}”."
                message = f"{error.message} {'Nothing is started.' if is_none else label}"
                raise ClientError(message, _name_lines(error.details, part)) from None
            started += [(line, run) for (line, _), run in zip(part, answer["runs"], strict=True)]
            show(f"{len(started):,} of {format_count(len(inputs), 'run')} are queued", len(started), len(inputs))
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


def _name_lines(details: Iterable[str], part: Lines) -> list[str]:
    """Details with the lines of the file in place of pointers into the request."""

    def name(found: re.Match[str]) -> str:
        return f"line {part[int(found[1])][0]}{', ' if found[2] else ''}{found[2]}:"

    return [re.sub(r"^/runs/([0-9]+)(?:/input)?([^:]*):", name, detail) for detail in details]


def _wait_for_label(server: Server, label: str, count: int) -> None:
    """Wait until none of the ``count`` runs with this label is queued or running."""
    query = {"label": label, "status": "queued,running"}
    remark = f"The runs go on; “toolflow cancel --label {label}” would end them."
    with print_on_interrupt(remark), show_progress() as show:
        while left := sum(1 for _ in server.iterate("runs", MAX_COUNTED, is_waiting=True, **query)):
            fewer = " or fewer" if left == MAX_COUNTED else ""
            show(f"{count - left:,}{fewer} of {format_count(count, 'run')} have ended", count - left, count)
            time.sleep(POLL_INTERVAL)


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
                "output": run["steps"][-1]["attempts"][-1]["output"] if has_succeeded else None,
                "problem": None if has_succeeded else run["end_sentence"],
            }
    return [{"line": line, **results[run["id"]]} for line, run in started if run["id"] in results]


def _report_outcomes(statuses: Iterable[str]) -> int:
    """Print beside the results how many runs ended how. Gives the highest of their exit statuses."""
    counts = Counter(statuses)
    for status in RUN_EXITS:
        if counts[status]:
            print_line(format_count(counts[status], "run"), " ", status, is_error=True)
    return max((RUN_EXITS[status] for status in counts), default=SUCCEEDED)


@with_options("filters", FILTERS)
def cancel_runs(
    context: typer.Context,
    run_ids: RUN_IDS = None,
    *,
    every: ALL = False,
    yes: YES = False,
    wait: WAIT = False,
    as_json: AS_JSON = False,
    filters: dict[str, Any],
) -> int:
    """Cancel runs.

    Those of these numbers, or, after a question, all queued and running ones that match filters.
    """
    _validate_choice(run_ids, filters, every)
    server = connect(context)
    if not run_ids:
        action = _request_action(server, CANCEL, filters, is_sure=yes, as_json=as_json)
        return _report_action(server, action, wait=wait, as_json=as_json) if action else SUCCEEDED

    def cancel(run_id: int) -> Any:
        run = server.post(f"runs/{run_id}/cancel", name=f"run {run_id}")
        state = "cancelled" if run["status"] == "cancelled" else "about to be cancelled"
        print_line(f"Run {run_id} is {state}.", is_error=as_json)
        return run

    runs, status = _do_each(run_ids, cancel)
    if as_json:
        print_json(runs)
    return status


@with_options("filters", FILTERS)
def rerun_runs(
    context: typer.Context,
    run_ids: RUN_IDS = None,
    *,
    live: Annotated[bool, typer.Option("--live", help="On the live version, not on the one that each had.")] = False,
    input: Annotated[str | None, typer.Option("--input", "-i", metavar="@FILE", help="Another, for one run.")] = None,
    most: Annotated[int | None, typer.Option("--most", min=1, help="With filters: how many, newest first.")] = None,
    every: ALL = False,
    yes: YES = False,
    wait: WAIT = False,
    as_json: AS_JSON = False,
    filters: dict[str, Any],
) -> int:
    """Run ended runs again.

    Those of these numbers, or, after a question, all that match filters.
    With --wait the exit status is the highest of the new runs: 0 succeeded, 1 failed, 2 errored or cancelled.
    """
    _validate_choice(run_ids, filters, every)
    if input is not None and len(run_ids or ()) != 1:
        raise ClientError("--input is for a single run: name its number.")
    if run_ids and most is not None:
        raise ClientError("--most is for filters; with numbers, exactly those runs are run again.")
    server = connect(context)
    terms: dict[str, Any] = {"version": "live" if live else "same"}
    if run_ids:
        if input is not None:
            terms["input"] = read_object(input, "The input")
        return _rerun_each(server, run_ids, terms, wait=wait, as_json=as_json)
    if most is not None:
        terms["most"] = most
    action = _request_action(server, RERUN, filters, is_sure=yes, as_json=as_json, **terms)
    if action is None:
        return SUCCEEDED
    status = _report_action(server, action, wait=wait, as_json=as_json)
    if not wait:
        return status
    _wait_for_label(server, action["label"], action["done"])
    return max(status, _report_outcomes(run["status"] for run in server.iterate("runs", label=action["label"])))


def _validate_choice(run_ids: list[int] | None, filters: dict[str, Any], every: bool) -> None:
    if (bool(run_ids), bool(filters), every).count(True) != 1:
        raise ClientError("Name runs by their numbers, choose them by filters such as --flow, or say --all.")


def _do_each(run_ids: Sequence[int], do: Callable[[int], Any]) -> tuple[list[Any], int]:
    """Do something to each run; a refusal is printed and keeps it from no other.

    Gives the answers and the exit status. Raises ``ClientError`` if the only run is refused.
    """
    answers: list[Any] = []
    for place, run_id in enumerate(run_ids, start=1):
        try:
            answers.append(do(run_id))
        except ClientError as error:
            if len(run_ids) == 1:
                raise
            print_error(error, f"run {run_id}: ")
            if isinstance(error, UnavailableError):
                print_line(f"Not tried: {len(run_ids) - place:,} more.", is_error=True)
                break
    if len(answers) == len(run_ids):
        return answers, SUCCEEDED
    return answers, FAILED if answers else REFUSED


def _rerun_each(server: Server, run_ids: list[int], terms: dict[str, Any], *, wait: bool, as_json: bool) -> int:
    def rerun(run_id: int) -> Any:
        run = server.post(f"runs/{run_id}/run-again", name=f"run {run_id}", **terms)
        if len(run_ids) > 1:
            # It is known even if the command does not get to its results.
            print_line(f"Run {run_id} is run again as run {run['id']}.", is_error=True)
        return run

    runs, status = _do_each(run_ids, rerun)
    if wait and len(run_ids) == 1:
        return finish_run(server, runs[0], as_json=as_json)
    if wait:
        numbers = " ".join(str(run["id"]) for run in runs)
        with print_on_interrupt(f"The runs go on; “toolflow cancel {numbers}” would end them."):
            runs = [wait_for_run(server, run) for run in runs]
    if as_json:
        print_json(runs if len(run_ids) > 1 else runs[0])
    for run in () if as_json else runs:
        print_started(run)
    return max(status, _report_outcomes(run["status"] for run in runs)) if wait else status


def _request_action(
    server: Server, kind: str, filters: Mapping[str, Any], *, is_sure: bool, as_json: bool, **terms: Any
) -> Any:
    """Request a bulk action on all runs that match, after a question unless ``is_sure``.

    None if there are none. Raises ``ClientError`` if the answer is no, or no terminal is there to ask.
    """
    fitting = list(RUN_EXITS) if kind == RERUN else ["queued", "running"]
    statuses = filters.get("status", ",".join(fitting)).split(",")
    query = {**filters, "status": ",".join([status for status in statuses if status in fitting] or statuses)}
    limit = 1 if is_sure else min(terms.get("most", MAX_COUNTED), MAX_COUNTED)
    runs = [run for run in server.iterate("runs", limit, **query) if run["status"] in fitting]
    if not runs:
        print_line("There are no such runs.", is_error=True)
        if as_json:
            print_json({"kind": kind, "count": 0, "done": 0})
        return None
    if not is_sure:
        _confirm(kind, runs)
        # Runs that began since the question are not meant.
        terms["newest"] = max(run["id"] for run in runs)
    chosen = {**filters, "status": statuses} if "status" in filters else filters
    return server.post("bulk-actions", kind=kind, filters=chosen, **terms)


def _confirm(kind: str, runs: Sequence[dict[str, Any]]) -> None:
    cost = sum(Decimal(run["usage"]["cost"] or 0) for run in runs)
    price = f", which cost {format_cost(cost)} so far" if kind == RERUN and cost else ""
    more = " or more" if len(runs) == MAX_COUNTED else ""
    newest = ", ".join(str(run["id"]) for run in runs[:5])
    verb = "Cancel" if kind == CANCEL else "Run again"
    question = f"{verb} {format_count(len(runs), 'run')}{more}{price} (the newest: {newest})?"
    if not sys.stdin.isatty():
        raise ClientError(f"{question} There is no terminal to ask; --yes does it without a question.")
    write(f"{question} [y/N] ", is_error=True)
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise ClientError("Nothing is done.")


def _report_action(server: Server, action: dict[str, Any], *, wait: bool, as_json: bool) -> int:
    """Print how far a bulk action is, with ``wait`` once it has ended. Gives the exit status."""
    verb, title = "cancelled" if action["kind"] == CANCEL else "started again", f"Bulk action {action['id']}"
    if wait:
        remark = f"{title} goes on; it can be stopped at {action['page_url']}"
        with print_on_interrupt(remark), show_progress() as show:
            while action["status"] in UNFINISHED:
                show(f"{title}: {action['done']:,} {verb}", action["percent"], 100)
                time.sleep(POLL_INTERVAL)
                action.update(server.get(f"bulk-actions/{action['id']}", is_waiting=True))
    if as_json:
        print_json(action)
    else:
        others = [f", {action[name]:,} {name}" for name in ("skipped", "failed") if action[name]]
        print_line(f"{title}: ", action["status"], f", {format_count(action['done'], 'run')} {verb}", *others)
        notes = [f"Run {note['run']}: {note['sentence']}" for note in action["notes"]]
        if action["label"] and action["done"]:
            notes.append(f"Label of the new runs: {action['label']}")
        if action["status"] in UNFINISHED:
            notes.append(f"A worker goes on with it. Its progress: {action['page_url']}")
        for note in filter(None, [action["problem"], *notes]):
            print_line(note, is_error=True)
    if action["status"] in {"failed", "stopped"}:
        return ERRORED
    return FAILED if action["failed"] else SUCCEEDED


@with_options("filters", FILTERS)
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
) -> int:
    """Write all runs that match into a file.

    The newest come first, each a line of JSON or a row of CSV. The file’s name ends with “.part” until it is complete.
    """
    path = None if output == Path("-") else output
    kind = format or ("csv" if path and path.suffix.lower() == ".csv" else "jsonl")
    query = {**filters, "format": kind, "attempts": "all" if attempts else None}
    count = 0
    with (
        _open_output(path) as put,
        connect(context).download("runs/export", accept=MEDIA_TYPES[kind], **query) as lines,
        show_progress(is_quiet=path is None and sys.stdout.isatty()) as show,
    ):
        for line in lines:
            put(line.decode())
            count += 1
            if not count % 100:
                show(format_count(count, "line"), count, None)
    print_line(format_count(count, "line"), f" in {path}" if path else "", is_error=True)
    return SUCCEEDED


@contextmanager
def _open_output(path: Path | None) -> Iterator[Callable[[str], object]]:
    """Give what writes text into a file, or to standard output without what a terminal would obey.

    A file gets its name once it is complete. Raises ``ClientError`` if it can't be written.
    """
    if path is None:
        yield lambda text: sys.stdout.write(clean(text) if sys.stdout.isatty() else text)
        return
    # A pipe or a device has no other name.
    part = path if path.exists() and not path.is_file() else path.with_name(f"{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("w", encoding="utf-8", newline="") as file:
            yield file.write
        if part != path:
            part.replace(path)
    except OSError as error:
        raise ClientError(f"{path} can’t be written: {error.strerror}.") from None
    finally:
        if part.is_file() and not part.stat().st_size:
            part.unlink()
