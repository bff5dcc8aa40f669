"""Throughput and CPU of the full path of a worker, beside bare calls and beside peers on the same work.

Runs are queued first; submitting them is not counted. Each contender then has 32 under way at a time. In each round all
take their turn, and ratios are taken within the round.
"""

from __future__ import annotations

from contextlib import ExitStack
from statistics import median
from typing import Any

from benchmarks.contender import Contender, start_bare, start_peer
from benchmarks.figures import Figure, Setting, print_table, say
from benchmarks.installation import creating_postgres_database, start_installation
from benchmarks.model_server import serving_model

IN_FLIGHT = 32
LATENCY = 0.02
WARM_UP = 40
"""Runs before the first round."""
PEERS = ("burr", "langgraph", "dbos")
KIB = 1024

Rounds = dict[str, list[dict[str, Any]]]


def measure(setting: Setting) -> list[Figure]:
    """Measure, print a table, and give the figures that have targets."""
    with ExitStack() as stack:
        base_url = stack.enter_context(serving_model(LATENCY))
        contenders = [
            stack.enter_context(start_bare(base_url=base_url, work=setting.work, folder=setting.folder)),
            *(stack.enter_context(one) for one in _start_installations(setting, base_url, stack)),
        ]
        if setting.peers is not None:
            contenders += [
                stack.enter_context(
                    start_peer(
                        f"{name}_peer",
                        python=setting.peers,
                        base_url=base_url,
                        work=setting.work,
                        folder=setting.folder,
                    )
                )
                for name in PEERS
            ]
        rounds, sizes = _run_rounds(contenders, setting)
    _print(contenders, rounds)
    return _judge(rounds, sizes)


def _start_installations(setting: Setting, base_url: str, stack: ExitStack) -> list[Contender]:
    options: dict[str, Any] = {"base_url": base_url, "folder": setting.folder, "in_flight": IN_FLIGHT}
    started = [start_installation("ToolFlow on SQLite", **options)]
    if setting.postgres is not None:
        url = stack.enter_context(creating_postgres_database(setting.postgres, "toolflow_bench"))
        started.append(start_installation("ToolFlow on PostgreSQL", database_url=url, **options))
    return started


def _run_rounds(contenders: list[Contender], setting: Setting) -> tuple[Rounds, dict[str, float]]:
    rounds: Rounds = {one.name: [] for one in contenders}
    installations = [one for one in contenders if "database" in one.about]
    for one in contenders:
        one.ask(runs=WARM_UP, in_flight=IN_FLIGHT)
    before = {one.name: one.ask(size=1)["size"] for one in installations}
    for number in range(setting.rounds):
        say(f"  round {number + 1} of {setting.rounds}")
        for one in contenders:
            rounds[one.name].append(one.ask(runs=setting.runs, in_flight=IN_FLIGHT))
    total = setting.rounds * setting.runs
    sizes = {one.name: (one.ask(size=1)["size"] - before[one.name]) / total / KIB for one in installations}
    for name, answers in rounds.items():
        for answer in answers:
            if answer["failed"]:
                say(f"  ✗ {name}: {answer['failed']} of {setting.runs} runs failed")
            answer["cpu"] *= 1000 / setting.runs
            answer["cpu_all"] = answer.get("cpu_all", 0.0) * 1000 / setting.runs
            answer["rate"] = setting.runs / answer["wall"]
    return rounds, sizes


def _print(contenders: list[Contender], rounds: Rounds) -> None:
    rows = []
    for one in contenders:
        answers = rounds[one.name]
        cpu_all = median(answer["cpu_all"] for answer in answers)
        versions = ", ".join(f"{name} {version}" for name, version in one.about.items() if name != "database")
        rows.append(
            (
                one.name.removesuffix("_peer"),
                f"{median(answer['cpu'] for answer in answers):.1f}",
                f"{_compare(rounds, one.name, 'cpu'):.2f}",
                f"{cpu_all:.1f}" if cpu_all else "",
                f"{median(answer['rate'] for answer in answers):.0f}",
                f"{_compare(rounds, one.name, 'rate'):.2f}",
                versions,
            )
        )
    header = ("contender", "CPU ms a run", "× bare", "all processes", "runs a second", "× bare", "versions")
    print_table(
        f"3 steps, 4 calls, {IN_FLIGHT} runs in flight, calls of {LATENCY * 1000:.0f} ms, medians", header, rows
    )


def _compare(rounds: Rounds, name: str, key: str, bare_key: str | None = None) -> float:
    """The median over the rounds of what ``name`` took, in units of what the bare calls took."""
    pairs = zip(rounds[name], rounds["bare"], strict=True)
    ratios: list[float] = [mine[key] / bare[bare_key or key] for mine, bare in pairs]
    return median(ratios)


def _judge(rounds: Rounds, sizes: dict[str, float]) -> list[Figure]:
    figures = []
    for name, size in sizes.items():
        most = 2.2 if "PostgreSQL" in name else 1.65
        whole = _compare(rounds, name, "cpu_all", "cpu")
        figures.append(Figure(f"{name}: CPU of all processes", whole, "× bare", at_most=most))
        figures.append(Figure(f"{name}: database of a run", size, "KiB", at_most=12))
    name = "ToolFlow on SQLite"
    drain = _compare(rounds, name, "cpu")
    figures.insert(0, Figure(f"{name}: CPU of the drain", drain, "× bare", at_most=1.25))
    figures.insert(1, Figure(f"{name}: throughput", _compare(rounds, name, "rate"), "× bare", at_least=0.8))
    figures += [
        Figure(f"Drain beside {peer}", drain / _compare(rounds, f"{peer}_peer", "cpu"), "×", at_most=1)
        for peer in PEERS
        if f"{peer}_peer" in rounds
    ]
    return figures
