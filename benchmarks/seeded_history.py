"""An installation with a long history, seeded the same for pages and API.

As a program it sets one up, with as many runs as its argument says, where its environment says.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.contender import ROOT
from benchmarks.figures import Setting, say
from benchmarks.installation import creating_postgres_database
from benchmarks.web import build_environment

FEW, MANY = 20_000, 250_000
"""Runs; with ``--long`` the larger number."""
UNTHROTTLED = "10000000"
"""Requests a minute: what is measured is not the throttle."""


def count_runs(setting: Setting) -> int:
    """How many runs a history has."""
    return MANY if setting.is_long else FEW


def open_installations(setting: Setting) -> Iterator[tuple[str, dict[str, str], dict[str, Any]]]:
    """For each database its name, the environment of its installation, and what questions need to know of it.

    It is seeded once, and goes with ``setting.stack``.
    """
    databases = {"SQLite": ""}
    if setting.postgres is not None and "PostgreSQL" not in setting.seeded:
        creating = creating_postgres_database(setting.postgres, "toolflow_history")
        databases["PostgreSQL"] = setting.stack.enter_context(creating)
    for name, url in databases.items():
        if name not in setting.seeded:
            data = setting.folder / f"history-{name}"
            data.mkdir()
            limits = dict.fromkeys(("TOOLFLOW_API_READS_PER_MINUTE", "TOOLFLOW_API_WRITES_PER_MINUTE"), UNTHROTTLED)
            environment = build_environment(data, DATABASE_URL=url, **limits)
            setting.seeded[name] = environment, seed_installation(name, environment, count_runs(setting))
    for name, (environment, known) in setting.seeded.items():
        yield name, environment, known


def seed_installation(database: str, environment: Mapping[str, str], runs: int) -> dict[str, Any]:
    """Set up the installation of that environment; gives what questions need to know of it."""
    began = time.monotonic()
    command = [sys.executable, "-m", "benchmarks.seeded_history", str(runs)]
    made = subprocess.run(command, cwd=ROOT, env=dict(environment), stdout=subprocess.PIPE, check=True)
    known: dict[str, Any] = json.loads(made.stdout)
    say(f"  {database}: {runs:,} runs with {known['attempts']:,} attempts seeded in {time.monotonic() - began:.0f} s")
    return known


def main() -> None:
    """Set up an installation with that many runs, as the environment says; prints what the questions need."""
    import django

    django.setup()
    from django.contrib.auth.models import User
    from django.core.management import call_command
    from django.test import Client

    from benchmarks.work import FLOW
    from flows.examples import load_examples, load_sample_input
    from runs.models import Attempt, Issue, Run, TokenScope
    from runs.tokens import create_token

    call_command("migrate", verbosity=0, interactive=False)
    call_command("seed_history", runs=int(sys.argv[1]), stdout=sys.stderr)
    ada = User.objects.create_superuser("ada")
    client = Client()
    client.force_login(ada)
    _, token = create_token(user=ada, name="Benchmark", scope=TokenScope.RUN, lifetime=None)
    load_examples()
    first, last = Run.objects.order_by("pk")[0], Run.objects.order_by("-pk")[0]
    middle = Run.objects.get(pk=(first.pk + last.pk) // 2)
    issues = Issue.objects.exclude(audit="").order_by("pk")[:200]
    long_runs = Run.objects.filter(attempt_count=7).order_by("-pk").values_list("pk", flat=True)[:20]
    json.dump(
        {
            "token": token,
            "order": {"flow": FLOW, "input": load_sample_input(FLOW)},
            "session": client.cookies["sessionid"].value,
            "attempts": Attempt.objects.count(),
            "first": first.pk,
            "last": last.pk,
            "flow": last.flow.name,
            "user": "seeded-linus",
            "codes": sorted({issue.code for issue in issues})[:5],
            "audits": sorted({issue.audit for issue in issues})[:5],
            "middle_day": middle.created_at.date().isoformat(),
            "runs": list(long_runs),
            "searches": {
                "rare": ["rarity", f"order-{10:07d}"],
                "frequent": ["amber", "order"],
                "two frequent": ["amber birch", "cedar dune"],
                "nothing": ["nosuchword"],
            },
        },
        sys.stdout,
    )


if __name__ == "__main__":
    main()
