"""How soon a single run starts on an idle system: from its submission to the start of its first attempt."""

from __future__ import annotations

from contextlib import ExitStack
from statistics import median

from benchmarks.figures import Figure, Setting, print_table
from benchmarks.installation import borrowing_redis_database, start_installation
from benchmarks.model_server import serving_model

STARTS = 15


def measure(setting: Setting) -> list[Figure]:
    """Measure, print a table, and give the figures that have targets."""
    places = [("embedded default", "", 0.15)]
    rows, figures = [], []
    with ExitStack() as stack:
        base_url = stack.enter_context(serving_model(0.0))
        if setting.redis is not None:
            places.append(("with Redis", stack.enter_context(borrowing_redis_database(setting.redis)), 0.02))
        for name, redis_url, most in places:
            with start_installation(
                name, base_url=base_url, folder=setting.folder, redis_url=redis_url
            ) as installation:
                latencies = installation.ask(starts=STARTS)["latencies"]
            middle = median(latencies)
            rows.append(
                (name, f"{middle * 1000:.0f} ms", f"{min(latencies) * 1000:.0f}–{max(latencies) * 1000:.0f} ms")
            )
            figures.append(Figure(f"Start of a run, {name}", middle, "s", at_most=most))
    print_table(f"Start of a single run on an idle system, {STARTS} starts", ("queue", "median", "range"), rows)
    return figures
