"""Burr: an action for each step, a transition back to it when its audit says no, states kept in SQLite."""

from __future__ import annotations

import asyncio
import sys
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import openai
from burr.core import ApplicationBuilder, Condition, State, action, default
from burr.integrations.persisters.b_aiosqlite import AsyncSQLitePersister
from loop import TRIES, Work, find_issues, read_output, serve


def main(base_url: str, work_file: str, folder: str) -> None:
    """Serve commands."""
    work = Work(work_file)
    with asyncio.Runner() as runner:
        client = openai.AsyncOpenAI(api_key="none", base_url=base_url)
        persister = runner.run(_open_persister(Path(folder) / "burr.sqlite3"))

        def make_action(step: int) -> Any:
            async def act(state: State) -> State:
                tried = sum(attempt["step"] == step for attempt in state["attempts"])
                output = read_output(await client.chat.completions.create(**work.find_request(step, tried)))
                return state.append(attempts={"step": step, "output": output, "issues": find_issues(output)})

            return action(reads=["attempts"], writes=["attempts"])(act)

        actions = {f"step_{step}": make_action(step) for step in range(len(work.steps))}
        names = list(actions)
        again = Condition(["attempts"], _must_try_again)
        transitions = [(name, name, again) for name in names]
        transitions += [(name, following, default) for name, following in pairwise(names)]

        async def run_once(run_id: str) -> bool:
            application = await (
                ApplicationBuilder()
                .with_actions(**actions)
                .with_transitions(*transitions)
                .with_state(attempts=[])
                .with_entrypoint(names[0])
                .with_identifiers(app_id=run_id)
                .with_state_persister(persister)
                .abuild()
            )
            while True:
                last, _, state = await application.arun(halt_after=[names[-1]])
                if last.name == names[-1] and not _must_try_again(state):
                    return not state["attempts"][-1]["issues"]

        serve(run_once, runner, burr=version("burr"), openai=openai.__version__)
        runner.run(persister.cleanup())
        runner.run(client.close())


def _must_try_again(state: Any) -> bool:
    last = state["attempts"][-1]
    return bool(last["issues"]) and sum(attempt["step"] == last["step"] for attempt in state["attempts"]) < TRIES


async def _open_persister(path: Path) -> Any:
    persister = await AsyncSQLitePersister.from_values(db_path=str(path))
    await persister.initialize()
    return persister


if __name__ == "__main__":
    main(*sys.argv[1:4])
