"""DBOS: a durable workflow whose steps are the calls, kept in SQLite."""

from __future__ import annotations

import asyncio
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import openai
from dbos import DBOS, SetWorkflowID
from loop import TRIES, Work, find_issues, read_output, serve


def main(base_url: str, work_file: str, folder: str) -> None:
    """Serve commands."""
    work = Work(work_file)
    database = Path(folder) / "dbos.sqlite3"
    DBOS(config={"name": "bench", "system_database_url": f"sqlite:///{database}", "log_level": "ERROR"})
    with asyncio.Runner() as runner:
        client = openai.AsyncOpenAI(api_key="none", base_url=base_url)

        async def call(step: int, attempt: int) -> Any:
            return read_output(await client.chat.completions.create(**work.find_request(step, attempt)))

        durable_call = DBOS.step()(call)

        async def flow() -> bool:
            issues: list[str] = []
            for step in range(len(work.steps)):
                for attempt in range(TRIES):
                    issues = find_issues(await durable_call(step, attempt))
                    if not issues:
                        break
            return not issues

        workflow = DBOS.workflow()(flow)

        async def run_once(run_id: str) -> bool:
            with SetWorkflowID(run_id):
                return bool(await workflow())

        DBOS.launch()
        serve(run_once, runner, dbos=version("dbos"), openai=openai.__version__)
        runner.run(client.close())
        DBOS.destroy()


if __name__ == "__main__":
    main(*sys.argv[1:4])
