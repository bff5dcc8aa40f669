"""The recorder's ceiling: attempts stored per second when nothing else is done.

What a real run of the colour-theme example stores is stored again and again, for 200 runs at a time, through the
database thread of a drain with its group commit.
"""

from __future__ import annotations

from contextlib import ExitStack

from benchmarks.figures import Figure, Setting, print_table
from benchmarks.installation import creating_postgres_database, start_installation

RUNS = 1_000


def measure(setting: Setting) -> list[Figure]:
    """Measure and print a table; there is no target."""
    rows = []
    with ExitStack() as stack:
        databases = [("SQLite", "")]
        if setting.postgres is not None:
            url = stack.enter_context(creating_postgres_database(setting.postgres, "toolflow_recorder"))
            databases.append(("PostgreSQL", url))
        for name, url in databases:
            with start_installation(
                f"recorder on {name}",
                base_url="http://127.0.0.1:1/v1",
                folder=setting.folder,
                database_url=url,
                with_worker=False,
            ) as installation:
                installation.ask(record=RUNS // 5)
                answer = installation.ask(record=RUNS)
            attempts = answer["attempts"]
            rows.append((name, f"{attempts / answer['wall']:,.0f}", f"{answer['cpu'] / attempts * 1000:.2f}"))
    print_table(
        f"Ceiling of the recorder, {RUNS:,} runs, 200 at a time", ("database", "attempts a second", "CPU ms each"), rows
    )
    return []
