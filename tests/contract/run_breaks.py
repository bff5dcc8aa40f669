"""The breaks of ``breaks.yaml``, one at a time: does a test fail?

    python -m tests.contract.run_breaks [--baseline] [NAME…]

Works on a scratch copy of the tree as it is, uncommitted changes included. With ``--baseline`` it first runs all the
tests that the breaks name on the whole copy, where they must pass. Ends with 1 if a break is missed, or can't be made.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
BREAKS = Path(__file__).with_name("breaks.yaml")
TEST_TIMEOUT = 120
"""Seconds. A break that has tests hang is caught too: no suite with it ends."""
CAUGHT, HANGS = "caught", "caught (the tests hang)"

_moments = count(int(time.time()) - 1_000_000)


@dataclass(frozen=True, slots=True)
class Break:
    """One thing that a rewrite could lose."""

    name: str
    behaviour: str
    """What the product does, and what a user would lose."""
    file: str
    replace: str
    """Stands in the file once."""
    by: str
    tests: Sequence[str]
    """What pytest selects; at least one of these fails."""


def load_breaks(path: Path = BREAKS) -> list[Break]:
    """All breaks of a file. Raises ``ValueError`` for repeated names."""
    rows: list[dict[str, Any]] = yaml.safe_load(path.read_text())
    breaks = [Break(**{**row, "tests": row["tests"].split()}) for row in rows]
    if len({one.name for one in breaks}) != len(breaks):
        raise ValueError("Two breaks have the same name.")
    return breaks


@contextmanager
def scratch_copy() -> Iterator[Path]:
    """A copy of what belongs to the repository, with its virtualenv."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split("\0")
    with tempfile.TemporaryDirectory(prefix="breaks-") as place:
        copy = Path(place)
        for name in filter(None, listed):
            if (ROOT / name).is_file() and not name.startswith(".venv"):
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, copy / name)
        (copy / ".venv").symlink_to((ROOT / ".venv").resolve())
        # Some tests ask git for the files of the repository.
        subprocess.run(["git", "init", "-q"], cwd=copy, check=True)
        yield copy


def write_source(path: Path, text: str) -> None:
    """Write a module so that its compiled form is out of date, also within the same second."""
    path.write_text(text)
    moment = next(_moments)
    os.utime(path, (moment, moment))


def run_tests(copy: Path, tests: Sequence[str], *, timeout: float = TEST_TIMEOUT) -> tuple[int | None, str]:
    """The exit status of pytest, None if it did not end in time, and its last lines."""
    command = [".venv/bin/python", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:schemathesis"]
    try:
        done = subprocess.run(
            [*command, "-n", "0", *tests], cwd=copy, capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        return None, ""
    lines = [line for line in done.stdout.splitlines() if re.match(r"FAILED|ERROR|[0-9]+ ", line)]
    return done.returncode, " | ".join(lines[-2:]) or done.stderr[-300:]


def try_break(copy: Path, one: Break) -> tuple[str, str]:
    """What became of a break: ``caught``, or why not; and what pytest said."""
    path = copy / one.file
    source = path.read_text() if path.is_file() else ""
    if source.count(one.replace) != 1:
        return f"its snippet is in {one.file} {source.count(one.replace)} times, not once", ""
    write_source(path, source.replace(one.replace, one.by))
    try:
        status, words = run_tests(copy, one.tests)
    finally:
        write_source(path, source)
    outcomes = {None: HANGS, 0: "MISSED", 1: CAUGHT}
    return outcomes.get(status, f"pytest could not run (status {status})"), words


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--baseline", action="store_true", help="first run all tests that are named, without a break")
    given = parser.parse_args()
    breaks = load_breaks()
    if unknown := set(given.names) - {one.name for one in breaks}:
        parser.error(f"no break is called {', '.join(sorted(unknown))}")
    chosen = [one for one in breaks if not given.names or one.name in given.names]
    missed = 0
    with scratch_copy() as copy:
        if given.baseline:
            tests = list(dict.fromkeys(test for one in chosen for test in one.tests))
            status, words = run_tests(copy, tests, timeout=TEST_TIMEOUT * len(tests))
            missed += status != 0
            sys.stdout.write(f"without a break: {'green' if status == 0 else 'NOT GREEN'}. {words}\n")
        for number, one in enumerate(chosen, start=1):
            began = time.monotonic()
            outcome, words = try_break(copy, one)
            missed += outcome not in (CAUGHT, HANGS)
            seconds = time.monotonic() - began
            sys.stdout.write(f"{number:3}/{len(chosen)} {one.name}: {outcome}, {seconds:.0f} s. {words[:200]}\n")
            sys.stdout.flush()
    sys.stdout.write("Something is missed.\n" if missed else "All breaks are caught.\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
