"""What all peers share: the work, the loop that takes commands, and the measuring of the own process."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

Answer = dict[str, Any]
RunOnce = Callable[[str], Awaitable[bool]]
"""Does one run, known by an id of its own; gives whether all steps passed."""

HEX = re.compile(r"#[0-9A-F]{6}")
TRIES = 4


class Work:
    """Three steps. Each has the requests of its tries, as ToolFlow sends them, and one audit."""

    def __init__(self, path: str) -> None:
        self.steps: list[list[Answer]] = json.loads(Path(path).read_text())

    def find_request(self, step: int, attempt: int) -> Answer:
        """The request of a try, both counted from 0; the last one repeats."""
        requests = self.steps[step]
        return requests[min(attempt, len(requests) - 1)]


def find_issues(output: Any) -> list[str]:
    """The audit of every step: whatever begins with “#” is a colour of six digits."""
    if isinstance(output, dict):
        return [issue for value in output.values() for issue in find_issues(value)]
    if isinstance(output, list):
        return [issue for value in output for issue in find_issues(value)]
    if isinstance(output, str) and output.startswith("#") and not HEX.fullmatch(output):
        return [f"“{output}” is no colour such as #1A2B3C."]
    return []


def read_output(response: Any) -> Any:
    """The arguments of the tool call in a response of the ``openai`` client."""
    return json.loads(response.choices[0].message.tool_calls[0].function.arguments)


def serve(run_once: RunOnce, runner: asyncio.Runner, **about: Any) -> None:
    """Take commands until there are no more: ``{"runs": 100, "in_flight": 32}``."""
    sys.stdout.write(json.dumps(about) + "\n")
    sys.stdout.flush()
    number = 0
    for line in sys.stdin:
        command = json.loads(line)
        _forget_peak_memory()
        cpu, wall = time.process_time(), time.perf_counter()
        passed = runner.run(_run_many(run_once, number, command["runs"], command["in_flight"]))
        number += command["runs"]
        answer = {
            "cpu": time.process_time() - cpu,
            "wall": time.perf_counter() - wall,
            "failed": command["runs"] - passed,
            "memory": _read_peak_memory(),
        }
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


async def _run_many(run_once: RunOnce, first: int, runs: int, in_flight: int) -> int:
    numbers = iter(range(first, first + runs))
    passed = 0

    async def work_on() -> None:
        nonlocal passed
        for number in numbers:
            try:
                if await run_once(f"run-{number}"):
                    passed += 1
            except Exception:  # noqa: BLE001  # whatever it is, the run failed and the log says why
                traceback.print_exc()

    await asyncio.gather(*(work_on() for _ in range(min(in_flight, runs))))
    return passed


def _forget_peak_memory() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _read_peak_memory() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
