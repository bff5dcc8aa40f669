#!/usr/bin/env python3
"""Measures the code by area, and fails where it is larger than it has been: ``scripts/size_limits.yaml`` is a ratchet.

Start it as ``make size``. ``--areas`` prints every area rather than the sums; ``--lower`` writes today’s numbers into
the limits where they are smaller.

Tokens are those of ``tokenize`` without comments, line breaks, indentation and docstrings. Files are small below 50 and
below 100 lines, and large above 500; empty ones only count as files.
"""

from __future__ import annotations

import argparse
import io
import sys
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
LIMITS = Path(__file__).with_name("size_limits.yaml")
PACKAGES = ("flows/", "runs/", "toolflow_site/")
FOLDERS = (*PACKAGES, "tests", "templates", "static", "benchmarks", "docs")

_EXECUTION_MODULES = (
    "attempt_rules", "claiming", "facets", "group_commit", "limits", "ownership",
    "prepared_sql", "queue", "queue_processes", "recorder", "rollup", "run_options",
    "spending", "stored_history", "submission", "sweep", "try_out", "worker",
    "management/commands/run_worker",
    "models/facet", "models/history", "models/limit", "models/original_input", "models/run", "models/spending",
    "models/worker",
)  # fmt: skip
"""The side of ``runs`` that executes: modules and packages."""
_CORE_TESTS = (
    "tests/engine/*", "tests/faults/*", "tests/flows/flow_file/*", "tests/runs/limits/*",
    "tests/flows/test_[c-eilps]*", "tests/flows/test_models.py", "tests/flows/versioned.py",
    *(f"tests/runs/{name}.py" for name in (
        "executing", "gateway", "test_claiming", "test_providers", "test_queue_processes", "test_received_replies",
        "test_recording", "test_redaction", "test_rollup", "test_run_states", "test_run_work", "test_submission",
        "test_try_out", "test_worker",
    )),
)  # fmt: skip
"""Tests of the engine, of flows without their editor, of the execution side, and those that kill processes."""

_EXECUTION = tuple(f"runs/{name}{end}" for name in _EXECUTION_MODULES for end in (".py", "/*.py"))
_NO_CODE = ("*/migrations/*", "*.json", "*.yaml")


@dataclass(frozen=True)
class Area:
    """The files whose paths match one of ``among`` and none of ``without``; ``*`` stands for any text."""

    name: str
    among: tuple[str, ...]
    without: tuple[str, ...] = ()

    def choose(self, paths: Iterable[str]) -> list[str]:
        """Those of ``paths`` that belong to it."""
        return [path for path in paths if _matches(path, self.among) and not _matches(path, self.without)]


SUMS = (
    Area("flows/engine", ("flows/engine/*.py",)),
    Area("flows beside engine and admin", ("flows/*.py",), ("flows/engine/*", "flows/admin/*", *_NO_CODE)),
    Area("flows/admin", ("flows/admin/*.py",)),
    Area("runs, execution side", _EXECUTION),
    Area("runs, history side", ("runs/*.py",), (*_EXECUTION, *_NO_CODE)),
    Area("toolflow_site", ("toolflow_site/*.py",)),
    Area("migrations", ("*/migrations/*.py",)),
    Area("all code without migrations", tuple(f"{name}*.py" for name in PACKAGES), _NO_CODE),
    Area("history side and site without pages", ("runs/*.py", "toolflow_site/*.py"),
         ("runs/pages/*", "runs/templatetags/*", *_EXECUTION, *_NO_CODE)),
    Area("runs/api", ("runs/api/*.py",)),
    Area("runs/client", ("runs/client/*.py",)),
    Area("tests", ("tests/*.py",), ("tests/contract/*",)),
    Area("tests of engine, flows and execution", _CORE_TESTS, ("*.json", "*.yaml")),
    Area("data of tests (YAML, JSON)", ("tests/*.yaml", "tests/*.json"), ("tests/contract/*",)),
    Area("templates", ("templates/*.html", *(f"{name}*.html" for name in PACKAGES))),
    Area("CSS", ("static/*.css",)),
    Area("JavaScript", ("static/*.js",), ("*/vendor/*", "*.min.js")),
    Area("benchmarks", ("benchmarks/*.py",)),
    Area("docs", ("docs/*.md",)),
)  # fmt: skip
"""What has limits, if ``size_limits.yaml`` names it."""


@dataclass(frozen=True)
class Size:
    """The figures of an area."""

    files: int = 0
    lines: int = 0
    tokens: int = 0
    below_50: int = 0
    below_100: int = 0
    above_500: int = 0


LIMITED = ("files", "lines", "tokens")


def measure(paths: Iterable[str]) -> Size:
    """The size of these files together; only Python has tokens."""
    files = [_measure_file(path) for path in paths]
    return Size(*(sum(getattr(file, field.name) for file in files) for field in fields(Size)))


@cache
def _measure_file(path: str) -> Size:
    text = (ROOT / path).read_text(encoding="utf-8")
    lines = text.count("\n")
    tokens = count_tokens(text) if path.endswith(".py") else 0
    return Size(1, lines, tokens, below_50=0 < lines < 50, below_100=0 < lines < 100, above_500=lines > 500)


_LAYOUT = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING,
    tokenize.ENDMARKER,
}  # fmt: skip


def count_tokens(text: str) -> int:
    """The tokens of a module without comments, layout, and strings that stand alone, as docstrings do."""
    tokens = [
        token for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in {tokenize.COMMENT, tokenize.NL}
    ]  # fmt: skip
    alone = sum(
        token.type == tokenize.STRING and (not at or tokens[at - 1].type in _LAYOUT) and tokens[at + 1].type in _LAYOUT
        for at, token in enumerate(tokens)
    )
    return sum(token.type not in _LAYOUT for token in tokens) - alone


def list_areas(paths: Iterable[str]) -> Iterator[Area]:
    """Each package of ``flows`` and ``runs``, and each folder of tests with its data."""
    folders = sorted({"/".join(path.split("/")[:2]) for path in paths if path.count("/") > 1 and path.endswith(".py")})
    for package in (*PACKAGES, "tests/", "benchmarks/"):
        own = tuple(
            path for path in paths if path.startswith(package) and path.count("/") == 1 and path.endswith(".py")
        )
        yield Area(f"{package}*.py", own)
        yield from (Area(name, (f"{name}/*.py",)) for name in folders if name.startswith(package))
    yield from (
        Area(f"{name}, data", (f"{name}/*.yaml", f"{name}/*.json")) for name in folders if name.startswith("tests/")
    )


def _matches(path: str, globs: Iterable[str]) -> bool:
    return any(fnmatchcase(path, glob) for glob in globs)


def list_files() -> list[str]:
    """The files of the repository's folders, without those that were installed or built there."""
    paths = (path.relative_to(ROOT) for folder in FOLDERS for path in (ROOT / folder).rglob("*.*") if path.is_file())
    return sorted(str(path) for path in paths if not {"__pycache__", "node_modules"}.intersection(path.parts))


def print_table(sizes: Mapping[str, Size]) -> None:
    """One line for each area that has files."""
    widest = max(map(len, sizes))
    print(f"{'':{widest}} {'files':>6} {'lines':>8} {'tokens':>9} {'< 50':>5} {'< 100':>6} {'> 500':>6}")
    for name, size in sizes.items():
        if size.files:
            numbers = (getattr(size, field.name) for field in fields(size))
            columns = zip(numbers, (6, 8, 9, 5, 6, 6), strict=True)
            print(f"{name:{widest}}", *(f"{number:>{width},}" for number, width in columns))


def find_excesses(today: Mapping[str, Mapping[str, int]], limits: Mapping[str, Mapping[str, int]]) -> list[str]:
    """A line for each number above its limit, and above what one small change takes: a hundredth of it."""
    return [
        f"{name}: {today[name][what]:,} {what}, and {limit:,} is the limit"
        for name, held in limits.items()
        for what, limit in held.items()
        if today[name][what] > limit + limit // 100
    ]


def main() -> int:
    """Print the table; the status is 1 if something is above its limit."""
    parser = argparse.ArgumentParser(description="Measure the code by area.")
    parser.add_argument("--areas", action="store_true", help="print every package and folder")
    parser.add_argument("--lower", action="store_true", help="lower the limits to today's numbers")
    options = parser.parse_args()
    paths = list_files()
    sizes = {area.name: measure(area.choose(paths)) for area in SUMS}
    shown = {area.name: measure(area.choose(paths)) for area in list_areas(paths)} if options.areas else sizes
    print_table(shown)
    today = {name: {what: getattr(size, what) for what in LIMITED} for name, size in sizes.items()}
    limits = yaml.safe_load(LIMITS.read_text(encoding="utf-8"))
    if options.lower:
        limits = {
            name: {what: min(limit, today[name][what]) for what, limit in held.items()} for name, held in limits.items()
        }
        write_limits(limits)
    excesses = find_excesses(today, limits)
    if excesses:
        print("Larger than it may be (scripts/size_limits.yaml):", *excesses, sep="\n  ", file=sys.stderr)
    return 1 if excesses else 0


def write_limits(limits: Mapping[str, Mapping[str, int]]) -> None:
    """Write the limits, one area a line, below what is above the first of them."""
    head = [line for line in LIMITS.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    body = [
        f"{name}: {{{', '.join(f'{what}: {limit}' for what, limit in held.items())}}}" for name, held in limits.items()
    ]
    LIMITS.write_text("\n".join([*head, *body]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
