"""Bare ``openai`` calls: the same requests one after the other, nothing audited, nothing kept."""

from __future__ import annotations

import asyncio
import sys

import openai
from loop import Work, serve


def main(base_url: str, work_file: str) -> None:
    """Serve commands."""
    work = Work(work_file)
    with asyncio.Runner() as runner:
        client = openai.AsyncOpenAI(api_key="none", base_url=base_url)

        async def run_once(run_id: str) -> bool:
            for requests in work.steps:
                for request in requests:
                    await client.chat.completions.create(**request)
            return True

        serve(run_once, runner, openai=openai.__version__)
        runner.run(client.close())


if __name__ == "__main__":
    main(*sys.argv[1:3])
