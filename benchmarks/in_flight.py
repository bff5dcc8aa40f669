"""Hundreds of runs at once: how close to the ideal, in which memory, beside bare calls.

All runs begin together. Ideal is what the four calls of one run take if nothing but the model takes time.
"""

from __future__ import annotations

from contextlib import ExitStack
from statistics import median
from typing import Any

from benchmarks.contender import start_bare
from benchmarks.figures import Figure, Setting, print_table
from benchmarks.installation import start_installation
from benchmarks.model_server import serving_model
from benchmarks.work import CALLS

MIB = 1024 * 1024
CASES = ((200, 0.5, 3), (1_000, 0.5, 1))
"""Runs at once, seconds that a call takes, rounds."""
LONG_CASE = (1_000, 10.0, 1)
"""Calls as long as those of models that reason: with shorter ones one processor is the bound, for bare calls too."""


def measure(setting: Setting) -> list[Figure]:
    """Measure, print a table, and give the figures that have targets."""
    rows, figures = [], []
    for count, latency, rounds in (*CASES, LONG_CASE) if setting.is_long else CASES:
        ideal = CALLS * latency
        bare, mine = _run_rounds(setting, count, latency, rounds)
        for name, answers in (("bare", bare), ("ToolFlow", mine)):
            wall = median(answer["wall"] for answer in answers)
            memory = max(answer["memory"] for answer in answers) / MIB
            failed = sum(answer["failed"] for answer in answers)
            rows.append(
                (
                    f"{count:,}",
                    f"{latency:g} s",
                    name,
                    f"{wall:.2f} s",
                    f"{wall / ideal:.2f}",
                    f"{memory:.0f}",
                    str(failed),
                )
            )
        figures += _judge(count, latency, bare, mine)
    header = ("runs at once", "a call", "contender", "all ended after", "× ideal", "peak MiB", "failed")
    print_table("Runs at once, embedded database, one worker process", header, rows)
    return figures


def _run_rounds(
    setting: Setting, count: int, latency: float, rounds: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    with ExitStack() as stack:
        base_url = stack.enter_context(serving_model(latency))
        name = f"{count} runs of {latency:g} s"
        folder = setting.folder / name.replace(" ", "-")
        folder.mkdir()
        bare = stack.enter_context(start_bare(base_url=base_url, work=setting.work, folder=folder))
        mine = stack.enter_context(start_installation(name, base_url=base_url, folder=folder, in_flight=count))
        for one in (bare, mine):
            one.ask(runs=5, in_flight=count)
        return (
            [bare.ask(runs=count, in_flight=count) for _ in range(rounds)],
            [mine.ask(runs=count, in_flight=count) for _ in range(rounds)],
        )


def _judge(count: int, latency: float, bare: list[dict[str, Any]], mine: list[dict[str, Any]]) -> list[Figure]:
    wall = median(answer["wall"] for answer in mine)
    name = f"{count:,} runs at once, calls of {latency:g} s"
    memory = max(answer["memory"] for answer in mine) / MIB
    figures = [
        Figure(f"{name}: runs failed", sum(answer["failed"] for answer in mine), "", at_most=0),
        Figure(f"{name}: peak memory", memory, "MiB", at_most=160 if count <= 200 else 400),
    ]
    if latency < 1:
        slower = wall / median(answer["wall"] for answer in bare)
        figures.append(Figure(f"{name}: time", slower, "× bare", at_most=1))
    else:
        figures.append(Figure(f"{name}: time", wall / (CALLS * latency), "× ideal", at_most=1.3))
    return figures
