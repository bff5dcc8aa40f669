"""Pages over a long history: lists, filters, search, runs and statistics, over HTTP."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from benchmarks.figures import Figure, Setting, print_table
from benchmarks.seeded_history import count_runs, open_installations
from benchmarks.web import DEPTHS, ROUNDS, Question, Reader, serving_pages


def measure(setting: Setting) -> list[Figure]:
    """Measure, print a table for each database, and give the figures that have targets."""
    figures: list[Figure] = []
    for database, environment, known in open_installations(setting):
        with serving_pages(environment, setting.folder / f"pages-{database}.txt") as port:
            reader = Reader(port, {"Cookie": f"sessionid={known['session']}"})
            rows, found = reader.measure(_list_questions(known), database)
        header = ("question", "p50 ms", "p95 ms", "target")
        title = f"Pages over {count_runs(setting):,} runs on {database}, {ROUNDS} requests of each kind"
        print_table(title, header, rows)
        figures += found
    return figures


def _list_questions(known: dict[str, Any]) -> list[Question]:
    depths = [known["last"] - (known["last"] - known["first"]) * number // DEPTHS for number in range(DEPTHS)]

    def ask_list(name: str, *filters: dict[str, Any]) -> Question:
        addresses = [
            f"/runs/?{urlencode(wanted | ({'before': before} if before < known['last'] else {}))}"
            for before in depths
            for wanted in filters
        ]
        return Question(name, tuple(addresses), 15, 40)

    def ask(name: str, *addresses: str, p50: float | None = None, p95: float | None = None) -> Question:
        return Question(name, addresses, p50, p95)

    flow, user = known["flow"], known["user"]
    return [
        ask("nothing but a session (workers)", "/workers/"),
        ask_list("list, any depth", {}),
        ask_list("by flow", {"flow": flow}),
        ask_list("by version", {"flow": flow, "version": 1}, {"flow": flow, "version": 3}),
        *(ask_list(f"by status {status}", {"status": status}) for status in ("succeeded", "failed", "errored")),
        ask_list("by severity", {"severity": "low"}, {"severity": "critical"}),
        ask_list("by issue code", *({"code": code} for code in known["codes"])),
        ask_list("by audit", *({"audit": audit} for audit in known["audits"])),
        ask_list("by model", {"model": "gpt-5-mini"}, {"model": "in-house-7b"}),
        ask_list("by label", {"label": "nightly"}),
        ask_list("by user", {"by": user}),
        ask_list("by date", {"from": known["middle_day"]}, {"to": known["middle_day"]}),
        ask_list("by cost", {"cost": "0.01"}, {"cost": "0.05"}),
        ask_list("by tokens", {"tokens": "20000"}),
        ask_list("by flow, status and code", *({"flow": flow, "status": "failed", "code": c} for c in known["codes"])),
        ask_list("by what seldom meets", {"status": "errored", "label": "nightly", "by": user, "severity": "high"}),
        ask_list("by what never meets", {"flow": flow, "code": "no_such_code", "cost": "0.01"}),
        *(
            ask(f"search {name}", *(f"/runs/?{urlencode({'q': words})}" for words in texts), p95=300)
            for name, texts in known["searches"].items()
        ),
        ask("run page, 7 attempts", *(f"/runs/{number}/" for number in known["runs"]), p50=25, p95=60),
        ask("issues", "/issues/", f"/issues/?flow={flow}", "/issues/?period=90d&severity=high", p95=100),
        ask("issues with words", "/issues/?q=colour", "/issues/?q=colour&severity=critical", p95=100),
        ask("flow page", f"/flows/{flow}/", f"/flows/{flow}/?period=90d", p95=80),
        ask("overview", "/", p95=80),
    ]
